package server

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/loglimit"
	"github.com/holdfast/holdfast/server/replica"
)

const (
	// slowSync is the 99th percentile of appends to the log from which a disk is slow, as in the alert about slow
	// disks. It is not slow if fewer than minSlow appends in a minute take that long, and less than slowSum in total.
	slowSync = 100 * time.Millisecond
	minSlow  = 10
	slowSum  = 6 * time.Second
	// The window of a minute has syncSlots full slots of length syncSlot. One more slot is being filled.
	syncSlot  = 10 * time.Second
	syncSlots = 6
	// syncBuckets is the number of buckets. Their bounds grow by syncGrowth, from slowSync to 37 s; bucket 0 is below
	// slowSync.
	syncBuckets = 64
	syncGrowth  = 1.1
)

// syncTimes has a histogram of the durations of appends to the log in the last minute.
type syncTimes struct {
	lines loglimit.Limit

	mu    sync.Mutex
	begun time.Time // the time of the first append, at which slot 0 begins
	slots [syncSlots + 1]struct {
		at     int64 // the slot's number
		sum    time.Duration
		counts [syncBuckets]int
	}
}

// note adds an append.
func (t *syncTimes) note(took time.Duration, now time.Time) {
	bucket := 0
	if took >= slowSync {
		bucket = 1 + int(math.Log(float64(took)/float64(slowSync))/math.Log(syncGrowth))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun.IsZero() {
		t.begun = now
	}
	at := int64(now.Sub(t.begun) / syncSlot)
	s := &t.slots[at%int64(len(t.slots))]
	if s.at != at {
		s.at, s.sum, s.counts = at, 0, [syncBuckets]int{}
	}
	s.counts[min(bucket, syncBuckets-1)]++
	if bucket > 0 {
		s.sum += took
	}
}

// slowP99 returns the 99th percentile of the appends of the last minute if the disk is slow, else 0.
func (t *syncTimes) slowP99(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var (
		counts [syncBuckets]int
		sum    time.Duration
		all    int
	)
	for i := range t.slots {
		s := &t.slots[i]
		if s.at < int64(now.Sub(t.begun)/syncSlot)-syncSlots {
			continue
		}
		sum += s.sum
		for j, n := range s.counts {
			counts[j] += n
			all += n
		}
	}
	if all-counts[0] < minSlow && sum < slowSum {
		return 0
	}
	slower := 0
	for i := syncBuckets - 1; i > 0; i-- {
		if slower += counts[i]; slower*100 >= all {
			return time.Duration(float64(slowSync) * math.Pow(syncGrowth, float64(i-1))).Round(time.Millisecond)
		}
	}
	return 0
}

// onSync notes an append to the log, and warns once a minute while the disk is slow.
func (s *Server) onSync(took time.Duration) {
	s.observed.sync(took)
	now := time.Now()
	s.syncs.note(took, now)
	if took < slowSync {
		return
	}
	if p99 := s.syncs.slowP99(now); p99 > 0 {
		if _, admitted := s.syncs.lines.Admit(now); admitted {
			s.logger.Warn("the disk is slow: the 99th percentile of appends to the log in the last minute is high", "p99", p99,
				"data_dir", s.config.DataDir)
		}
	}
}

// slowDisk describes a slow disk, or returns "".
func (s *Server) slowDisk() string {
	p99 := s.syncs.slowP99(time.Now())
	if p99 == 0 {
		return ""
	}
	return fmt.Sprintf("slow: in the last minute one append to the log in 100 took %v or more", p99)
}

// diskDetail describes a slow or nearly full disk, or returns "".
func (s *Server) diskDetail() string {
	var details []string
	if slow := s.slowDisk(); slow != "" {
		details = append(details, slow)
	}
	if free, reserve := s.space(); free < reserve {
		details = append(details, fmt.Sprintf("nearly full: %d bytes are free, and %d in reserve", free, reserve))
	}
	return strings.Join(details, "; ")
}

// warnings returns warnings about this node that other members cannot detect.
func (s *Server) warnings() (all []string) {
	if slow := s.slowDisk(); slow != "" {
		all = append(all, "the disk is "+slow)
	}
	return all
}

// onSpace notes the space of the disk.
func (s *Server) onSpace(free, total uint64) {
	if r := s.member.Load(); r != nil {
		r.NoteSpace(free, total)
	}
}

// space returns the free bytes of the disk and its reserve, or zeros while they are unknown.
func (s *Server) space() (free, reserve uint64) {
	if r := s.member.Load(); r != nil {
		return r.Space()
	}
	return 0, 0
}

// diskTroubles returns a sentence for each member whose disk is nearly full.
func diskTroubles(r *replica.Replica) (all []string) {
	what := "its log may end there"
	if r.DiskFull() {
		what = "commands that may add data are refused"
	}
	for _, m := range r.Status().Members {
		if m.DiskFull {
			all = append(all, fmt.Sprintf("the disk of %s is nearly full: %s", m.Name, what))
		}
	}
	return all
}
