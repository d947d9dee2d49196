package fsm

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkNative is [BenchmarkAcquireRelease] by native locks: pairs, and hand-offs, each a release and a request
// that stands in line, with 64 clients.
func BenchmarkNative(b *testing.B) {
	native := func(conn, ticket int, line string) []byte {
		words := append([]string{"native", strconv.Itoa(conn), strconv.Itoa(ticket), "2000"}, strings.Fields(line)...)
		return request(nil, 0, words...)
	}
	run := func(b *testing.B, d *driver, entries func(i int) [][][]byte) {
		seq := d.seq
		sink := new(lastReply)
		b.ReportAllocs()
		b.ResetTimer()
		began := cpuNanos()
		for i := 0; i < b.N; i += 64 {
			for _, bodies := range entries(i) {
				if err := d.m.Apply(entryOf(&seq, d.nowMillis, bodies...), sink); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.StopTimer()
		b.ReportMetric(float64(cpuNanos()-began)/float64(b.N), "cpu-ns/op")
		require.False(b, sink.reply.IsError() || sink.reply.IsNull(), line(sink.reply))
	}
	for name, prefix := range map[string]string{"pair": "", "pair beside 100,000 locks": "lock:"} {
		b.Run(name, func(b *testing.B) {
			d := newDriver(b)
			if prefix == "lock:" {
				for i := range 100_000 {
					d.apply(native(1, 0, "lock.acquire other:"+strconv.Itoa(i)+" me px 100000000"))
				}
			}
			turns := make([][][]byte, 2)
			for i := range 64 {
				turns[0] = append(turns[0], native(i+1, 10+i, "lock.acquire mine:"+strconv.Itoa(i)+" token px 30000 wait 4500"))
				turns[1] = append(turns[1], native(i+1, 0, "lock.release mine:"+strconv.Itoa(i)+" token"))
			}
			run(b, d, func(int) [][][]byte { return turns })
		})
	}
	b.Run("hand-off", func(b *testing.B) {
		d := newDriver(b)
		var release [64][]byte
		for i := range 64 {
			d.apply(native(i+1, i+1, "lock.acquire hot o"+strconv.Itoa(i)+" px 30000 wait 0"))
			release[i] = native(i+1, 0, "lock.release hot o"+strconv.Itoa(i))
		}
		ticket := 64
		bodies := make([][]byte, 128)
		run(b, d, func(int) [][][]byte {
			for i := range 64 {
				ticket++
				bodies[2*i] = release[i]
				bodies[2*i+1] = native(i+1, ticket, "lock.acquire hot o"+strconv.Itoa(i)+" px 30000 wait 0")
			}
			return [][][]byte{bodies}
		})
	})
}
