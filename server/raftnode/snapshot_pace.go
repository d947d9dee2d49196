package raftnode

import (
	"io"
	"time"
)

// pacedWriter slows down the writing of a snapshot in favour of entries that are applied meanwhile. After each write it
// rests restFactor times as long as it worked, so that a snapshot takes up to a quarter of a core, as Go's collector
// does. While no entries are applied it does not rest.
type pacedWriter struct {
	w       io.Writer
	applied func() uint64   // index of the newest entry applied
	stop    <-chan struct{} // closed to stop resting

	seen    uint64
	resumed time.Time
}

const (
	restFactor = 3
	// maxRest bounds a rest: a long time may have been the disk's, or a pause of the whole process.
	maxRest = 50 * time.Millisecond
)

func (p *pacedWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	if index := p.applied(); err == nil && index != p.seen {
		p.seen = index
		if !p.resumed.IsZero() {
			p.rest(min(restFactor*time.Since(p.resumed), maxRest))
		}
	}
	p.resumed = time.Now()
	return n, err
}

func (p *pacedWriter) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.stop:
	}
}
