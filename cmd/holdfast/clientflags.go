package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/secrets"
)

// clientFlags are the flags by which `holdfast lock`, `holdfast locks` and `holdfast cluster` reach a cluster.
type clientFlags struct {
	server, user           string
	password               server.SecretsConfig
	tls                    bool
	tlsCA, tlsCert, tlsKey string
	db                     int
}

func newClientFlags() clientFlags { return clientFlags{} }

// connecting is the heading of the rows of clientFlags.
const connecting = "The cluster"

func (c *clientFlags) rows() []option {
	return []option{
		{heading: connecting},
		{
			name: "server", value: &c.server,
			help: "addresses of nodes, host:port,…; another is asked when one is gone; default: the node of this machine, as " +
				envFile + " has it, else " + server.DefaultConfig().Addr,
		},
		{name: "user", value: &c.user, help: "user whose password that is; default: the user default"},
		{name: "password", value: &c.password.Password, help: "password to give by AUTH"},
		{name: "password-file", value: &c.password.PasswordFile, help: "file that holds the password"},
		{name: "tls", value: &c.tls, help: "encrypt; the other flags of TLS turn this on"},
		{
			name: "tls-ca", value: &c.tlsCA,
			help: "PEM certificates of the CA that nodes' certificates must come from; default: the system's",
		},
		{name: "tls-cert", value: &c.tlsCert, help: "PEM certificate to show to nodes"},
		{name: "tls-key", value: &c.tlsKey, help: "PEM key of tls-cert"},
	}
}

// lockRows are the rows of commands that are about locks, in a database.
func (c *clientFlags) lockRows() []option {
	return append(c.rows(), option{name: "db", value: &c.db, help: "database of the lock"})
}

// fillIn sets flags that are unset from the settings of this machine's node. It is called only if no server is named,
// so that no other node gets this node's credentials.
func (c *clientFlags) fillIn(n localNode) {
	c.server = cmp.Or(n.values["HOLDFAST_SERVER"], n.addr())
	if c.user == "" && c.password.Password == "" && c.password.PasswordFile == "" {
		c.user = n.values["HOLDFAST_USER"]
		c.password.Password, c.password.PasswordFile = n.get("HOLDFAST_PASSWORD"), n.get("HOLDFAST_PASSWORD_FILE")
	}
	cert := n.get("HOLDFAST_TLS_CERT")
	if cert == "" {
		return
	}
	if c.tlsCA == "" && !c.tls {
		c.tlsCA = cmp.Or(n.get("HOLDFAST_TLS_CA"), cert) // trusts the node's own certificate, without its CA
	}
	if c.tlsCert == "" && c.tlsKey == "" && n.get("HOLDFAST_TLS_CLIENT_CA") != "" {
		c.tlsCert, c.tlsKey = cert, n.get("HOLDFAST_TLS_KEY")
	}
}

// findNode calls fillIn with the node of this machine, if no server is named.
func (c *clientFlags) findNode() (n localNode) {
	if c.server == "" {
		n = findLocalNode()
		c.fillIn(n)
	}
	return n
}

// servers returns the servers of the flags, or the node of this machine if they name none.
func (c *clientFlags) servers() (*operator.Servers, error) {
	n := c.findNode()
	s, err := c.reach(n.note)
	if err != nil && n.from != "" {
		err = usageError{fmt.Errorf("%w (see %s)", err, n.from)}
	}
	return s, err
}

// reach returns the servers of the flags. from is the origin of the address, for errors.
func (c *clientFlags) reach(from string) (*operator.Servers, error) {
	s := &operator.Servers{DB: c.db, User: c.user, From: from}
	for addr := range strings.SplitSeq(c.server, ",") {
		full, err := withPort(addr)
		if err != nil {
			return nil, usageError{err}
		}
		s.Addrs = append(s.Addrs, full)
	}
	var err error
	if s.Password, err = c.password.ClientPassword(); err != nil {
		return nil, usageError{err}
	}
	s.TLS, err = c.clientTLS("")
	return s, err
}

// clientTLS returns the TLS configuration of the flags, or nil without TLS. The names of the flags begin with prefix.
func (c *clientFlags) clientTLS(prefix string) (*tls.Config, error) {
	if !c.tls && c.tlsCA == "" && c.tlsCert == "" && c.tlsKey == "" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.tlsCert != "" || c.tlsKey != "" {
		cert, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
		if err != nil {
			return nil, usageError{fmt.Errorf("load %stls-cert and %stls-key: %w", prefix, prefix, err)}
		}
		t.Certificates = []tls.Certificate{cert}
	}
	if c.tlsCA != "" {
		var err error
		if t.RootCAs, err = secrets.LoadCA(prefix+"tls-ca", c.tlsCA); err != nil {
			return nil, usageError{err}
		}
	}
	return t, nil
}

// withPort adds the port of Redis to an address without one, such as "[::1]", "::1" and "node1".
func withPort(addr string) (string, error) {
	addr = strings.TrimSpace(addr)
	if _, port, err := net.SplitHostPort(addr); err == nil && port != "" {
		return addr, nil
	}
	_, port, _ := net.SplitHostPort(server.DefaultConfig().Addr)
	host := strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
	if host == "" || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("server %q: use host:port,…", addr)
	}
	return net.JoinHostPort(host, port), nil
}

// isShared reports whether the rows below a heading can also be set by environment variables.
func isShared(heading string) bool { return heading == connecting || heading == sourceHeading }

// parseRows sets rows from the environment and from args, and returns the arguments after the flags. If args ask for
// help, it prints the flags and returns flag.ErrHelp.
func parseRows(rows []option, args []string, stdout io.Writer, usage string) ([]string, error) {
	if err := parseVariables(rows); err != nil {
		return nil, err
	}
	return parseFlags(rows, args, stdout, usage)
}

// parseVariables sets rows from the environment. Flags, which are parsed later, override it.
func parseVariables(rows []option) error {
	shared := false
	for _, o := range rows {
		if o.heading != "" {
			shared = isShared(o.heading)
			continue
		}
		text, ok := os.LookupEnv(o.env())
		if !ok || !shared {
			continue
		}
		if err := newFlagValue(o.value).Set(text); err != nil {
			return usageError{fmt.Errorf("%s=%q: %w", o.env(), text, err)}
		}
	}
	return nil
}

// parseFlags is parseRows without the environment.
func parseFlags(rows []option, args []string, stdout io.Writer, usage string) ([]string, error) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, o := range rows {
		if o.heading == "" {
			fs.Var(newFlagValue(o.value), o.name, o.help)
		}
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		printRows(stdout, rows, usage)
		return nil, err
	case err != nil:
		return nil, usageError{withNearest(err, fs)}
	}
	return fs.Args(), nil
}

// printRows prints the help of a command.
func printRows(w io.Writer, rows []option, usage string) {
	fmt.Fprint(w, usage)
	for _, o := range rows {
		if o.heading != "" {
			fmt.Fprintf(w, "\n%s\n", o.heading)
			continue
		}
		printFlag(w, o, shownDefault(o))
	}
	if slices.ContainsFunc(rows, func(o option) bool { return o.heading == connecting }) {
		of := "cluster"
		if slices.ContainsFunc(rows, func(o option) bool { return o.heading == sourceHeading }) {
			of = "source and of the cluster"
		}
		fmt.Fprintf(w, "\nThe flags of the %s are also environment variables: --password-file is HOLDFAST_PASSWORD_FILE.\n"+
			"A flag wins over a variable. If neither names a server, the variables of the node on this machine count, which "+
			envFile+"\n"+
			"has, or the file that "+envFileVariable+
			" names: the address, the password, and the certificates as far as clients need them.\n", of)
	}
}

// shownDefault returns the default in documents, "" for zero values.
func shownDefault(o option) string {
	value := newFlagValue(o.value).String()
	if n, err := strconv.Atoi(value); err == nil && n == 0 || value == "0s" {
		return ""
	}
	return value
}

// clientName returns this client's name in the logs of nodes: the program, and user@host.
func clientName(program string) string {
	name := program
	if user := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"), os.Getenv("LOGNAME")); user != "" {
		host, _ := os.Hostname()
		name += ":" + user + "@" + host
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_' // a client's name must not have blanks
		}
		return r
	}, name[:min(len(name), 200)])
}

// nodeTimeout bounds the attempt to reach one node, before the next one is tried.
const nodeTimeout = 5 * time.Second

// parseAnywhere is parseFlags for flags before and after words: 'locks break NAME --reason TEXT'.
func parseAnywhere(rows []option, args []string, stdout io.Writer, usage string) ([]string, error) {
	if err := parseVariables(rows); err != nil {
		return nil, err
	}
	var words []string
	for {
		rest, err := parseFlags(rows, args, stdout, usage)
		if err != nil || len(rest) == 0 {
			return words, err
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}

// parseFile is parseAnywhere for exactly one word, the name of a file. missing is the error if there is none.
func parseFile(rows []option, args []string, stdout io.Writer, usage, missing string) (string, error) {
	words, err := parseAnywhere(rows, args, stdout, usage)
	switch {
	case err != nil:
		return "", err
	case len(words) == 0:
		return "", usageError{errors.New(missing)}
	case len(words) > 1:
		return "", unexpected(words[1])
	case strings.Contains(words[0], "://"):
		return "", usageError{fmt.Errorf("%s is no file: %s", words[0], missing)}
	}
	return words[0], nil
}

const (
	importHeading = "The import"
	sourceHeading = "The source"
)
