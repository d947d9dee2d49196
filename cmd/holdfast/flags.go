package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
)

// option is a row of the table from which flags, environment variables and their documentation are derived. A row with
// only a heading begins a group.
type option struct {
	heading string
	name    string // --name, HOLDFAST_NAME
	help    string // completes "name: …"
	value   any    // pointer into the Config
	debug   bool   // for tests; hidden from help and documents
}

// options binds the rows to c, in the order of the documentation: the most common settings first. The reasons for rare
// ones:
//   - sentinel-name: applications that come from Redis have the name of their master in many places;
//   - sentinel-advertise-addr: the host of a container, or a NAT, may map the port to another one;
//   - tls-auth-clients-user: Redis's way to use certificates in place of passwords;
//   - trailing-logs: with a large state a longer log is cheaper than a snapshot for each follower that was away;
//   - hold-version: keeps an upgrade reversible.
func options(c *server.Config) []option {
	return []option{
		{heading: "The node"},
		{name: "name", value: &c.Name, help: "name of this node, unique in the cluster, for good"},
		{name: "addr", value: &c.Addr, help: "address for clients"},
		{name: "advertise-addr", value: &c.AdvertiseAddr, help: "address told to clients that ask for the leader; default: addr"},
		{name: "sentinel-addr", value: &c.SentinelAddr, help: "address where clients of Sentinel find the leader; default: none"},
		{name: "sentinel-advertise-addr", value: &c.SentinelAdvertiseAddr, help: "that address as clients are told it; default: the host of advertise-addr, the port of sentinel-addr"},
		{name: "sentinel-name", value: &c.SentinelName, help: "name under which clients of Sentinel ask for the leader"},
		{name: "cluster-mode", value: &c.ClusterMode, help: "answer clients of Redis Cluster, as one shard with all slots; the same on every node"},
		{name: "peer-addr", value: &c.PeerAddr, help: "address for the other nodes"},
		{name: "peer-advertise-addr", value: &c.PeerAdvertiseAddr, help: "address told to the other nodes; default: this node's in initial-cluster, else peer-addr"},
		{name: "data-dir", value: &c.DataDir, help: "folder for log, snapshots and identity"},
		{name: "initial-cluster", value: &c.InitialCluster, help: "the nodes that found the cluster together, as name=host:port,… of their peer addresses, the same on each; for the first start alone; default: this node alone"},
		{name: "join", value: &c.Join, help: "peer addresses host:port,… of nodes whose cluster is to take this node in, for the first start; later the node tells them its address"},
		{name: "non-voter", value: &c.NonVoter, help: "join without a vote, and stay without until an administrator gives one"},
		{name: "hold-version", value: &c.HoldVersion, help: "newest version that the cluster goes over to while this node is a member, so that its nodes can go back to the release before; 0: any"},
		{heading: "Who may connect"},
		{name: "password", value: &c.Password, help: "password that clients must give by AUTH"},
		{name: "password-file", value: &c.PasswordFile, help: "file that holds the password; a second line is valid, too"},
		{name: "acl-file", value: &c.ACLFile, help: "file of users and their rules, as Redis's aclfile; without a line for the user default, password is that user's"},
		{name: "quota-file", value: &c.QuotaFile, help: "file of what users of acl-file may have: keys, bytes, waiters, and on each node connections and commands a second"},
		{name: "cluster-secret", value: &c.ClusterSecret, help: "secret by which nodes know each other"},
		{name: "cluster-secret-file", value: &c.ClusterSecretFile, help: "file that holds the cluster secret; a second line is valid, too"},
		{name: "tls-cert", value: &c.TLSCert, help: "PEM certificate for clients' connections; with tls-key turns TLS on"},
		{name: "tls-key", value: &c.TLSKey, help: "PEM key of tls-cert"},
		{name: "tls-client-ca", value: &c.TLSClientCA, help: "PEM certificates of the CA that clients' certificates must come from"},
		{name: "tls-auth-clients-user", value: &c.TLSAuthClientsUser, help: "name in a client's certificate that is its user's, who needs no password then: CN (common name) or URI (the first that is a user's); default: off"},
		{name: "peer-tls-cert", value: &c.PeerTLSCert, help: "PEM certificate for connections between nodes, used in both directions"},
		{name: "peer-tls-key", value: &c.PeerTLSKey, help: "PEM key of peer-tls-cert"},
		{name: "peer-tls-ca", value: &c.PeerTLSCA, help: "PEM certificates of the CA that nodes' certificates must come from"},
		{name: "insecure", value: &c.Insecure, help: "listen beyond loopback although nothing tells strangers from friends"},
		{heading: "What the node says"},
		{name: "http-addr", value: &c.HTTPAddr, help: "address for monitoring over HTTP: a page of locks and members at /, its JSON under /api/, /metrics, /livez, /readyz; default: none"},
		{name: "http-pprof", value: &c.HTTPPprof, help: "answer /debug/pprof on http-addr with Go's profiles"},
		{name: "log-level", value: &c.LogLevel, help: "debug, info, warn or error"},
		{name: "log-format", value: &c.LogFormat, help: "text or json"},
		{name: "lock-class", value: &c.LockClass, help: "pattern of names, such as jobs:*, whose locks are counted apart in the metrics; several between blanks, or the flag several times; at most 32, and a lock belongs to the first that matches"},
		{
			name: "audit-log", value: &c.AuditLog,
			help: "file of grants, releases and losses of locks, refused logins and administrators' commands, a JSON line each; " +
				"or stdout, or syslog: the machine's daemon (Unix alone); default: none",
		},
		{
			name: "audit-log-bytes", value: &c.AuditLogBytes,
			help: "what audit-log may take, with the seven older files beside it: bytes, with mb or gb",
		},
		{
			name: "audit-locks", value: &c.AuditLocks,
			help: "pattern of names, such as jobs:*, whose locks are written to audit-log; several between blanks, or the flag " +
				"several times; default: all",
		},
		{heading: "Storage"},
		{name: "snapshot-threshold", value: &c.SnapshotThreshold, help: "log entries after which a snapshot is taken"},
		{name: "trailing-logs", value: &c.TrailingLogs, help: "log entries kept behind a snapshot for followers that lag, at most 256 MiB of them"},
		{name: "consistency-check-interval", value: &c.ConsistencyCheckInterval, help: "time between two comparisons of the members' states, while this node leads; 0: none but those that other members ask for"},
		{heading: "Timing"},
		{name: "heartbeat-timeout", value: &c.HeartbeatTimeout, help: "silence of the leader after which a follower starts an election " +
			"(one to two times this); at least four round trips between nodes"},
		{name: "election-timeout", value: &c.ElectionTimeout, help: "time after which a candidate tries again; also the longest step of cluster time"},
		{name: "command-timeout", value: &c.CommandTimeout, help: "time after which a command is answered with CLUSTERDOWN, TRYAGAIN or UNCERTAIN"},
		{name: "lock-queue-grace", value: &c.LockQueueGrace, help: "how long a place in a lock's queue is kept after a WAIT that ended by time-out, for a client that waits in slices; at most 1h"},
		{name: "disk-stall-limit", value: &c.DiskStallLimit, help: "a disk call that takes longer ends the process, so that others can lead"},
		{name: "shutdown-timeout", value: &c.ShutdownTimeout, help: "limit of a graceful shutdown"},
		{heading: "Limits"},
		{name: "max-clients", value: &c.MaxClients, help: "connections at a time, fewer where the limit of open files has no room for them"},
		{name: "max-query-bytes", value: &c.MaxQueryBytes, help: "bytes of requests that one connection may have waiting"},
		{name: "max-output-bytes", value: &c.MaxOutputBytes, help: "bytes of one reply, else an error takes its place; and of replies that a client may leave unread before it is cut off"},
		{name: "max-memory", value: &c.MaxMemory, help: "what keys and scripts may take while this node leads: bytes, with kb, mb, gb or tb, or a percentage of the machine's or the container's memory; beyond it writes that grow are answered with OOM; 0: no limit"},
		{name: "max-memory-clients", value: &c.MaxMemoryClients, help: "what the buffers, queues and replies of all clients together may take, in the same units; beyond it the client that holds most is cut off; 0: no limit"},
		{name: protocol.ScriptStepsFlag, value: &c.MaxScriptSteps, help: "steps that a script may take while this node leads, at most 1000000000; its commands may cost as much again, and its memory is 4 bytes a step, and at least 64 MiB; a million steps take 5 to 50 ms, for which all others wait"},
		{name: "idle-timeout", value: &c.IdleTimeout, help: "close connections that sent nothing for so long; 0: never"},
		{name: "tcp-keepalive", value: &c.TCPKeepAlive, help: "interval of TCP keep-alive probes to clients; a client with a session is asked four times in its lease"},
		{heading: "For tests only", debug: true},
		{name: "debug", value: &c.Debug, debug: true, help: "open the DEBUG command and its faults"},
		{name: "debug-peer-dial", value: &c.DebugPeerDial, debug: true, help: "dial other addresses for peers: original=replacement,…"},
	}
}

func (o option) env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

// usageError is a mistake on the command line or in the environment.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func unexpected(arg string) error { return usageError{fmt.Errorf("unexpected argument %q", arg)} }

func wantsHelp(args []string) bool {
	return len(args) == 1 && slices.Contains([]string{"--help", "-help", "-h"}, args[0])
}

// exitStatus is an error with an exit status of its own. text is "" if nothing is to be printed.
type exitStatus struct {
	status int
	text   string
}

func (e exitStatus) Error() string { return e.text }

// The exit statuses of `holdfast lock` other than the command's own. 69 and 75 are from sysexits(3).
// Shells use the others, too.
const (
	statusNotGranted    = 69 // EX_UNAVAILABLE
	statusLost          = 75 // EX_TEMPFAIL
	statusNotExecutable = 126
	statusNotFound      = 127
	statusSignal        = 128 // plus the signal's number
)

// flagSet has the flags of one command.
type flagSet struct {
	command  string
	own      []option              // the command's own flags, which have no environment variable
	refused  map[string]string     // rows of the table that the command refuses, with the reason
	defaults map[string]ownDefault // the command's own defaults of rows of the table
}

// ownDefault is a command's own default of a flag, and its text in documents.
type ownDefault struct{ value, shown string }

// parse returns the Config from defaults, overridden by the environment and then by flags. If args ask for help, it
// prints the flags and returns flag.ErrHelp.
func (f flagSet) parse(args []string, stdout io.Writer) (server.Config, error) {
	c := server.DefaultConfig()
	fs := flag.NewFlagSet(f.command, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, o := range options(&c) {
		if o.heading != "" {
			continue
		}
		value := newFlagValue(o.value)
		if why := f.refused[o.name]; why != "" {
			value = refusedValue{value, why}
		}
		if own, is := f.defaults[o.name]; is {
			_ = value.Set(own.value)
		}
		fs.Var(value, o.name, o.help)
		if text, ok := os.LookupEnv(o.env()); ok {
			if err := fs.Set(o.name, text); err != nil {
				return c, usageError{fmt.Errorf("%s=%q: %w", o.env(), text, err)}
			}
		}
	}
	for _, o := range f.own {
		fs.Var(newFlagValue(o.value), o.name, o.help)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.print(stdout)
			return c, err
		}
		return c, usageError{withNearest(err, fs)}
	}
	if fs.NArg() > 0 {
		return c, unexpected(fs.Arg(0))
	}
	return c, nil
}

// print lists the flags that have an effect, in groups. It leaves out flags for tests.
func (f flagSet) print(w io.Writer) {
	fmt.Fprintf(w, "usage: holdfast %s [flags]\n", f.command)
	for _, o := range f.own {
		printFlag(w, o, newFlagValue(o.value).String())
	}
	c := server.DefaultConfig()
	for _, o := range options(&c) {
		switch {
		case o.debug:
		case o.heading != "":
			fmt.Fprintf(w, "\n%s\n", o.heading)
		case f.refused[o.name] == "":
			printFlag(w, o, cmp.Or(f.defaults[o.name].shown, newFlagValue(o.value).String()))
		}
	}
	fmt.Fprint(w, "\nThe flags in groups are also environment variables: --data-dir is HOLDFAST_DATA_DIR.\n")
}

// dashed returns a flag as documents have it: one letter has one dash.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func printFlag(w io.Writer, o option, def string) {
	fmt.Fprintf(w, "  %-24s %s", dashed(o.name), o.help)
	if def != "" && def != "false" {
		fmt.Fprintf(w, " (%s)", def)
	}
	fmt.Fprintln(w)
}

// flagValue sets a pointer into the Config, from a flag or the environment.
type flagValue struct{ target any }

func newFlagValue(target any) flag.Value { return flagValue{target} }

// IsBoolFlag allows --insecure without a value.
func (v flagValue) IsBoolFlag() bool {
	_, ok := v.target.(*bool)
	return ok
}

func (v flagValue) String() string {
	switch t := v.target.(type) {
	case *string:
		return *t
	case *bool:
		return strconv.FormatBool(*t)
	case *int:
		return strconv.Itoa(*t)
	case *int64:
		return strconv.FormatInt(*t, 10)
	case *uint64:
		return strconv.FormatUint(*t, 10)
	case *time.Duration:
		return t.String()
	case *[]string:
		return strings.Join(*t, " ")
	default: // the flag package makes a zero flagValue to compare defaults with
		return ""
	}
}

func (v flagValue) Set(s string) error {
	var err error
	switch t := v.target.(type) {
	case *string:
		*t = s
	case *bool:
		*t, err = strconv.ParseBool(s)
	case *int:
		*t, err = strconv.Atoi(s)
	case *int64:
		*t, err = strconv.ParseInt(s, 10, 64)
	case *uint64:
		*t, err = strconv.ParseUint(s, 10, 64)
	case *time.Duration:
		*t, err = time.ParseDuration(s)
	case *[]string: // given several times
		*t = append(*t, s)
	default:
		panic(fmt.Sprintf("flag value of type %T", v.target))
	}
	if numError := (*strconv.NumError)(nil); errors.As(err, &numError) {
		return numError.Err
	}
	return err
}

// refusedValue is a flag that the command refuses, as it would have no effect.
type refusedValue struct {
	flag.Value
	why string
}

func (v refusedValue) Set(string) error { return errors.New(v.why) }

// IsBoolFlag allows --insecure without a value, so that the refusal names the flag.
func (v refusedValue) IsBoolFlag() bool {
	b, ok := v.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}
