package server

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/loglimit"
)

const (
	// slowSync is what one append to the log in 100 may take, as in the alert about slow disks; fewSlow is how many
	// slow ones in a minute are a hiccup.
	slowSync = 100 * time.Millisecond
	fewSlow  = 10
	// syncSlots of syncSlot each are a minute; one more is being filled.
	syncSlot  = 10 * time.Second
	syncSlots = 6
	// syncBuckets grow by syncGrowth each, from slowSync to 37 s. Bucket 0 has what is quicker.
	syncBuckets = 64
	syncGrowth  = 1.1
)

// syncTimes counts how long appends to the log took in the last minute.
type syncTimes struct {
	lines loglimit.Limit

	mu    sync.Mutex
	slots [syncSlots + 1]struct {
		at     int64 // the slot's place in Unix time
		counts [syncBuckets]int
	}
}

// note counts an append.
func (t *syncTimes) note(took time.Duration, now time.Time) {
	bucket := 0
	if took >= slowSync {
		bucket = 1 + int(math.Log(float64(took)/float64(slowSync))/math.Log(syncGrowth))
	}
	at := now.UnixNano() / int64(syncSlot)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.slots[at%int64(len(t.slots))]
	if s.at != at {
		s.at, s.counts = at, [syncBuckets]int{}
	}
	s.counts[min(bucket, syncBuckets-1)]++
}

// slow returns what one append in 100 of the last minute took at least; 0: the disk is not slow.
func (t *syncTimes) slow(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var counts [syncBuckets]int
	all := 0
	for i := range t.slots {
		if t.slots[i].at < now.UnixNano()/int64(syncSlot)-syncSlots {
			continue
		}
		for j, n := range t.slots[i].counts {
			counts[j] += n
			all += n
		}
	}
	if all-counts[0] < fewSlow {
		return 0
	}
	most := 0
	for i := syncBuckets - 1; i > 0; i-- {
		if most += counts[i]; most*100 >= all {
			return time.Duration(float64(slowSync) * math.Pow(syncGrowth, float64(i-1))).Round(time.Millisecond)
		}
	}
	return 0
}

// onSync notes an append to the log, and tells the node's log once a minute while the disk is slow.
func (s *Server) onSync(took time.Duration) {
	s.observed.sync(took)
	now := time.Now()
	s.syncs.note(took, now)
	if took < slowSync {
		return
	}
	if p99 := s.syncs.slow(now); p99 > 0 {
		if _, admitted := s.syncs.lines.Admit(now); admitted {
			s.logger.Warn("the disk is slow: in the last minute one append to the log in 100 took p99 or more", "p99", p99,
				"data_dir", s.config.DataDir)
		}
	}
}

// diskDetail says that the disk is slow; empty: it is not.
func (s *Server) diskDetail() string {
	p99 := s.syncs.slow(time.Now())
	if p99 == 0 {
		return ""
	}
	return fmt.Sprintf("slow: in the last minute one append to the log in 100 took %v or more", p99)
}

// ownTroubles are those of this node that the other members cannot see. They are told of them.
func (s *Server) ownTroubles() (all []string) {
	if slow := s.diskDetail(); slow != "" {
		all = append(all, fmt.Sprintf("the disk of %s is %s", s.config.Name, slow))
	}
	return all
}
