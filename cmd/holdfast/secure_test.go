package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// authority is a CA that lives for a test.
type authority struct {
	dir string
	*protocoltest.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t.TempDir(), protocoltest.Sign(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil)}
	a.Write(t, a.dir, "ca")
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue makes a certificate for loopback that serves as a client's, a server's and a node's.
func (a *authority) issue(t *testing.T, name string) {
	t.Helper()
	protocoltest.Sign(t, x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		URIs:        []*url.URL{{Scheme: "holdfast", Opaque: "node"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Certificate).Write(t, a.dir, name)
}

// pair is a new certificate of a, with its key.
func (a *authority) pair(t *testing.T, name string) (cert, key string) {
	t.Helper()
	a.issue(t, name)
	return a.text(t, name+".crt"), a.text(t, name+".key")
}

func (a *authority) text(t *testing.T, file string) string {
	t.Helper()
	return protocoltest.ReadFile(t, a.file(file))
}

func (a *authority) clientConfig(t *testing.T, name string) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate.Certificate)
	c := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name != "" {
		cert, err := tls.LoadX509KeyPair(a.file(name+".crt"), a.file(name+".key"))
		require.NoError(t, err)
		c.Certificates = []tls.Certificate{cert}
	}
	return c
}

// TestCertificatesNameUsers: a client with a user's certificate is that user; others are the default user, whose
// password they need.
func TestCertificatesNameUsers(t *testing.T) {
	ca := newAuthority(t)
	ca.issue(t, "node")
	for _, name := range []string{"alice", "carol", "nobody", "limited"} {
		ca.issue(t, name)
	}
	users := ca.file("users.acl")
	require.NoError(t,
		os.WriteFile(users,
			[]byte("user default on >open-sesame ~* &* +@all\nuser alice on ~alice:* +@all\nuser carol off ~* +@all\nuser "+
				"limited on ~* +@all\n"), 0o600))
	quotas := ca.file("users.quota")
	require.NoError(t, os.WriteFile(quotas, []byte("user limited max-connections 1\n"), 0o600))
	start := func(by string) func(name, password string) *redis.Client {
		n := launch(t, build(t), 1, "--tls-cert", ca.file("node.crt"), "--tls-key", ca.file("node.key"), "--tls-client-ca",
			ca.file("ca.crt"),
			"--acl-file", users, "--quota-file", quotas, "--tls-auth-clients-user", by)[0]
		return func(name, password string) *redis.Client {
			c := redis.NewClient(&redis.Options{
				Addr: n.addr, Password: password, TLSConfig: ca.clientConfig(t, name),
				MaxRetries: -1, ReadTimeout: 10 * time.Second,
			})
			t.Cleanup(func() { c.Close() })
			return c
		}
	}
	dial := start("CN")
	alice := dial("alice", "")
	require.Eventually(t, func() bool { return alice.Set(t.Context(), "alice:k", "v", 0).Err() == nil }, 20*time.Second,
		10*time.Millisecond)
	require.Equal(t, "alice", alice.Do(t.Context(), "ACL", "WHOAMI").Val())
	require.ErrorContains(t, alice.Set(t.Context(), "bob:k", "v", 0).Err(), "NOPERM")
	require.Equal(t, "default", dial("alice", "open-sesame").Do(t.Context(), "ACL", "WHOAMI").Val(), "AUTH comes later")
	for _, name := range []string{"carol", "nobody"} {
		require.ErrorContains(t, dial(name, "").Ping(t.Context()).Err(), "NOAUTH", name)
		require.Equal(t, "default", dial(name, "open-sesame").Do(t.Context(), "ACL", "WHOAMI").Val(), name)
	}
	one := dial("limited", "").Conn()
	defer one.Close()
	require.NoError(t, one.Ping(t.Context()).Err())
	require.Error(t, dial("limited", "").Ping(t.Context()).Err())
	require.ErrorContains(t, start("off")("alice", "").Ping(t.Context()).Err(), "NOAUTH")
}

// TestSecuredCluster: TLS and a password for clients, mutual TLS and a secret between nodes.
func TestSecuredCluster(t *testing.T) {
	ca := newAuthority(t)
	ca.issue(t, "node")
	ca.issue(t, "client")
	secret := ca.file("secret")
	require.NoError(t, os.WriteFile(secret, []byte("a secret of the cluster\n"), 0o600))
	nodes := launch(t, build(t), 3, "--password", "open sesame", "--cluster-secret-file", secret,
		"--tls-cert", ca.file("node.crt"), "--tls-key", ca.file("node.key"), "--tls-client-ca", ca.file("ca.crt"),
		"--peer-tls-cert", ca.file("node.crt"), "--peer-tls-key", ca.file("node.key"), "--peer-tls-ca", ca.file("ca.crt"))
	ctx := context.Background()
	for i, n := range nodes {
		c := redis.NewClient(&redis.Options{Addr: n.addr, Password: "open sesame", TLSConfig: ca.clientConfig(t, "client")})
		defer c.Close()
		require.Eventually(t, func() bool { return c.Incr(ctx, "fence").Err() == nil }, 20*time.Second, 50*time.Millisecond,
			"%s", n.Output())
		require.Equal(t, int64(i+1), c.IncrBy(ctx, "fence", 0).Val())
	}
	strangers := ca.clientConfig(t, "") // who believes the server
	strangers.Certificates = newStranger(t).clientConfig(t, "client").Certificates
	for what, o := range map[string]redis.Options{
		"a wrong password":       {Password: "guess", TLSConfig: ca.clientConfig(t, "client")},
		"no certificate":         {Password: "open sesame", TLSConfig: ca.clientConfig(t, "")},
		"no TLS":                 {Password: "open sesame"},
		"a certificate of no CA": {Password: "open sesame", TLSConfig: strangers},
	} {
		o.Addr, o.MaxRetries = nodes[0].addr, -1
		c := redis.NewClient(&o)
		require.Error(t, c.Incr(ctx, "fence").Err(), "a client with %s was let in", what)
		require.NoError(t, c.Close())
	}
}

// newStranger has a certificate that the cluster's CA knows nothing of.
func newStranger(t *testing.T) *authority {
	t.Helper()
	a := newAuthority(t)
	a.issue(t, "client")
	return a
}

// reload sends SIGHUP, and waits until the node has read its credentials again.
func (n *node) reload(t *testing.T) {
	t.Helper()
	const read = `msg="credentials read again"`
	before := strings.Count(n.Output(), read)
	require.NoError(t, n.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Count(n.Output(), read) > before }, 10*time.Second,
		5*time.Millisecond, "%s", n.Output())
}

// TestSecretOfOneNode: a secret that was changed on one node alone is known at once, on all nodes, while all
// connections stay; and that it fits again.
func TestSecretOfOneNode(t *testing.T) {
	t.Parallel()
	exe, secrets := build(t), t.TempDir()
	give := func(node, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(secrets, node), []byte(text), 0o600))
	}
	nodes := plan(t, exe, 3, "--cluster-secret-file", filepath.Join(secrets, "{node}"), "--http-addr", "127.0.0.1:0")
	for _, n := range nodes {
		give(n.name, "one\n")
		n.start(t)
	}
	status := func(n *node) (string, int) {
		cmd := exec.Command(exe, "cluster", "status", "--server", n.addr)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	become := func(want int) {
		t.Helper()
		for _, n := range nodes {
			require.Eventually(t, func() bool { _, got := status(n); return got == want }, 60*time.Second, 100*time.Millisecond,
				"%s", n.Output())
		}
	}
	become(0)
	give("n3", "another\n")
	nodes[2].reload(t)
	become(3)
	for _, n := range nodes {
		out, _ := status(n)
		require.Regexp(t, `3 of 3 voters answer, 1 may fail\.\nNot well: n[12] and n3 do not admit each other: .*secret`, out)
	}
	require.Contains(t, nodes[2].Output(), "this node and another member do not admit each other")
	give("n3", "one\n")
	nodes[2].reload(t)
	become(0)
}

// TestUsersOfANode: a user for monitoring reads what monitoring needs, and nothing else; a team's user locks under its
// own names; and a file that is read again without a user ends that user's connections.
func TestUsersOfANode(t *testing.T) {
	const others = "user default off\nuser monitor on >m resetchannels -@all +info +lock.list +raft.status +time\n"
	file, password := filepath.Join(t.TempDir(), "users"), filepath.Join(t.TempDir(), "password")
	write := func(name, text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o600)) }
	write(file, others+"user team on >t ~orders:* &orders:* +@all -@dangerous\n")
	write(password, "m\n")
	addr := freeAddrs(t, 1)[0]
	n := launch(t, build(t), 1, "--acl-file", file, "--http-addr", addr)[0]
	as := func(user, password string) *redis.Conn {
		c := redis.NewClient(&redis.Options{Addr: n.addr, Username: user, Password: password, MaxRetries: -1})
		t.Cleanup(func() { c.Close() })
		return c.Conn()
	}
	team := as("team", "t")
	require.Eventually(t, func() bool { return team.Incr(t.Context(), "orders:fence").Err() == nil }, 20*time.Second,
		10*time.Millisecond)
	get := "return redis.call('get', ARGV[1])"
	require.Equal(t, "1", team.Eval(t.Context(), get, nil, "orders:fence").Val())
	require.ErrorContains(t, team.Eval(t.Context(), get, nil, "invoices:fence").Err(),
		"can't access at least one of the keys")

	for _, tc := range []struct {
		status int
		args   []string
		stderr string
	}{
		{0, []string{"cluster", "status", "--user", "monitor", "--password-file", password}, ""},
		{0, []string{"locks", "--user", "monitor", "--password-file", password}, ""},
		{1, []string{"cluster", "transfer", "--user", "monitor", "--password-file", password}, "NOPERM"},
		{1, []string{"cluster", "status", "--user", "team", "--password", "t"}, "NOPERM"},
		{1, []string{"cluster", "status", "--user", "monitor", "--password", "t"}, "WRONGPASS"},
		{0, []string{"lock", "--user", "team", "--password", "t", "orders:1", "--", "true"}, ""},
		{1, []string{"lock", "--user", "team", "--password", "t", "--wait", "0", "invoices:1", "--", "true"}, "NOPERM"},
	} {
		t.Setenv("HOLDFAST_SERVER", n.addr)
		status, _, stderr := try(t, tc.args...)
		require.Equal(t, tc.status == 0, status == 0, "%q: %d: %s", tc.args, status, stderr)
		require.Contains(t, stderr, tc.stderr, tc.args)
	}

	for path, want := range map[string]int{
		"/metrics": 200, "/api/locks": 200, "/api/members": 200, "/api/history": 403,
		"/": 200,
	} {
		request, err := http.NewRequest(http.MethodGet, "http://"+addr+path, nil)
		require.NoError(t, err)
		request.SetBasicAuth("monitor", "m")
		reply, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, want, reply.StatusCode, path)
	}
	monitor, refused := as("monitor", "m"), 0
	for command := range protocol.Redis().All() {
		switch command.Name {
		case "info", "lock.list", "raft.status", "time":
			continue
		}
		if command.Has(protocol.FlagNoAuth) || len(command.Subcommands) > 0 {
			continue
		}
		words := []any{}
		for word := range strings.SplitSeq(command.Name, "|") {
			words = append(words, word)
		}
		for len(words) < max(command.Arity, -command.Arity) {
			words = append(words, "1")
		}
		if command.Name == "debug" {
			continue // not opened, to nobody
		}
		require.ErrorContains(t, monitor.Do(t.Context(), words...).Err(), "NOPERM", command.Name)
		refused++
	}
	require.Greater(t, refused, 200)

	write(file, others)
	n.reload(t)
	require.Error(t, team.Ping(t.Context()).Err(), "the user is gone")
	require.ErrorContains(t, as("team", "t").Ping(t.Context()).Err(), "WRONGPASS")
	require.NoError(t, monitor.Info(t.Context()).Err(), "the user is as before")
}
