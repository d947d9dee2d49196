package frontend

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
)

// instant is a backend that replies to every batch at once, with the prepared replies.
type instant struct {
	*cluster
	replies []protocol.Value
}

func (i *instant) Execute(u *replica.Batch) error {
	u.Replies = i.replies[:u.Count]
	return nil
}

// roundTrips returns a function that sends a pipeline over loopback and waits for its replies.
func roundTrips(t testing.TB, pipeline []byte, commands int) (roundTrip func()) {
	backend := &instant{cluster: newCluster()}
	for range commands {
		backend.replies = append(backend.replies, protocol.OK)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go New(Config{}, backend).Serve(t.Context(), ln)
	nc, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	got := make([]byte, commands*len("+OK\r\n"))
	return func() {
		if _, err := nc.Write(pipeline); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(nc, got); err != nil {
			t.Error(err)
		}
	}
}

// acquire returns a LOCK.ACQUIRE with WAIT.
func acquire() []byte {
	return command("LOCK.ACQUIRE", "lock:1234567890", "0123456789abcdef0123456789abcdef", "PX", "30000", "WAIT", "5000")
}

// TestNoAllocations shows that in steady state the server allocates no memory for a command, for a pipeline, or for a
// request for a lock that may wait and is granted at once.
func TestNoAllocations(t *testing.T) {
	if protocoltest.Raced {
		t.Skip("the race detector makes pools forget")
	}
	for name, pipeline := range map[string][]byte{
		"a command": sets(1), "a pipeline": sets(1000),
		"a request for a lock": acquire(),
	} {
		roundTrip := roundTrips(t, pipeline, bytes.Count(pipeline, []byte("*")))
		roundTrip()
		// The garbage collector may empty a pool during the runs, so an average below two allocations is allowed.
		require.Less(t, testing.AllocsPerRun(500, roundTrip), 2.0, name)
	}
}

func benchmark(b *testing.B, pipeline []byte, commands int) {
	roundTrip := roundTrips(b, pipeline, commands)
	b.ReportAllocs()
	for b.Loop() {
		roundTrip()
	}
	b.ReportMetric(float64(commands)*float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

func BenchmarkOneCommand(b *testing.B) {
	benchmark(b, command("SET", "lock:1234567890", "0123456789abcdef0123456789abcdef", "NX", "PX", "30000"), 1)
}

func BenchmarkAcquire(b *testing.B) { benchmark(b, acquire(), 1) }

func BenchmarkPipeline(b *testing.B) { benchmark(b, sets(1000), 1000) }
