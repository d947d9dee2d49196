package fsm

import (
	"fmt"
	"math/rand"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// workload generates the commands of a benchmark, beside n keys of others.
type workload struct {
	name string
	fill func(d *driver, n int)
	// next appends command number i; each takes a millisecond of cluster time.
	next func(body []byte, rng *rand.Rand, i, n int) []byte
}

func fillLocks(d *driver, n int) { d.fill("lock:", n, 1<<40) }

func anyLock(rng *rand.Rand, n int) string { return "lock:" + strconv.Itoa(rng.Intn(n)) }

var workloads = []workload{
	{"fresh", func(*driver, int) {}, func(body []byte, _ *rand.Rand, i, n int) []byte {
		// The key ends after n more commands, so there are always n keys.
		return requestFrom(body, 0, 5, "set", "fresh:"+strconv.Itoa(i), "0123456789abcdef", "NX", "PX", strconv.Itoa(n))
	}},
	{"taken", fillLocks, func(body []byte, rng *rand.Rand, _, n int) []byte {
		return protocoltest.AppendRequest(body, 0, "set", anyLock(rng, n), "0123456789abcdef", "NX", "PX", "30000")
	}},
	{"renew", fillLocks, func(body []byte, rng *rand.Rand, _, n int) []byte {
		return protocoltest.AppendRequest(body, 0, "pexpire", anyLock(rng, n), "1000000000")
	}},
	{"replace", fillLocks, func(body []byte, rng *rand.Rand, _, n int) []byte {
		return protocoltest.AppendRequest(body, 0, "set", anyLock(rng, n), "0123456789abcdef", "PX", "1000000000")
	}},
	{"acquire-release", fillLocks, func(body []byte, _ *rand.Rand, i, _ int) []byte {
		key := "mine:" + strconv.Itoa(i/2*7919%1_000_003)
		if i%2 == 1 {
			return protocoltest.AppendRequest(body, 0, "delifeq", key, "0123456789abcdef")
		}
		return protocoltest.AppendRequest(body, 0, "set", key, "0123456789abcdef", "NX", "PX", "30000")
	}},
	{"incr", fillLocks, func(body []byte, rng *rand.Rand, _, n int) []byte {
		return protocoltest.AppendRequest(body, 0, "incr", "fence:"+strconv.Itoa(rng.Intn(n)))
	}},
	{"get", fillLocks, func(body []byte, rng *rand.Rand, _, n int) []byte {
		return protocoltest.AppendRequest(body, 0, "get", anyLock(rng, n))
	}},
}

// entries returns count commands, from number first on, in entries of size commands and batches of up to 16. It
// advances the driver.
func (w *workload) entries(d *driver, first, count, size, n int) (entries [][]byte) {
	rng := rand.New(rand.NewSource(int64(first)))
	var body []byte
	for i := first; i < first+count; i += size {
		d.nowMillis += int64(size)
		entry := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		for j := 0; j < size; {
			body = body[:0]
			for stop := min(j+16, size); j < stop; j++ {
				body = w.next(body, rng, i+j, n)
			}
			d.seq++
			entry.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, d.seq, d.seq, body)
		}
		entries = append(entries, entry.Bytes())
	}
	return entries
}

// BenchmarkPipeline measures an applied command without the cost of making the entry. cpu-ns/op is the CPU time of the
// process, including garbage collection, and is more precise than ns/op on a shared machine.
func BenchmarkPipeline(b *testing.B) {
	for _, w := range workloads {
		for _, n := range []int{10, 1000, 1_000_000} {
			var d *driver
			done := 0
			for _, size := range []int{1, 16, 64, 1000} {
				b.Run(fmt.Sprintf("%s/keys=%d/entry=%d", w.name, n, size), func(b *testing.B) {
					if d == nil { // otherwise a previous size has filled it
						d = newDriver(b)
						w.fill(d, n)
						if w.name == "fresh" {
							for _, entry := range w.entries(d, 0, n, 1000, n) {
								require.NoError(b, d.m.Apply(entry, new(lastReply)))
							}
							done = max(n, 1000)
						}
					}
					entries := w.entries(d, done, b.N, size, n)
					done += len(entries) * size
					b.ReportAllocs()
					b.ResetTimer()
					before := cpuNanos()
					for _, entry := range entries {
						if err := d.m.Apply(entry, new(lastReply)); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(cpuNanos()-before)/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}
