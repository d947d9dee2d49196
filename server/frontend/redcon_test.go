package frontend

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast/holdfast/protocol"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/redcon"
)

// TestRedconReadsWhatWeWrite has every conversation's replies read by redcon.
func TestRedconReadsWhatWeWrite(t *testing.T) {
	text, err := os.ReadFile("testdata/differential")
	require.NoError(t, err)
	for conversation := range strings.SplitSeq(string(text), "\n\n") {
		// CLIENT REPLY leaves arrays incomplete, and redcon knows no RESP3.
		if strings.Contains(conversation, "REPLY") || strings.Contains(conversation, "HELLO") {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			s := start(t, Config{}, newCluster())
			c := s.dial()
			_, sent := conversationBytes(t, conversation)
			c.send(sent)
			settle()
			got, _ := c.take()
			replies := 0
			for rest := []byte(got); len(rest) > 0; replies++ {
				n, value := redcon.ReadNextRESP(rest)
				require.Positive(t, n, "redcon cannot read %q", rest)
				require.Equal(t, string(rest[:n]), string(value.Raw))
				rest = rest[n:]
			}
			require.Len(t, show(got), replies)
			s.stop()
		})
	}
}

// FuzzReaders: a request that both redcon and Holdfast's reader accept means the same to both.
func FuzzReaders(f *testing.F) {
	for _, seed := range []string{
		"*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "PING a 'b c' \"d\\n\"\r\n",
		"*0\r\n*-1\r\n\r\nPING\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		theirs, ok := redconCommands(append([]byte(nil), sent...))
		if !ok {
			return
		}
		r := protocol.NewReader(protocol.DefaultLimits())
		for rest := append([]byte(nil), sent...); len(theirs) > 0; {
			words, n, err := r.Next(rest)
			if err != nil {
				// Holdfast's reader may be stricter.
				return
			}
			rest = rest[n:]
			require.Len(t, words, len(theirs[0]), "%q", sent)
			for i, w := range words {
				require.Equal(t, theirs[0][i], string(w), "%q", sent)
			}
			theirs = theirs[1:]
		}
	})
}

// redconCommands are the arrays that redcon finds in b. Without ok there are none, or redcon
// panicked. Inline commands end the comparison, because redcon reads them by other rules.
func redconCommands(b []byte) (commands [][]string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	for len(b) > 0 && b[0] == '*' {
		complete, args, _, rest, err := redcon.ReadNextCommand(b, nil)
		if err != nil || !complete || len(args) == 0 {
			break
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		commands = append(commands, words)
		b = rest
	}
	return commands, len(commands) > 0
}

// TestWhyRedconDoesNotReadRequests keeps the reason for Holdfast's own reader. If a later redcon
// does not panic here, the decision in DESIGN.md can be made again.
func TestWhyRedconDoesNotReadRequests(t *testing.T) {
	const thirtyBytes = "*1\r\n$9223372036854775807\r\nPING\r\n"
	require.Panics(t, func() { redcon.NewReader(strings.NewReader(thirtyBytes)).ReadCommands() })
	_, _, err := protocol.NewReader(protocol.DefaultLimits()).Next([]byte(thirtyBytes))
	require.EqualError(t, err, "ERR Protocol error: invalid bulk length")
}
