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

// TestDifferential sends the same conversations to Redis and to this package, and requires the same
// bytes. Each conversation, a paragraph of testdata/differential or testdata/differential_libraries,
// is sent at once: "! text" as raw text, any other line as a command. If the first line is
// "# password", the server has a password.
func TestDifferential(t *testing.T) {
	text, err := os.ReadFile("testdata/differential")
	require.NoError(t, err)
	libraries, err := os.ReadFile("testdata/differential_libraries")
	require.NoError(t, err)
	text = append(append(text, "\n\n"...), libraries...)
	for _, password := range []string{"", "sesame"} {
		redis := protocoltest.StartRedis(t, "--requirepass", password)
		ours := startTCP(t, Config{Users: asks(password)})
		for i, conversation := range strings.Split(string(text), "\n\n") {
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

// TestDifferentialUsers is TestDifferential with the users of testdata/users.acl.
func TestDifferentialUsers(t *testing.T) {
	text, err := os.ReadFile("testdata/differential_acl")
	require.NoError(t, err)
	rules, err := os.ReadFile("testdata/users.acl")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "users.acl")
	_, plain, _ := strings.Cut(string(rules), "\n") // Redis knows no notes
	require.NoError(t, os.WriteFile(file, []byte(plain), 0o600))
	redis := protocoltest.StartRedis(t, "--aclfile", file)
	users := &fileUsers{file: file}
	require.NoError(t, users.Load(""))
	ours := startTCP(t, Config{Users: users})
	for i, conversation := range strings.Split(string(text), "\n\n") {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			_, sent := conversationBytes(t, conversation)
			want, got := converse(t, "unix", redis, sent), converse(t, "tcp", ours, sent)
			protocoltest.SameLines(t, strings.Join(want, "\n"), strings.Join(got, "\n"))
		})
	}
}

// conversationBytes is a client's input in a conversation.
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

// converse sends everything, and returns all replies.
func converse(t *testing.T, network, addr string, sent []byte) []string {
	nc, err := net.Dial(network, addr)
	require.NoError(t, err)
	defer nc.Close()
	_, err = nc.Write(append(sent, command("ECHO", "the end")...))
	require.NoError(t, err)
	require.NoError(t, nc.(interface{ CloseWrite() error }).CloseWrite())
	require.NoError(t, nc.SetReadDeadline(time.Now().Add(10*time.Second)))
	// A server that closes with bytes unread resets the connection, so replies that arrived before
	// count.
	got, _ := io.ReadAll(nc)
	lines := show(string(got))
	for i, line := range lines {
		lines[i] = different.ReplaceAllString(line, "$1 differs")
	}
	return lines
}

// different are the places where the two may differ: in the replies to HELLO and ACL LOG.
var different = regexp.MustCompile(`("version"|"id"|"age-seconds"|"client-info") ("[^"]*"|:\d+)`)

// startTCP serves on a loopback port until the test ends.
func startTCP(t testing.TB, cfg Config) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, cfg, newCluster(), ln)
	return ln.Addr().String()
}
