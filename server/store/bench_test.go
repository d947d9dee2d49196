package store

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// BenchmarkAppend appends batches of entries of 128 bytes on the disk of TMPDIR. It
// reports entries a second, and the median and the 99th percentile of one append.
func BenchmarkAppend(b *testing.B) {
	for _, kind := range kinds {
		for _, batch := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", kind, batch), func(b *testing.B) {
				s, err := Open(Config{DataDir: b.TempDir(), Name: "n1", LogStore: kind, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(b, err)
				defer func() { _ = s.Close() }()
				data := make([]byte, 128)
				logs := make([]*raft.Log, batch)
				next := uint64(1)
				var took []time.Duration
				for b.Loop() {
					for i := range logs {
						logs[i] = &raft.Log{Index: next, Term: 1, Data: data, AppendedAt: time.Now()}
						next++
					}
					begun := time.Now()
					if err := s.Log.StoreLogs(logs); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begun))
				}
				slices.Sort(took)
				b.ReportMetric(float64(next-1)/b.Elapsed().Seconds(), "entries/s")
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

// BenchmarkOpen opens a folder with a log of 16,384 entries behind a snapshot, as raft leaves it.
func BenchmarkOpen(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			c := Config{DataDir: b.TempDir(), Name: "n1", LogStore: kind}
			s, err := Open(c)
			require.NoError(b, err)
			data := make([]byte, 1024)
			for i := uint64(1); i <= 16384; i += 64 {
				var logs []*raft.Log
				for j := range uint64(64) {
					logs = append(logs, &raft.Log{Index: i + j, Term: 1, Data: data})
				}
				require.NoError(b, s.Log.StoreLogs(logs))
			}
			require.NoError(b, s.Close())
			for b.Loop() {
				s, err := Open(c)
				require.NoError(b, err)
				b.StopTimer()
				require.NoError(b, s.Close())
				b.StartTimer()
			}
		})
	}
}
