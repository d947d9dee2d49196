package replica

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/raftnode"
)

// unhealthyAfter is the time for which a node may be behind before Healthy reports it.
const unhealthyAfter = raftnode.StalledAfter

// health records how far this node is behind the leader.
type health struct {
	mu     sync.Mutex
	target uint64    // the leader's commit index when this node was last found behind
	since  time.Time // the time of target; zero while this node is up to date
	last   time.Time // the time of the leader's last status message
	first  uint64    // the leader's commit index in its first status message
}

// onStatus handles the leader's commit index, and the index that this node had applied then.
func (h *health) onStatus(commit, applied uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.IsZero() {
		h.first = commit
	}
	h.last = time.Now()
	if applied >= h.target {
		h.since = time.Time{}
	}
	if h.since.IsZero() && applied < commit {
		h.target, h.since = commit, h.last
	}
}

func (h *health) behind(applied uint64, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.last.IsZero() || now.Sub(h.last) > forward.SilenceTimeout+unhealthyAfter:
		return errors.New("no link to the leader")
	case applied+raftnode.ReplayLag < h.first:
		return fmt.Errorf("at log index %d of %d since the start", applied, h.first)
	case !h.since.IsZero() && applied < h.target && now.Sub(h.since) > unhealthyAfter:
		return fmt.Errorf("at log index %d of %d for %v", applied, h.target, now.Sub(h.since).Round(time.Second))
	}
	return nil
}

// stalled returns an error if entries of this leader are not applied any more.
func (h *health) stalled(l *leaderTerm, now time.Time) error {
	if l == nil || l.inFlight.Load() == 0 {
		return nil
	}
	if age := now.Sub(time.Unix(0, l.progress.Load())); age > unhealthyAfter {
		return fmt.Errorf("nothing was committed for %v", age.Round(time.Second))
	}
	return nil
}
