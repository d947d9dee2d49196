package frontend

import (
	"bytes"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestDifferentialPubSub plays the conversations of testdata/differential_pubsub with Redis and with this package, in
// RESP2 and in RESP3, and requires that each client receives the same bytes after each command. A conversation is a
// paragraph of lines "client> command". After "client>> command" the client sends its next command before it reads.
func TestDifferentialPubSub(t *testing.T) { differ(t, "testdata/differential_pubsub") }

// TestDifferentialEvents is the same for keyspace events, TestDifferentialTracking for CLIENT TRACKING, and
// TestDifferentialMonitor for MONITOR.
func TestDifferentialEvents(t *testing.T)   { differ(t, "testdata/differential_events") }
func TestDifferentialTracking(t *testing.T) { differ(t, "testdata/differential_tracking") }
func TestDifferentialMonitor(t *testing.T)  { differ(t, "testdata/differential_monitor") }

// differ plays the conversations of a file, and compares the two servers.
func differ(t *testing.T, file string) {
	text := protocoltest.ReadFile(t, file)
	redis := protocoltest.StartRedis(t)
	cl := newCluster()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, Config{}, cl, ln)
	for conversation := range strings.SplitSeq(text, "\n\n") {
		for _, resp := range []string{"2", "3"} {
			name, _, _ := strings.Cut(strings.TrimPrefix(conversation, "# "), "\n")
			t.Run(name+" RESP"+resp, func(t *testing.T) {
				want := &talk{t: t, network: "unix", addr: redis}
				got := &talk{t: t, network: "tcp", addr: ln.Addr().String(), settle: cl.settle}
				protocoltest.SameLines(t, want.play(conversation, resp), got.play(conversation, resp))
			})
		}
	}
}

// talk is a conversation of several clients with a server.
type talk struct {
	t             *testing.T
	network, addr string
	settle        func() // waits until our server has posted its messages
	names         []string
	clients       map[string]net.Conn
	busy          map[string]bool // sends its next command before it reads
}

func (k *talk) play(conversation, resp string) string {
	k.clients, k.busy = make(map[string]net.Conn), make(map[string]bool)
	defer func() {
		for _, nc := range k.clients {
			nc.Close()
		}
	}()
	var out strings.Builder
	for line := range strings.Lines(conversation) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, text, _ := strings.Cut(line, "> ")
		name, more := strings.CutSuffix(name, ">")
		out.WriteString(line + "\n")
		_, err := k.client(name, resp).Write(command(protocoltest.Words(k.t, text)...))
		require.NoError(k.t, err)
		if k.busy[name] = more; more {
			continue
		}
		// The sender reads first, since others may receive its messages later.
		out.WriteString(k.hear(name))
		for _, other := range k.names {
			if other != name && !k.busy[other] {
				out.WriteString(k.hear(other))
			}
		}
	}
	return out.String()
}

func (k *talk) client(name, resp string) net.Conn {
	if k.clients[name] == nil {
		nc, err := net.Dial(k.network, k.addr)
		require.NoError(k.t, err)
		require.NoError(k.t, nc.SetDeadline(time.Now().Add(10*time.Second)))
		k.clients[name], k.names = nc, append(k.names, name)
		if resp == "3" {
			_, err := nc.Write(command("HELLO", "3"))
			require.NoError(k.t, err)
			k.hear(name)
		}
	}
	return k.clients[name]
}

// monitored and sender match the times and addresses in lines of MONITOR, which differ.
var (
	monitored = regexp.MustCompile(`^\+\d+\.\d{6} \[(\d+) `)
	sender    = regexp.MustCompile(`^(\+time \[\d+) (?:unix|127)\S+\]`)
)

// fence is the end of the reply to the PING that hear sends, also in subscribe mode.
const fence = "$7\r\nthe end\r\n"

// hear returns what a client has received up to the reply to a PING. Our server has then posted all its messages.
func (k *talk) hear(name string) string {
	nc := k.clients[name]
	var got []byte
	ping := func() {
		_, err := nc.Write(command("PING", "the end"))
		require.NoError(k.t, err)
		for !bytes.Contains(got, []byte(fence)) { // a message may follow
			b := make([]byte, 4096)
			n, err := nc.Read(b)
			require.NoError(k.t, err)
			got = append(got, b[:n]...)
		}
		got = bytes.Replace(got, []byte("*2\r\n$4\r\npong\r\n"+fence), nil, 1)
		got = bytes.Replace(got, []byte(fence), nil, 1)
	}
	ping()
	if k.settle != nil {
		// The command has been executed, but the hub may still have its messages.
		k.settle()
		ping()
	}
	var lines string
	for _, line := range show(string(got)) {
		if strings.HasSuffix(line, `"PING" "the end"`) {
			continue // a monitor receives a line for each PING above
		}
		line = monitored.ReplaceAllString(line, "+time [$1 ")
		line = sender.ReplaceAllString(line, "$1 address]")
		lines += "    " + name + ": " + different.ReplaceAllString(line, "$1 differs") + "\n"
	}
	return lines
}

// TestMessagesOfRESP3 shows that the messages that a client causes for itself follow the reply, as in Redis since 7.2.
// The other tests compare with Redis 7.0, which differs.
func TestMessagesOfRESP3(t *testing.T) {
	want := protocol.Push(protocol.Bulk("message"), protocol.Bulk("a"), protocol.Bulk("x")).AppendTo(nil, protocol.RESP3)
	cl := newCluster()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, Config{}, cl, ln)
	nc, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = nc.Write(bytes.Join([][]byte{command("HELLO", "3"), command("SUBSCRIBE", "a"), command("PUBLISH", "a", "x")},
		nil))
	require.NoError(t, err)
	var got []byte
	for !bytes.HasSuffix(got, want) {
		b := make([]byte, 4096)
		n, err := nc.Read(b)
		require.NoError(t, err)
		got = append(got, b[:n]...)
	}
	require.Contains(t, string(got), "subscribe\r\n$1\r\na\r\n:1\r\n:1\r\n"+string(want))
}
