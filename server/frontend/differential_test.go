package frontend

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestDifferential sends the conversations of testdata/differential and testdata/differential_libraries to Redis and to
// this package, and requires the same replies. A conversation is a paragraph of the file, and is sent in one write: a
// line "! text" is quoted bytes, any other line is a command. If the first line is "# password", both servers require a
// password.
func TestDifferential(t *testing.T) {
	text := protocoltest.ReadFile(t, "testdata/differential") + "\n\n" +
		protocoltest.ReadFile(t, "testdata/differential_libraries")
	for _, password := range []string{"", "sesame"} {
		redis := protocoltest.StartRedis(t, "--requirepass", password)
		ours := startTCP(t, Config{Users: asks(password)})
		for i, conversation := range strings.Split(text, "\n\n") {
			if strings.HasPrefix(conversation, "# password") != (password != "") {
				continue
			}
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				lines, sent := conversationBytes(t, conversation)
				want, got := converse(t, "unix", redis, sent), converse(t, "tcp", ours, sent)
				protocoltest.SameLines(t, strings.Join(want, "\n"), strings.Join(got, "\n"))
				require.NotEmpty(t, got, lines)
			})
		}
	}
}

// TestDifferentialUsers is TestDifferential for the conversations of testdata/differential_acl, with the users of
// testdata/users.acl.
func TestDifferentialUsers(t *testing.T) {
	text := protocoltest.ReadFile(t, "testdata/differential_acl")
	rules := protocoltest.ReadFile(t, "testdata/users.acl")
	file := filepath.Join(t.TempDir(), "users.acl")
	_, plain, _ := strings.Cut(rules, "\n") // the first line is a comment, which Redis does not accept
	require.NoError(t, os.WriteFile(file, []byte(plain), 0o600))
	redis := protocoltest.StartRedis(t, "--aclfile", file)
	users := &fileUsers{file: file}
	require.NoError(t, users.Load(""))
	ours := startTCP(t, Config{Users: users})
	for i, conversation := range strings.Split(text, "\n\n") {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			_, sent := conversationBytes(t, conversation)
			want, got := converse(t, "unix", redis, sent), converse(t, "tcp", ours, sent)
			protocoltest.SameLines(t, strings.Join(want, "\n"), strings.Join(got, "\n"))
		})
	}
}

// conversationBytes returns the lines of a conversation without comments, and the bytes that the client sends.
func conversationBytes(t *testing.T, conversation string) (lines []string, sent []byte) {
	for line := range strings.Lines(conversation) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "! "):
			raw, err := strconv.Unquote(line[2:])
			require.NoError(t, err, line)
			sent = append(sent, raw...)
			lines = append(lines, line)
		case line != "":
			sent = append(sent, command(protocoltest.Words(t, line)...)...)
			lines = append(lines, line)
		}
	}
	return lines, sent
}

// converse sends the bytes and an ECHO on a new connection, closes the sending side, and returns all replies.
func converse(t *testing.T, network, addr string, sent []byte) []string {
	nc, err := net.Dial(network, addr)
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Write(append(sent, command("ECHO", "the end")...))
	require.NoError(t, err)
	require.NoError(t, nc.(interface{ CloseWrite() error }).CloseWrite())
	require.NoError(t, nc.SetReadDeadline(time.Now().Add(10*time.Second)))
	// A server that closes a connection with unread input resets it. The replies that arrived before the reset count.
	got, _ := io.ReadAll(nc)
	lines := show(string(got))
	for i, line := range lines {
		lines[i] = different.ReplaceAllString(line, "$1 differs")
	}
	return lines
}

// different matches the fields of the replies to HELLO and ACL LOG that may differ.
var different = regexp.MustCompile(`("version"|"id"|"age-seconds"|"client-info") ("[^"]*"|:\d+)`)

// startTCP serves on a loopback port until the test ends.
func startTCP(t testing.TB, cfg Config) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, cfg, newCluster(), ln)
	return ln.Addr().String()
}

// TestDifferentialBlocking plays the conversations of testdata/differential_blocking, each with several clients, on
// Redis and on this package. After each line, every client must have received the same bytes from both. Two cases
// follow Redis 7.2, and are not compared with 7.0. A client that waits for several keys is served from the first of
// them in the order of the command; 7.0 takes the key that was written first. A timeout that is too large is out of
// range; 7.0 calls it negative.
func TestDifferentialBlocking(t *testing.T) {
	text := protocoltest.ReadFile(t, "testdata/differential_blocking")
	redis := protocoltest.StartRedis(t)
	for _, conversation := range strings.Split(strings.TrimSpace(text), "\n\n") {
		title, _, _ := strings.Cut(conversation, "\n")
		t.Run(title, func(t *testing.T) {
			theirs, ours := newParty(t, "unix", redis), newParty(t, "tcp", startTicking(t))
			theirs.say("d", "FLUSHALL")
			for line := range strings.Lines(conversation) {
				name, command, ok := strings.Cut(strings.TrimSpace(line), "> ")
				if !ok || line[0] == '#' {
					continue
				}
				words := protocoltest.Words(t, command)
				theirs.say(name, words...)
				ours.say(name, words...)
				for _, each := range clientNames {
					least := 0
					if each == name && strings.Contains(command, "0.01") {
						least = 1 // the reply at the timeout
					}
					want := theirs.hear(each, least)
					got := ours.hear(each, len(want))
					if words[0] == "HELLO" && want != "" {
						continue // the versions differ
					}
					require.Equal(t, strings.Join(show(want), "\n"), strings.Join(show(got), "\n"), "%s hears after %s", each, line)
				}
			}
		})
	}
}

// startTicking serves on a loopback port until the test ends, with a cluster that applies due timers every millisecond.
func startTicking(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cl := newCluster()
	go func() {
		for t.Context().Err() == nil {
			cl.tick()
			time.Sleep(time.Millisecond)
		}
	}()
	startOn(t, Config{}, cl, ln)
	return ln.Addr().String()
}

var clientNames = []string{"a", "b", "c", "d"}

// party has a connection to one server for each name in clientNames.
type party struct {
	t       *testing.T
	clients map[string]net.Conn
	after   net.Conn // sends PING only
}

func newParty(t *testing.T, network, addr string) *party {
	p := &party{t: t, clients: map[string]net.Conn{}}
	dial := func() net.Conn {
		nc, err := net.Dial(network, addr)
		require.NoError(t, err)
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	for _, name := range clientNames {
		p.clients[name] = dial()
	}
	p.after = dial()
	return p
}

// say sends a command, and returns when Redis has run it and has written the output to all clients. Redis does both in
// each iteration of its event loop, and it answers the second of two PINGs an iteration after the first. The reply to
// FLUSHALL is dropped.
func (p *party) say(name string, words ...string) {
	_, err := p.clients[name].Write(command(words...))
	require.NoError(p.t, err)
	for range 2 {
		_, err = p.after.Write(command("PING"))
		require.NoError(p.t, err)
		_, err = io.ReadFull(p.after, make([]byte, len("+PONG\r\n")))
		require.NoError(p.t, err)
	}
	if words[0] == "FLUSHALL" {
		p.hear(name, len("+OK\r\n"))
	}
}

// hear returns what a client receives. It waits up to 5 seconds for the first least bytes, and then until nothing has
// arrived for 15 milliseconds.
func (p *party) hear(name string, least int) string {
	nc, got := p.clients[name], make([]byte, 0, 1<<10)
	for {
		patience := 15 * time.Millisecond
		if len(got) < least {
			patience = 5 * time.Second
		}
		nc.SetReadDeadline(time.Now().Add(patience))
		n, err := nc.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		if err != nil {
			return string(got)
		}
	}
}
