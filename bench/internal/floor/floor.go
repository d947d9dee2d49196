// Package floor measures a disk and a loopback socket alone: no server with durable writes can answer faster than the
// sum of these waits.
package floor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Floors are medians.
type Floors struct {
	// AppendSyncMicros is the time to append 128 bytes to a file and call fdatasync.
	AppendSyncMicros float64 `json:"append_fdatasync_us"`
	// OverwriteSyncMicros is the time to write 128 bytes into preallocated space and call fdatasync.
	OverwriteSyncMicros float64 `json:"overwrite_fdatasync_us"`
	// RoundTripMicros is the time of 64 bytes over a loopback TCP connection and back.
	RoundTripMicros float64 `json:"round_trip_us"`
}

const (
	syncs      = 300
	roundTrips = 3000
	recordSize = 128
)

// Measure takes about half a second, with files in dir.
func Measure(dir string) (Floors, error) {
	appended, err := syncMicros(dir, 0)
	overwritten, overwriteErr := syncMicros(dir, syncs*recordSize)
	trip, tripErr := roundTripMicros()
	f := Floors{AppendSyncMicros: appended, OverwriteSyncMicros: overwritten, RoundTripMicros: trip}
	return f, errors.Join(err, overwriteErr, tripErr)
}

func syncMicros(dir string, preallocate int) (micros float64, err error) {
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		return 0, fmt.Errorf("measure the disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.WriteAt(make([]byte, preallocate), 0); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	record := make([]byte, recordSize)
	return medianMicros(syncs, func(i int) error {
		if _, err := f.WriteAt(record, int64(i*recordSize)); err != nil {
			return err
		}
		return fdatasync(f)
	})
}

func roundTripMicros() (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	message := make([]byte, 64)
	return medianMicros(roundTrips, func(int) error {
		if _, err := c.Write(message); err != nil {
			return err
		}
		_, err := io.ReadFull(c, message)
		return err
	})
}

func medianMicros(n int, do func(i int) error) (float64, error) {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := do(i); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return float64(took[n/2].Nanoseconds()) / 1000, nil
}
