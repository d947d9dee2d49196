package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// reload sends SIGHUP, and waits until the node has read its credentials again.
func (n *node) reload(t *testing.T) {
	t.Helper()
	const read = `msg="credentials read again"`
	before := strings.Count(n.Output(), read)
	require.NoError(t, n.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Count(n.Output(), read) > before }, 10*time.Second,
		5*time.Millisecond, "%s", n.Output())
}

// TestHangupReadsCredentialsAgain: SIGHUP does not end a node, and what is connected stays.
func TestHangupReadsCredentialsAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	give := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	give("one\n")
	n := launch(t, build(t), 1, "--password-file", file)[0]
	dial := func(password string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: n.addr, Password: password, MaxRetries: -1})
		t.Cleanup(func() { c.Close() })
		return c
	}
	connected := dial("one").Conn()
	defer connected.Close()
	require.Eventually(t, func() bool { return connected.Set(t.Context(), "k", "v", 0).Err() == nil }, 20*time.Second,
		10*time.Millisecond)
	id := connected.ClientID(t.Context()).Val()
	give("two\n")
	n.reload(t)
	require.NoError(t, dial("two").Get(t.Context(), "k").Err())
	require.ErrorContains(t, dial("one").Get(t.Context(), "k").Err(), "WRONGPASS")
	require.Equal(t, id, connected.ClientID(t.Context()).Val(), "the connection was cut off")
	give("")
	require.NoError(t, n.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Contains(n.Output(), "credentials not taken") },
		10*time.Second, 5*time.Millisecond)
	require.NoError(t, dial("two").Get(t.Context(), "k").Err())
	n.stop(t)
	require.Equal(t, 0, n.ExitCode())
}

// gate passes on the connections to an address, and cuts them off when told.
type gate struct {
	ln net.Listener
	mu sync.Mutex
	on []net.Conn
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{ln: ln}
	t.Cleanup(func() { ln.Close(); g.cut() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			g.mu.Lock()
			g.on = append(g.on, in, out)
			g.mu.Unlock()
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					in.Close()
					out.Close()
				}()
			}
		}
	}()
	return g
}

func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.on {
		c.Close()
	}
	g.on = nil
}

// credentialFiles are published as Kubernetes does: all at once, by a link.
type credentialFiles struct {
	dir     string
	version int
	files   map[string]string
}

func (c *credentialFiles) publish(t *testing.T, changes map[string]string) {
	t.Helper()
	c.version++
	name := fmt.Sprint("v", c.version)
	require.NoError(t, os.MkdirAll(filepath.Join(c.dir, name), 0o700))
	for file, text := range changes {
		c.files[file] = text
	}
	for file, text := range c.files {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name, file), []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink(name, filepath.Join(c.dir, "next")))
	require.NoError(t, os.Rename(filepath.Join(c.dir, "next"), filepath.Join(c.dir, "now")))
}

// pair is a new certificate of a, with its key.
func (a *authority) pair(t *testing.T, name string) (cert, key string) {
	t.Helper()
	a.issue(t, name)
	return a.text(t, name+".crt"), a.text(t, name+".key")
}

func (a *authority) text(t *testing.T, file string) string {
	t.Helper()
	text := protocoltest.ReadFile(t, a.file(file))
	return text
}

// drill is a cluster whose credentials are replaced while clients work.
type drill struct {
	nodes []*node
	files []*credentialFiles
	gates []*gate
	// client is how clients connect now.
	client atomic.Pointer[redis.Options]
	done   []*atomic.Int64 // what each client did
	failed atomic.Pointer[string]
}

// work takes turns until ctx ends; a client that is refused once, or cut off, fails the drill.
func (d *drill) work(ctx context.Context, what string, turn func() error) (done *sync.WaitGroup) {
	count := new(atomic.Int64)
	d.done = append(d.done, count)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := turn(); err != nil && ctx.Err() == nil {
				text := fmt.Sprintf("%s: %v", what, err)
				d.failed.CompareAndSwap(nil, &text)
			}
			count.Add(1)
		}
	})
	return &wg
}

// options are what a client needs to connect to n.
func (d *drill) options(n *node) *redis.Options {
	o := *d.client.Load()
	o.Addr, o.MaxRetries, o.ReadTimeout = n.addr, -1, 10*time.Second
	return &o
}

// step changes the files of one node after the other. Each time all links between nodes are made anew.
func (d *drill) step(t *testing.T, changes func(node string) map[string]string) {
	t.Helper()
	const read = `msg="credentials read again"`
	for i, n := range d.nodes {
		before := strings.Count(n.Output(), read)
		d.files[i].publish(t, changes(n.name))
		if i < 2 {
			n.reload(t)
		}
		require.Eventually(t, func() bool { return strings.Count(n.Output(), read) > before }, 20*time.Second,
			5*time.Millisecond, "%s", n.Output())
		for _, g := range d.gates {
			g.cut()
		}
		d.goOn(t)
	}
}

// goOn waits until all clients have done something more.
func (d *drill) goOn(t *testing.T) {
	t.Helper()
	for _, count := range d.done {
		want := count.Load() + 2
		require.Eventually(t, func() bool { return count.Load() >= want || d.failed.Load() != nil }, 20*time.Second,
			time.Millisecond)
	}
	if why := d.failed.Load(); why != nil {
		t.Fatal(*why)
	}
}

// TestRotationDrill replaces the password, the cluster secret, all certificates and their authority, while clients
// that stay connected and clients that come anew work on all nodes, without an error.
func TestRotationDrill(t *testing.T) {
	t.Parallel()
	older, newer := newAuthority(t), newAuthority(t)
	roots := func(authorities ...*authority) *x509.CertPool {
		p := x509.NewCertPool()
		for _, a := range authorities {
			p.AddCert(a.Certificate.Certificate)
		}
		return p
	}
	bundle := func(authorities ...*authority) (text string) {
		for _, a := range authorities {
			text += a.text(t, "ca.crt")
		}
		return text
	}
	d, ctx := new(drill), t.Context()
	credentials := t.TempDir()
	at := func(file string) string { return filepath.Join(credentials, "{node}", "now", file) }
	d.nodes = plan(t, build(t), 3, "--password-file", at("password"), "--cluster-secret-file", at("secret"),
		"--tls-cert", at("crt"), "--tls-key", at("key"), "--tls-client-ca", at("ca"),
		"--peer-tls-cert", at("crt"), "--peer-tls-key", at("key"), "--peer-tls-ca", at("ca"))
	var detours []string
	for _, n := range d.nodes {
		peer := n.args[slices.Index(n.args, "--peer-addr")+1]
		g := newGate(t, peer)
		d.gates, detours = append(d.gates, g), append(detours, peer+"="+g.ln.Addr().String())
	}
	from := func(a *authority, more map[string]string) func(string) map[string]string {
		return func(node string) map[string]string {
			files := map[string]string{}
			if a != nil {
				files["crt"], files["key"] = a.pair(t, node)
			}
			for name, text := range more {
				files[name] = text
			}
			return files
		}
	}
	for _, n := range d.nodes {
		c := &credentialFiles{dir: filepath.Join(credentials, n.name), files: map[string]string{}}
		c.publish(t, from(older, map[string]string{"password": "p1\n", "secret": "s1\n", "ca": bundle(older)})(n.name))
		d.files = append(d.files, c)
		n.args = append(n.args, "--debug", "--debug-peer-dial", strings.Join(detours, ","))
		n.start(t)
	}
	connect := func(password string, a *authority, trusted ...*authority) {
		a.issue(t, "client")
		d.client.Store(&redis.Options{Password: password, TLSConfig: &tls.Config{
			RootCAs: roots(trusted...), MinVersion: tls.VersionTLS12, Certificates: a.clientConfig(t, "client").Certificates,
		}})
	}
	connect("p1", older, older)
	first := d.client.Load()

	ctx, cancel := context.WithCancel(ctx)
	var ended []*sync.WaitGroup
	identities := map[*redis.Conn]int64{}
	for _, n := range d.nodes {
		c := redis.NewClient(d.options(n))
		defer c.Close()
		require.Eventually(t, func() bool { return c.Incr(ctx, "fence").Err() == nil }, 30*time.Second, 20*time.Millisecond,
			"%s", n.Output())
		stays := c.Conn()
		defer stays.Close()
		identities[stays] = stays.ClientID(ctx).Val()
		ended = append(ended,
			d.work(ctx, "connected to "+n.name, func() error { return stays.Incr(ctx, "fence").Err() }),
			d.work(ctx, "new at "+n.name, func() error {
				c := redis.NewClient(d.options(n))
				defer c.Close()
				return c.Incr(ctx, "fence").Err()
			}))
	}
	d.goOn(t)

	d.step(t, from(nil, map[string]string{"password": "p1\np2\n", "secret": "s1\ns2\n", "ca": bundle(older, newer)}))
	connect("p2", older, older, newer)
	d.goOn(t) // the last client that knows the older authority alone is through
	d.step(t, from(newer, map[string]string{"password": "p2\np1\n", "secret": "s2\ns1\n"}))
	connect("p2", newer, older, newer)
	d.goOn(t) // the last client that came with the older certificate is through
	d.step(t, from(nil, map[string]string{"password": "p2\n", "secret": "s2\n", "ca": bundle(newer)}))
	connect("p2", newer, newer)
	d.goOn(t)

	cancel()
	for _, wg := range ended {
		wg.Wait()
	}
	for stays, id := range identities {
		require.Equal(t, id, stays.ClientID(t.Context()).Val(), "a connection was cut off")
	}
	for _, n := range d.nodes {
		for what, change := range map[string]func(*redis.Options){
			"the old password":    func(o *redis.Options) { o.Password = first.Password },
			"the old certificate": func(o *redis.Options) { o.TLSConfig.Certificates = first.TLSConfig.Certificates },
			"the old authority":   func(o *redis.Options) { o.TLSConfig.RootCAs = first.TLSConfig.RootCAs },
		} {
			o := d.options(n)
			o.TLSConfig = o.TLSConfig.Clone()
			change(o)
			c := redis.NewClient(o)
			require.Error(t, c.Ping(t.Context()).Err(), "%s still works on %s", what, n.name)
			require.NoError(t, c.Close())
		}
		// Before the first rotation a node refuses others until the cluster is founded.
		_, said, _ := strings.Cut(n.Output(), "credentials read again")
		require.NotContains(t, said, "credentials not taken")
		// The gates cut links off in the middle of their handshakes too: a refusal over credentials says something else.
		cutOff := regexp.MustCompile(
			`.*refused a connection on the peer port.*(EOF|reset by peer|broken pipe|fell silent after).*`)
		said = cutOff.ReplaceAllString(said, "")
		require.NotContains(t, said, "refused a connection on the peer port")
	}
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
