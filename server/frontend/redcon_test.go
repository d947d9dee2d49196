package frontend

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/redcon"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestRedconReadsWhatWeWrite shows that redcon can parse the replies to every conversation of TestDifferential.
func TestRedconReadsWhatWeWrite(t *testing.T) {
	text := protocoltest.ReadFile(t, "testdata/differential")
	for conversation := range strings.SplitSeq(text, "\n\n") {
		// CLIENT REPLY leaves arrays incomplete, and redcon does not support RESP3.
		if strings.Contains(conversation, "REPLY") || strings.Contains(conversation, "HELLO") {
			continue
		}
		inBubble(t, Config{}, func(t *testing.T, s *testServer) {
			c := s.dial()
			_, sent := conversationBytes(t, conversation)
			c.deliver(sent)
			got, _ := c.take()
			replies := 0
			for rest := []byte(got); len(rest) > 0; replies++ {
				n, value := redcon.ReadNextRESP(rest)
				require.Positive(t, n, "redcon cannot read %q", rest)
				require.Equal(t, string(rest[:n]), string(value.Raw))
				rest = rest[n:]
			}
			require.Len(t, show(got), replies)
		})
	}
}

// TestWhyRedconDoesNotReadRequests shows why Holdfast does not parse requests with redcon: redcon panics on this one.
// If a later redcon does not, the decision in DESIGN.md can be revised.
func TestWhyRedconDoesNotReadRequests(t *testing.T) {
	const thirtyBytes = "*1\r\n$9223372036854775807\r\nPING\r\n"
	require.Panics(t, func() { redcon.NewReader(strings.NewReader(thirtyBytes)).ReadCommands() })
	_, _, err := protocol.NewReader(protocol.DefaultLimits()).Next([]byte(thirtyBytes))
	require.EqualError(t, err, "ERR Protocol error: invalid bulk length")
}

// FuzzConnection sends bytes in two pieces. It requires that nothing panics, that all output is RESP, and that the
// connection can be ended.
func FuzzConnection(f *testing.F) {
	for _, seed := range []string{
		"PING\r\n", "*1\r\n$4\r\nPING\r\n", "*0\r\n*-1\r\n\r\n", "*1\r\n$9223372036854775807\r\n",
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
		"MULTI\r\nSET k v\r\nPING\r\nSELECT 3\r\nHELLO 3\r\nCLIENT REPLY SKIP\r\nGET k\r\nEXEC\r\nGET k\r\n",
		"WATCH a b a\r\nMULTI\r\nGET a\r\nEXEC\r\nUNWATCH\r\nDISCARD\r\nRESET\r\n",
		"CLIENT LIST\r\nCLIENT KILL ID 1\r\nCLIENT INFO\r\nINFO all\r\nCOMMAND\r\nCOMMAND DOCS\r\nCONFIG GET " +
			"*\r\nROLE\r\nLOLWUT\r\n",
		"CLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\nQUIT\r\n", "EVAL \"return 1\" 0\r\nSCRIPT LOAD 'x'\r\n",
		"HELLO 3 AUTH default x SETNAME y\r\n",
		"SUBSCRIBE a b\r\nPSUBSCRIBE *\r\nSSUBSCRIBE a\r\nPING\r\nGET " +
			"k\r\nUNSUBSCRIBE\r\nPUNSUBSCRIBE\r\nSUNSUBSCRIBE\r\nGET k\r\nQUIT\r\n",
		"HELLO 3\r\nSUBSCRIBE a\r\nPSUBSCRIBE [a\r\nPUBLISH a x\r\nSPUBLISH a y\r\nCLIENT INFO\r\nPUBSUB CHANNELS " +
			"[\r\nHELLO 2\r\nGET k\r\nRESET\r\nGET k\r\n",
		"MULTI\r\nSUBSCRIBE a\r\nPUBLISH a x\r\nPING\r\nSSUBSCRIBE b\r\nUNSUBSCRIBE\r\nEXEC\r\nPUBSUB NUMSUB a\r\nCLIENT " +
			"KILL TYPE pubsub\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "WAIT 0 1\r\nWAITAOF 1 0 1\r\nDEBUG PROTOCOL map\r\n",
		"SET k \"\\x00\\xff\"\r\nCOPY k l\r\n",
	} {
		f.Add([]byte(seed), uint16(len(seed)/2), false)
		f.Add([]byte(seed), uint16(3), true)
	}
	f.Fuzz(func(t *testing.T, sent []byte, cut uint16, password bool) {
		cfg := Config{
			Limits: Limits{
				MaxArgs: 64, MaxBulkBytes: 4096, MaxKeyBytes: 64, MaxValueBytes: 1024, MaxQueryBytes: 16 << 10,
				MaxPipeline: 16,
			},
			Options: Options{Debug: true},
			Logger:  slog.New(failOnPanic{t}),
		}
		if password {
			cfg.Users = asks("sesame")
		}
		cl := newCluster()
		cfg.Hub = cl.hub
		s := New(cfg, cl)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		theirs, ours := net.Pipe()
		done := make(chan struct{})
		go func() { defer close(done); s.serveOne(ctx, theirs) }()
		replies := make(chan []byte)
		go func() { all, _ := io.ReadAll(ours); replies <- all }()
		at := min(int(cut), len(sent))
		for _, piece := range [][]byte{sent[:at], sent[at:]} {
			if _, err := ours.Write(piece); err != nil {
				break
			}
		}
		// A retired connection ends after its running command. WAIT and DEBUG SLEEP then end, too.
		for _, c := range s.clients() {
			c.retire()
		}
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			require.Fail(t, "the connection did not end")
		}
		require.Empty(t, s.clients())
		require.Zero(t, s.cfg.Hub.Clients())
		for _, line := range show(string(<-replies)) {
			require.NotContains(t, line, `broken "`, "%q", sent)
		}
	})
}
