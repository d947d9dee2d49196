package main

import (
	"bytes"
	"context"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

// try runs the program in this process until it fails; what serves is stopped at once.
func try(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestBadUsageIsOneLineAndStatusTwo(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"serve", "--nonsense"}, "flag provided but not defined: -nonsense\n"},
		{[]string{"serve", "--adr", "x"}, "flag provided but not defined: -adr; the nearest is --addr\n"},
		{
			[]string{"cluster", "status", "--pasword-file", "x"},
			"flag provided but not defined: -pasword-file; the nearest is --password-file\n",
		},
		{[]string{"serve", "--max-clients", "many"}, `invalid value "many" for flag -max-clients: invalid syntax`},
		{[]string{"serve", "--max-clients", "0"}, "max-clients 0: at least 1"},
		{[]string{"serve", "--max-memory-clients", "many"}, `max-memory-clients "many": use bytes`},
		{[]string{"serve", "leftover"}, `unexpected argument "leftover"`},
		{[]string{"serve", "--name", "a b"}, `name "a b": use 1 to 64 letters`},
		{[]string{"serve", "--log-level", "loud"}, `log-level "loud"`},
		{[]string{"serve", "--initial-cluster", "n1"}, `"n1" is not name=host:port`},
		{[]string{"serve", "--initial-cluster", "n2=127.0.0.1:1"}, `initial-cluster does not name this node, "n1"`},
		{[]string{"serve", "--initial-cluster", "n1=127.0.0.1:1,n2=127.0.0.1:2"}, "use 1, 3 or 5"},
		{[]string{"serve", "--initial-cluster", "n1=127.0.0.1:1,n1=127.0.0.1:2,n3=127.0.0.1:3"}, "names n1 twice"},
		{[]string{"serve", "--addr", "0.0.0.0:6379"}, "addr 0.0.0.0:6379 is not loopback"},
		{[]string{"serve", "--peer-addr", ":7379"}, "peer-addr :7379 is not loopback"},
		{[]string{"serve", "--debug-peer-dial", "a=b"}, "debug-peer-dial needs debug"},
		{[]string{"demo", "--port", "70000"}, "port 70000: use 1 to"},
		{[]string{"demo", "--name", "n7"}, "flag -name: the demo chooses it for each node"},
		{[]string{"demo", "--insecure"}, "insecure: the demo's nodes listen on loopback only"},
		{[]string{"demo", "--tls-cert", "x"}, "the demo speaks to its nodes without TLS"},
		{[]string{"demo", "--max-clients", "0"}, "max-clients 0: at least 1"},
		{[]string{"demo", "--log-level", "loud"}, `log-level "loud"`},
		{[]string{"lock"}, "say which lock"},
		{[]string{"lock", "job"}, "say which command"},
		{[]string{"lock", "job", "--"}, "say which command"},
		{[]string{"lock", "", "true"}, "the name is empty"},
		{[]string{"lock", "--nonsense", "job", "true"}, "flag provided but not defined: -nonsense"},
		{[]string{"lock", "job", "--nonsense", "true"}, "flag provided but not defined: -nonsense"},
		{[]string{"lock", "--ttl", "999ms", "job", "true"}, "ttl 999ms: at least 1s"},
		{[]string{"lock", "--shared", "--limit", "2", "job", "true"}, "shared and limit exclude each other"},
		{[]string{"lock", "--permits", "2", "job", "true"}, "--permits 2 needs --limit"},
		{[]string{"lock", "--limit", "2", "--permits", "3", "job", "true"}, "--permits 3 is more than --limit 2"},
		{[]string{"lock", "--grace", "-1s", "job", "true"}, "not negative"},
		{[]string{"lock", "--server", "host:1,", "job", "true"}, `server ""`},
		{[]string{"lock", "--db", "many", "job", "true"}, `invalid value "many" for flag -db`},
		{[]string{"cluster"}, "say what: status, members, remove, repair, replace, promote, demote, transfer"},
		{[]string{"cluster", "fix"}, `"fix": say one of status, members`},
		{[]string{"cluster", "remove"}, "say which member"},
		{[]string{"cluster", "demote", "n1", "n2"}, `unexpected argument "n2"`},
		{[]string{"cluster", "demote", "n1", "--gone-ok"}, "gone-ok is for 'remove'"},
		{[]string{"cluster", "replace"}, "say which member, and by which"},
		{[]string{"cluster", "transfer", "n1", "n2"}, `unexpected argument "n2"`},
		{[]string{"cluster", "promote", "n1", "--force"}, "promote: there is nothing to force"},
		{[]string{"cluster", "status", "n1"}, `unexpected argument "n1"`},
		{[]string{"cluster", "members", "n1"}, `unexpected argument "n1"`},
		{[]string{"cluster", "status", "--timeout", "0s"}, "timeout 0s: more than nothing"},
		{[]string{"backup"}, "say which file, or - for the standard output"},
		{[]string{"backup", "a", "b"}, `unexpected argument "b"`},
		{[]string{"backup", "--keep", "2", "--stale", "x"}, "stale is for a file"},
		{[]string{"backup", "--keep", "0", "."}, "say which file, or --keep with at least 1"},
		{[]string{"backup", "--keep", "2", "not-there"}, "not-there is no folder: make it first"},
		{[]string{"inspect"}, "say which file"},
		{[]string{"inspect", "a", "b"}, `unexpected argument "b"`},
		{[]string{"inspect", "--fences", "-1", "a"}, "not negative"},
		{[]string{"restore", "--data-dir", "x"}, "say which file"},
		{[]string{"restore", "a", "--data-dir", "x", "b"}, `unexpected argument "b"`},
		{[]string{"cluster", "status", "--db", "1"}, "flag provided but not defined: -db"},
		{[]string{"backup", "a", "--db", "1"}, "flag provided but not defined: -db"},
		{[]string{"restore", "a"}, "say where to: --data-dir"},
		{[]string{"restore", "a", "--data-dir", "x", "--raise", "k=0"}, "BY is a positive integer"},
		{[]string{"restore", "a", "--data-dir", "x", "--raise", "=5"}, "use PATTERN[=BY]"},
		{[]string{"restore", "a", "--data-dir", "x", "--min-lease", "-1s"}, "not negative"},
		{[]string{"restore", "a", "--data-dir", "x", "--name", "b", "--initial-cluster", "n1=h:1"}, "initial-cluster"},
		{[]string{"locks", "a*", "b*"}, `unexpected argument "b*": say one PATTERN, in quotes`},
		{[]string{"locks", "--reason", "x"}, "reason, fence and owner are for 'break'"},
		{[]string{"locks", "break", "--reason", "x"}, "break: say which lock"},
		{[]string{"locks", "history", "--watch"}, "watch and held-for are for the list"},
		{[]string{"locks", "history", "--held-for", "1h"}, "watch and held-for are for the list"},
		{[]string{"locks", "break", "job", "--reason", "x", "--json"}, "json is for the list and for 'history'"},
		{[]string{"cluster", "status", "--watch", "--json"}, "json is for 'status' and 'members'"},
		{[]string{"cluster", "remove", "n1", "--json"}, "json is for 'status' and 'members'"},
		{[]string{"locks", "break", "job"}, "break: say why"},
		{[]string{"locks", "break", "job", "leftover", "--reason", "x"}, `unexpected argument "leftover"`},
		{[]string{"docs", "birds"}, `"birds": no page and no heading has this name`},
		{[]string{"docs", "flags", "leftover"}, `"leftover": a heading of several words stands in quotes`},
		{[]string{"version", "leftover"}, `unexpected argument "leftover"`},
		{[]string{"help", "dance"}, `unknown command "dance"`},
		{[]string{"help", "serve", "leftover"}, `unexpected argument "leftover"`},
		{[]string{"dance"}, `unknown command "dance"`},
	} {
		status, stdout, stderr := try(t, tc.args...)
		require.Equal(t, 2, status, "%v: %s", tc.args, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, tc.want)
		if tc.args[0] != "dance" { // which adds the usage
			require.Equal(t, 1, strings.Count(stderr, "\n"), "%v: %s", tc.args, stderr)
		}
	}
}

// TestHelp: what people try first works, on stdout and with status 0.
func TestHelp(t *testing.T) {
	exe := build(t)
	for _, tc := range []struct{ args, want, not string }{
		{"--help", "usage: holdfast command", ""},
		{"-h", "usage: holdfast command", ""},
		{"help", "usage: holdfast command", ""},
		{"help serve", "usage: holdfast serve", ""},
		{"help help", "usage: holdfast command", ""},
		{"serve --help", "--initial-cluster", "--port "},
		{"serve --help", "--tcp-keepalive", "--debug"},
		{"serve --help", "--tcp-keepalive", "For tests"},
		{"serve -h", "usage: holdfast serve", ""},
		{"demo --help", "--port ", "--initial-cluster"},
		{"lock --help", "--grace ", "--data-dir"},
		{"help lock", "usage: holdfast lock", ""},
		{"locks --help", "--reason ", "--ttl"},
		{"locks --help", "--db ", ""},
		{"lock --help", "--db ", ""},
		{"cluster --help", "--server ", "--db"},
		{"backup --help", "--server ", "--db"},
		{"docs --help", "usage: holdfast docs", ""},
		{"docs flags", "| `--password-file` | `HOLDFAST_PASSWORD_FILE` |", ""},
		{"docs flags", "`HOLDFAST_DATA_DIR`", "DEBUG"},
		{"docs man", ".SH HOLDFAST SERVE\n.nf\n", "DEBUG"},
		{"docs man", `\-\-password\-file`, "holdfast docs man:"},
		{"docs commands", "`SETNX key value`", ""},
		{"version --help", "usage: holdfast version", ""},
		{"version", "holdfast " + protocol.HoldfastVersion, ""},
		{"--version", "log format ", ""},
	} {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(exe, strings.Fields(tc.args)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.NoError(t, cmd.Run(), tc.args)
		require.Contains(t, stdout.String(), tc.want, tc.args)
		if tc.not != "" {
			require.NotContains(t, stdout.String(), tc.not, tc.args)
		}
		require.Empty(t, stderr.String(), tc.args)
	}
	_, usage, _ := try(t, "cluster", "--help")
	for _, name := range clusterNames() {
		require.Contains(t, usage, "\n  "+name+" ")
	}
	cmd := exec.Command(exe)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "usage: holdfast command")
}

// TestFlagsBeginWithWhatEverybodyNeeds: an operator reads from the top.
func TestFlagsBeginWithWhatEverybodyNeeds(t *testing.T) {
	_, text, _ := try(t, "serve", "--help")
	at := 0
	for _, next := range []string{"\nThe node\n", "--name ", "--password ", "\nTiming\n", "\nLimits\n", "--max-clients "} {
		i := strings.Index(text[at:], next)
		require.GreaterOrEqual(t, i, 0, "%q is not behind what comes before it in:\n%s", next, text)
		at += i
	}
}

func TestBadEnvironmentIsNamed(t *testing.T) {
	t.Setenv("HOLDFAST_MAX_CLIENTS", "few")
	status, _, stderr := try(t, "serve")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, `HOLDFAST_MAX_CLIENTS="few"`)
}

// TestStrangeVariables: one that is nearly a flag's would leave the node without the setting, and ends it. Others are
// told.
func TestStrangeVariables(t *testing.T) {
	others, err := strangeVariables([]string{
		"HOLDFAST_NAME=n1", "HOLDFAST_SERVER=x", "HOLDFAST_TLS_CA=x", "HOLDFAST_DB=1", "HOLDFAST_FENCE=7",
		"HOLDFAS_PASSWORD=x", "PATH=/bin",
	})
	require.NoError(t, err)
	require.Empty(t, others)
	for name, nearest := range map[string]string{
		"PASWORD_FILE": "PASSWORD_FILE", "MAX_MEMRY": "MAX_MEMORY", "TCP_KEEPALIV": "TCP_KEEPALIVE", "ADR": "ADDR",
		"INITIAL_CLUTSER": "INITIAL_CLUSTER", "PEER_TLS_CERTT": "PEER_TLS_CERT",
		"CLUSTER_SECRETS_FILE": "CLUSTER_SECRET_FILE",
	} {
		_, err := strangeVariables([]string{"HOLDFAST_" + name + "=a secret"})
		require.ErrorContains(t, err, "HOLDFAST_"+name+": no flag has this variable; the nearest is HOLDFAST_"+nearest+" (--")
		require.NotContains(t, err.Error(), "a secret")
	}
	others, err = strangeVariables([]string{
		"HOLDFAST_PORT_6379_TCP=tcp://10.0.0.1:6379",
		"HOLDFAST_SERVICE_HOST=10.0.0.1", "HOLDFAST_VERSION=1",
	})
	require.NoError(t, err, "Kubernetes sets such variables for a service of that name")
	require.Len(t, others, 3)
	t.Setenv("HOLDFAST_PASWORD_FILE", "/x")
	t.Setenv("HOLDFAST_MAX_MEMRY", "1gb")
	status, _, stderr := try(t, "serve", "--data-dir", t.TempDir())
	require.Equal(t, 2, status)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	require.Contains(t, stderr, "HOLDFAST_PASSWORD_FILE (--password-file)")
	require.Contains(t, stderr, "HOLDFAST_MAX_MEMORY (--max-memory)")
}

// TestServeCheck: what is wrong is told at once, with status 2, and nothing is started.
func TestServeCheck(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	older, newer := newAuthority(t), newAuthority(t)
	older.issue(t, "n1")
	newer.issue(t, "n1")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	check := func(args ...string) (status int, stdout, stderr string) {
		free := freeAddrs(t, 2)
		return try(t, append([]string{"serve", "--check", "--data-dir", dir, "--addr", free[0], "--peer-addr", free[1]},
			args...)...)
	}
	peers := func(a, ca *authority) []string {
		return []string{
			"--peer-tls-cert", a.file("n1.crt"), "--peer-tls-key", a.file("n1.key"), "--peer-tls-ca",
			ca.file("ca.crt"),
		}
	}
	for _, fine := range [][]string{
		nil, peers(older, older),
		{"--addr", busy.Addr().String()},
		{"--tls-cert", older.file("n1.crt"), "--tls-key", older.file("n1.key")},
	} {
		status, stdout, stderr := check(fine...)
		require.Zero(t, status, "%v: %s", fine, stderr)
		require.Contains(t, stdout, "data-dir "+dir+" is not there")
		require.Equal(t, strings.Contains(stdout, "is in use"), len(fine) == 2, stdout)
		require.True(t, strings.HasSuffix(stdout, "nothing is wrong\n"), stdout)
	}
	require.NoDirExists(t, dir)
	file := older.file("n1.key")
	for _, wrong := range []struct {
		want string
		args []string
	}{
		{"peer-tls-cert does not go with peer-tls-ca", peers(older, newer)},
		{"load peer-tls-cert and peer-tls-key", append(peers(older, older), "--peer-tls-key", newer.file("n1.key"))},
		{"peer-tls-ca: open /nonexist", append(peers(older, older), "--peer-tls-ca", "/nonexist")},
		{"password-file: open /nonexist", []string{"--password-file", "/nonexist"}},
		{"addr: listen tcp 203.0.113.7:6379", []string{"--addr", "203.0.113.7:6379", "--insecure"}},
		{"data-dir " + file + " is no folder", []string{"--data-dir", file}},
		{"audit-log: open /nonexist/log", []string{"--audit-log", "/nonexist/log"}},
		{filepath.Dir(file) + ": is a directory", []string{"--audit-log", filepath.Dir(file)}},
		{"max-clients 0", []string{"--max-clients", "0"}},
		{"log-level", []string{"--log-level", "loud"}},
	} {
		status, stdout, stderr := check(wrong.args...)
		require.Equal(t, 2, status, "%s: %s", wrong.want, stdout)
		require.Contains(t, stderr, wrong.want)
	}
	certs := t.TempDir()
	status, _, stderr := try(t, "certs", certs, "n1=10.0.0.1", "--client", "app")
	require.Zero(t, status, stderr)
	pair := func(name string) []string {
		return []string{"--tls-cert", filepath.Join(certs, name+".crt"), "--tls-key", filepath.Join(certs, name+".key")}
	}
	status, _, stderr = check(pair("client.app")...)
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "tls-cert is no certificate of a server")
	status, stdout, _ := check(pair("n1")...)
	require.Zero(t, status)
	require.NotContains(t, stdout, "tls-cert")
	status, stdout, _ = check(append(pair("n1"), "--advertise-addr", "10.0.0.2:6379")...)
	require.Zero(t, status)
	require.Contains(t, stdout,
		"tls-cert does not go with the address that clients are told: x509: certificate is valid for 10.0.0.1, 127.0.0.1, "+
			"::1, not 10.0.0.2\n")
	_, _, stderr = check("--password-file", "/nonexist", "--max-clients", "0", "--http-addr", "203.0.113.7:1",
		"--insecure")
	for _, want := range []string{"password-file", "max-clients 0", "http-addr"} {
		require.Contains(t, stderr, want, "all at once")
	}
}

// TestEmptyEnvironmentIsASetting: a variable that is set to nothing is not the default.
func TestEmptyEnvironmentIsASetting(t *testing.T) {
	t.Setenv("HOLDFAST_DATA_DIR", "")
	status, _, stderr := try(t, "serve")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "data-dir is empty")
}

func TestLogger(t *testing.T) {
	for _, tc := range []struct {
		c    server.LogConfig
		want string
	}{
		{
			server.LogConfig{LogLevel: "debug", LogFormat: "text"},
			`level=DEBUG msg=low\nlevel=INFO msg=between\nlevel=WARN msg=high took=928µs\n`,
		},
		{server.LogConfig{LogLevel: "warn", LogFormat: "text"}, `level=WARN msg=high took=928µs\n`},
		{server.LogConfig{LogLevel: "warn", LogFormat: "json"}, `{"level":"WARN","msg":"high","took":"928µs"}\n`},
	} {
		var out bytes.Buffer
		logger, err := newLogger(tc.c, &out)
		require.NoError(t, err)
		logger.Debug("low")
		logger.Info("between")
		logger.Warn("high", "took", 928*time.Microsecond)
		text := regexp.MustCompile(`(?m)^time=\S+ |"time":"[^"]*",`).ReplaceAllString(out.String(), "")
		require.Equal(t, strings.ReplaceAll(tc.want, `\n`, "\n"), text)
	}
}

func TestEnvironmentIsBelowFlags(t *testing.T) {
	t.Setenv("HOLDFAST_NAME", "from-env")
	t.Setenv("HOLDFAST_ADDR", "127.0.0.1:1")
	c, err := serveFlags(new(bool)).parse([]string{"--addr", "127.0.0.1:2"}, nil)
	require.NoError(t, err)
	require.Equal(t, "from-env", c.Name)
	require.Equal(t, "127.0.0.1:2", c.Addr)
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, flag := range []string{"--addr", "--peer-addr"} {
		other := freeAddrs(t, 1)[0]
		args := []string{"serve", "--data-dir", t.TempDir(), "--addr", other, "--peer-addr", "127.0.0.1:0"}
		args = append(args, flag, taken.Addr().String())
		status, _, stderr := try(t, args...)
		require.Equal(t, 1, status)
		require.Contains(t, stderr, "address already in use")
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
}

// serveFor runs a node on dir for a moment and returns how it ended.
func serveFor(t *testing.T, dir string, args ...string) (status int, stderr string) {
	t.Helper()
	addrs := freeAddrs(t, 2)
	args = append([]string{
		"serve", "--data-dir", dir, "--addr", addrs[0], "--peer-addr", addrs[1], "--initial-cluster",
		"n1=127.0.0.1:1",
	}, args...)
	status, _, stderr = try(t, args...)
	return status, stderr
}

func TestFolderOfAnotherNodeIsRefused(t *testing.T) {
	dir := t.TempDir()
	status, stderr := serveFor(t, dir)
	require.Equal(t, 0, status, stderr)

	status, stderr = serveFor(t, dir, "--name", "n2", "--initial-cluster", "n2=127.0.0.1:1")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "n1")
	status, stderr = serveFor(t, dir, "--initial-cluster", "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3")
	require.Equal(t, 0, status, "the list is for the first start: %s", stderr)
}

func TestLockedFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := server.DefaultConfig()
	c.DataDir, c.Addr, c.PeerAddr = dir, "127.0.0.1:0", "127.0.0.1:0"
	logger, err := newLogger(c.LogConfig, &bytes.Buffer{})
	require.NoError(t, err)
	s, err := server.New(c, logger)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	status, stderr := serveFor(t, dir, "--initial-cluster", "")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "another process")
	cancel()
	require.NoError(t, <-done)
}

func TestSecretFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, wrong := range []struct {
		want string
		args []string
	}{
		{"password-file: " + empty + " is empty", []string{"--password-file", empty}},
		{"password-file " + empty + ": give the secret or the file, not both", []string{
			"--password-file", empty,
			"--password", "x",
		}},
		{"cluster-secret-file: open /nonexist: no such file", []string{"--cluster-secret-file", "/nonexist"}},
		{"load tls-cert and tls-key: open /nonexist", []string{"--tls-cert", "/nonexist", "--tls-key", "/nonexist"}},
	} {
		status, stderr := serveFor(t, t.TempDir(), wrong.args...)
		require.Equal(t, 2, status, "so that systemd does not start it again: %s", stderr)
		require.Contains(t, stderr, wrong.want)
		require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	}
	status, _, stderr := try(t, "locks", "--password-file", "/nonexist")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "password-file: open /nonexist")
	status, _, stderr = try(t, "locks", "--tls-ca", "/nonexist")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "tls-ca: open /nonexist")
}

func TestLogLevelHoldsForEveryFormat(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		logger, err := newLogger(server.LogConfig{LogLevel: "warn", LogFormat: format}, &b)
		require.NoError(t, err)
		logger.Info("below")
		require.Empty(t, b.String(), format)
		logger.Warn("above")
		require.Contains(t, b.String(), "above", format)
		logger, err = newLogger(server.LogConfig{LogLevel: "debug", LogFormat: format}, &b)
		require.NoError(t, err)
		logger.Debug("lowest")
		require.Contains(t, b.String(), "lowest", format)
	}
}

// TestServeLimitsTheHeap: by what max-memory comes to.
func TestServeLimitsTheHeap(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	status, stderr := serveFor(t, t.TempDir(), "--max-memory", "100mb", "--max-memory-clients", "10mb")
	require.Equal(t, 0, status, stderr)
	require.Less(t, debug.SetMemoryLimit(-1), int64(1<<30))
}

// TestFlagIsItsField: a flag has the name of the one field that it sets, so that a search for either finds all uses.
func TestFlagIsItsField(t *testing.T) {
	var c server.Config
	fields := make(map[any]string) // names by address
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Struct {
				walk(v.Field(i))
				continue
			}
			fields[v.Field(i).Addr().Interface()] = v.Type().Field(i).Name
		}
	}
	walk(reflect.ValueOf(&c).Elem())
	rows := 0
	for _, o := range options(&c) {
		if o.heading == "" {
			require.True(t, strings.EqualFold(strings.ReplaceAll(o.name, "-", ""), fields[o.value]), "--%s sets %s", o.name,
				fields[o.value])
			rows++
		}
	}
	require.Greater(t, rows, 40)
}

// TestConfigSetNamesFlags: the flags that errors of CONFIG SET name are there.
func TestConfigSetNamesFlags(t *testing.T) {
	source := protocoltest.ReadFile(t, filepath.Join("..", "..", "server", "frontend", "settings.go"))
	pairs := regexp.MustCompile(`(?m)^\t"[a-z-]+": +"([a-z-]+)",$`).FindAllStringSubmatch(source, -1)
	require.NotEmpty(t, pairs)
	flags := make(map[string]bool)
	c := server.DefaultConfig()
	for _, o := range options(&c) {
		flags[o.name] = true
	}
	for _, pair := range pairs {
		require.True(t, flags[pair[1]], "no flag --%s", pair[1])
	}
}

// TestFlagsCanBeSet: the value of every row is of a type that flags have.
func TestFlagsCanBeSet(t *testing.T) {
	c, client := server.DefaultConfig(), newClientFlags()
	lists := [][]option{
		options(&c), client.lockRows(), newLockOwn().rows(), newLocksOwn().rows(), newClusterOwn().rows(),
		newImportOwn().rows(),
		(&backupOwn{}).rows(), (&inspectOwn{}).rows(), newRestoreOwn().rows(), newRecoverOwn().rows(),
	}
	for _, o := range slices.Concat(lists...) {
		if o.heading == "" {
			require.NotPanics(t, func() { _ = newFlagValue(o.value).Set("x") }, "--%s of type %T", o.name, o.value)
		}
	}
	r := newRestoreOwn()
	for _, o := range r.rows() {
		if o.name == "fences-above" {
			require.NoError(t, newFlagValue(o.value).Set("5"))
		}
	}
	require.EqualValues(t, 5, r.fencesAbove)
}

// TestMaxScriptSteps: the flag's number is in the entries.
func TestMaxScriptSteps(t *testing.T) {
	addr := clienttest.StartNode(t, func(c *server.Config) { c.MaxScriptSteps = 12_345 })
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 100})
	defer client.Close()
	require.ErrorContains(t, client.Eval(t.Context(), "while true do end", nil).Err(),
		"script is over its budget of 12345 steps (--max-script-steps)")
}
