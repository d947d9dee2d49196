package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast/holdfast/server"
)

// option is a row of the table from which flags, environment variables and
// their documentation derive.
type option struct {
	name  string // --name, HOLDFAST_NAME
	help  string // completes "name: …"
	value any    // pointer into the Config
	debug bool   // only for tests: not in the README
}

// options binds the rows to c. The order is the order of the documentation.
func options(c *server.Config) []option {
	return []option{
		{name: "name", value: &c.Node.Name, help: "name of this node, unique in the cluster, for good"},
		{name: "addr", value: &c.Listen.Addr, help: "address for clients"},
		{name: "advertise-addr", value: &c.Listen.Advertise, help: "address told to clients that ask for the leader; default: addr"},
		{name: "peer-addr", value: &c.Listen.PeerAddr, help: "address for the other nodes"},
		{name: "data-dir", value: &c.Node.DataDir, help: "folder for log, snapshots and identity"},
		{name: "initial-cluster", value: &c.Node.InitialCluster, help: "all nodes as name=host:port,… of their peer addresses, the same on every node; default: this node alone"},
		{name: "password", value: &c.Secrets.Password, help: "password that clients must give by AUTH"},
		{name: "password-file", value: &c.Secrets.PasswordFile, help: "file that holds the password"},
		{name: "cluster-secret", value: &c.Secrets.ClusterSecret, help: "secret by which nodes know each other"},
		{name: "cluster-secret-file", value: &c.Secrets.ClusterSecretFile, help: "file that holds the cluster secret"},
		{name: "tls-cert", value: &c.Secrets.TLSCert, help: "PEM certificate for clients' connections; with tls-key turns TLS on"},
		{name: "tls-key", value: &c.Secrets.TLSKey, help: "PEM key of tls-cert"},
		{name: "tls-client-ca", value: &c.Secrets.TLSClientCA, help: "PEM certificates of the CA that clients' certificates must come from"},
		{name: "peer-tls-cert", value: &c.Secrets.PeerTLSCert, help: "PEM certificate for connections between nodes, used in both directions"},
		{name: "peer-tls-key", value: &c.Secrets.PeerTLSKey, help: "PEM key of peer-tls-cert"},
		{name: "peer-tls-ca", value: &c.Secrets.PeerTLSCA, help: "PEM certificates of the CA that nodes' certificates must come from"},
		{name: "insecure", value: &c.Listen.Insecure, help: "listen beyond loopback although nothing tells strangers from friends"},
		{name: "heartbeat-timeout", value: &c.Timing.Heartbeat, help: "silence of the leader after which a follower starts an election (one to two times this)"},
		{name: "election-timeout", value: &c.Timing.Election, help: "time after which a candidate tries again; also the longest step of cluster time"},
		{name: "command-timeout", value: &c.Timing.Command, help: "time after which a command is answered with CLUSTERDOWN or UNCERTAIN"},
		{name: "disk-stall-limit", value: &c.Timing.Stall, help: "a disk call that takes longer ends the process, so that others can lead"},
		{name: "shutdown-timeout", value: &c.Timing.Shutdown, help: "limit of a graceful shutdown"},
		{name: "log-store", value: &c.Node.LogStore, help: "raft log: wal (segments, one sync an append) or bolt (raft-boltdb)"},
		{name: "snapshot-threshold", value: &c.Log.SnapshotThreshold, help: "log entries after which a snapshot is taken"},
		{name: "snapshot-interval", value: &c.Log.SnapshotInterval, help: "how often the threshold is looked at (one to two times this)"},
		{name: "trailing-logs", value: &c.Log.TrailingLogs, help: "log entries kept behind a snapshot for followers that lag"},
		{name: "max-clients", value: &c.Limits.MaxClients, help: "connections at a time"},
		{name: "max-args", value: &c.Limits.MaxArgs, help: "words of one command"},
		{name: "max-bulk-bytes", value: &c.Limits.MaxBulk, help: "bytes of one word"},
		{name: "max-key-bytes", value: &c.Limits.MaxKey, help: "bytes of a key"},
		{name: "max-value-bytes", value: &c.Limits.MaxValue, help: "bytes of a value given in a command"},
		{name: "max-query-bytes", value: &c.Limits.MaxQuery, help: "bytes of requests that one connection may have waiting"},
		{name: "max-output-bytes", value: &c.Limits.MaxOutput, help: "bytes of replies that a client may leave unread before it is cut off"},
		{name: "max-pipeline", value: &c.Limits.MaxPipeline, help: "commands of one connection that are answered as a unit"},
		{name: "idle-timeout", value: &c.Limits.IdleTimeout, help: "close connections that sent nothing for so long; 0: never"},
		{name: "tcp-keepalive", value: &c.Limits.TCPKeepAlive, help: "interval of TCP keep-alive probes to clients"},
		{name: "log-level", value: &c.Log.Level, help: "debug, info, warn or error"},
		{name: "log-format", value: &c.Log.Format, help: "text or json"},
		{name: "debug", value: &c.Debug.Enabled, debug: true, help: "open the DEBUG command and its faults: for tests only"},
		{name: "debug-peer-dial", value: &c.Debug.PeerDial, debug: true, help: "dial other addresses for peers: original=replacement,…"},
	}
}

func (o option) env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

// usageError is a mistake on the command line or in the environment.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parseConfig makes the Config from defaults, then environment, then flags.
// extra may add a subcommand's own flags.
func parseConfig(name string, args []string, stderr io.Writer, extra func(*flag.FlagSet)) (server.Config, error) {
	c := server.DefaultConfig()
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, o := range options(&c) {
		fs.Var(newFlagValue(o.value), o.name, o.help)
		if text, ok := os.LookupEnv(o.env()); ok {
			if err := fs.Set(o.name, text); err != nil {
				return c, usageError{fmt.Errorf("%s=%q: %w", o.env(), text, err)}
			}
		}
	}
	if extra != nil {
		extra(fs)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printFlags(stderr, name, fs)
			return c, err
		}
		return c, usageError{err}
	}
	if fs.NArg() > 0 {
		return c, usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	}
	return c, nil
}

func printFlags(w io.Writer, name string, fs *flag.FlagSet) {
	fmt.Fprintf(w, "Flags of holdfast %s (each also as an environment variable, --data-dir as HOLDFAST_DATA_DIR):\n", name)
	fs.VisitAll(func(f *flag.Flag) {
		fmt.Fprintf(w, "  --%-22s %s", f.Name, f.Usage)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(w, " (%s)", f.DefValue)
		}
		fmt.Fprintln(w)
	})
}

// flagTable is the README's table of flags, in Markdown.
func flagTable() string {
	c := server.DefaultConfig()
	var b strings.Builder
	b.WriteString("| flag | environment | default | |\n|---|---|---|---|\n")
	for _, o := range options(&c) {
		if o.debug {
			continue
		}
		def := newFlagValue(o.value).String()
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", o.name, o.env(), def, o.help)
	}
	return b.String()
}
