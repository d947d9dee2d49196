package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// zeroStep bounds the bytes per write and sync while a segment is prepared, since an append may wait for them.
const zeroStep = 1 << 20

// spares prepares the next segment while the current one is written, so that no append waits for megabytes of zeros.
type spares struct {
	folder *vfs.Folder
	size   int64
	logger *slog.Logger
	ready  chan spare // prepared files; capacity 1
	next   chan uint64
	stop   chan struct{}
	done   sync.WaitGroup
}

// spare is a durable file full of zeros that no manifest lists.
type spare struct {
	number uint64
	file   vfs.File
	err    error
}

func startSpares(folder *vfs.Folder, size int64, logger *slog.Logger) *spares {
	s := &spares{
		folder: folder, size: size, logger: logger,
		ready: make(chan spare, 1), next: make(chan uint64, 1), stop: make(chan struct{}),
	}
	s.done.Go(s.run)
	return s
}

func (s *spares) run() {
	for {
		select {
		case number := <-s.next:
			file, err := makeZeros(s.folder, number, s.size, s.stop)
			if err != nil && !errors.Is(err, ErrClosed) {
				s.logger.Warn("the log fails when it needs its next segment, unless there is room then", "error", err)
			}
			s.ready <- spare{number: number, file: file, err: err}
		case <-s.stop:
			return
		}
	}
}

// order requests a file of that number. The previous one must have been taken.
func (s *spares) order(number uint64) { s.next <- number }

// take waits for and returns the ordered file.
func (s *spares) take() spare { return <-s.ready }

// close ends the goroutine. The next Open removes a file that was not taken.
func (s *spares) close() {
	close(s.stop)
	s.done.Wait()
	select {
	case left := <-s.ready:
		if left.file != nil {
			_ = left.file.Close()
		}
	default:
	}
}

// createSegment creates a segment's file with a durable name.
//
// The name is synced before the content is written, since another sync of the folder may fail meanwhile.
func createSegment(folder *vfs.Folder, number uint64) (f vfs.File, err error) {
	name := folder.Path(segmentName(number))
	err = folder.Change(func() (err error) { f, err = folder.Open(name, os.O_CREATE|os.O_EXCL|os.O_RDWR); return err })
	if err == nil {
		return f, nil
	}
	if f != nil {
		_ = f.Close()
		_ = folder.Remove(name)
	}
	return nil, fmt.Errorf("create log segment: %w", err)
}

// makeZeros creates a segment's file full of zeros, in steps, unless stop is closed.
func makeZeros(folder *vfs.Folder, number uint64, size int64, stop <-chan struct{}) (vfs.File, error) {
	f, err := createSegment(folder, number)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, min(size, zeroStep))
	for at := int64(0); at < size && err == nil; at += int64(len(zeros)) {
		select {
		case <-stop:
			err = ErrClosed
		default:
			if _, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err == nil {
				err = f.SyncData()
			}
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = folder.Remove(f.Name())
		return nil, fmt.Errorf("prepare log segment: %w", err)
	}
	return f, nil
}
