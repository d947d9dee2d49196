package consistency

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
)

// Requests between members.
const (
	opCheck   = "check-states"  // of the leader: name an index
	opHash    = "state-hash"    // the hash at an index
	opVerdict = "state-verdict" // what a majority has
	opRepair  = "repair-state"  // replace the state
)

const (
	// collectWithin is how long the leader waits for the hashes of an index at most: a member may be behind.
	collectWithin = time.Minute
	// requestWithin bounds a request that is answered at once.
	requestWithin = 5 * time.Second
	// askAgain is between two requests to a member that does not answer.
	askAgain = time.Second
)

// hashQuestion asks for a hash.
type hashQuestion struct {
	Index uint64 `json:"index"`
}

// hashAnswer is one. Without a hash the member did not capture the state at that index, as its state came from a
// snapshot behind it, or as the member is in quarantine.
type hashAnswer struct {
	Hash        string `json:"hash,omitempty"`
	Quarantined bool   `json:"quarantined,omitempty"`
}

// verdict is what the leader found at an index.
type verdict struct {
	Index uint64 `json:"index"`
	// Right is what a majority of the voters has; "": no majority has the same.
	Right string `json:"right,omitempty"`
	// Differ are the IDs of members in quarantine, or that have to be, or, without a majority, of those that differ.
	Differ []string `json:"differ,omitempty"`
	// Compared are the names of the members whose hashes were compared.
	Compared []string `json:"compared,omitempty"`
}

// Serve has s answer what other members ask of this package.
func (c *Checker) Serve(s *memberrpc.Server) {
	memberrpc.Handle(s, opCheck, func(_ context.Context, _ memberrpc.Caller, _ struct{}) (struct{}, error) {
		c.mu.Lock()
		c.times.asked = true
		c.mu.Unlock()
		notify(c.wake)
		return struct{}{}, nil
	})
	memberrpc.Handle(s, opHash, func(ctx context.Context, _ memberrpc.Caller, q hashQuestion) (hashAnswer, error) {
		return c.await(ctx, q.Index)
	})
	memberrpc.Handle(s, opVerdict, func(ctx context.Context, _ memberrpc.Caller, v verdict) (struct{}, error) {
		return struct{}{}, c.take(ctx, v)
	})
	memberrpc.Handle(s, opRepair, func(ctx context.Context, _ memberrpc.Caller, _ struct{}) (Repaired, error) {
		return c.repairSelf(ctx)
	})
}

// await waits until this node knows its hash at an index, or will never know it.
func (c *Checker) await(ctx context.Context, index uint64) (hashAnswer, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r := c.config.Replica()
		if r == nil {
			return hashAnswer{}, errors.New("this node has no state yet")
		}
		reached := r.Reached() // before the look at the captures, which are older
		c.mu.Lock()
		i := slices.IndexFunc(c.hashes, func(h hashed) bool { return h.index == index })
		pending := index > 0 && c.hashing == index || c.next != nil && c.next.index == index
		moved, hash := c.moved, ""
		if i >= 0 {
			hash = c.hashes[i].hash
		}
		c.mu.Unlock()
		switch quarantined, frozen := r.Quarantined(); {
		case hash != "":
			return hashAnswer{Hash: hash}, nil
		case !pending && (frozen || reached >= index):
			return hashAnswer{Quarantined: quarantined}, nil
		}
		timer.Reset(askAgain)
		select {
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
			return hashAnswer{}, context.Cause(ctx)
		}
	}
}

// answered is what became of the question to a member.
type answered struct {
	id string
	hashAnswer
}

// collect compares the hashes at an index, and tells each member as soon as a majority has the same.
func (c *Checker) collect(ctx context.Context, r Replica, index uint64, own string) {
	ctx, cancel := context.WithTimeout(ctx, min(collectWithin, max(c.config.Interval, minGap)))
	defer cancel()
	conf := r.Configuration()
	answers := make(chan answered, len(conf.Members))
	var asks, tells sync.WaitGroup
	defer asks.Wait()
	others := 0
	for _, m := range conf.Members {
		if m.ID != c.config.Self {
			others++
			asks.Go(func() { answers <- answered{m.ID, c.ask(ctx, r, m.ID, index)} })
		}
	}
	hashes, quarantined, told := map[string]string{c.config.Self: own}, []string(nil), make(map[string]bool)
	if on, _ := r.Quarantined(); on {
		quarantined = append(quarantined, c.config.Self)
	}
	tell := func(v verdict) {
		for _, id := range append(slices.Collect(maps.Keys(hashes)), quarantined...) {
			if !told[id] {
				told[id] = true
				tells.Go(func() { c.sendVerdict(ctx, id, v) })
			}
		}
	}
	v := verdict{Index: index}
	for range others {
		a := <-answers
		switch {
		case a.Hash != "":
			hashes[a.id] = a.Hash
		case a.Quarantined:
			quarantined = append(quarantined, a.id)
		}
		right, differ := judge(conf, hashes)
		v.Right, v.Differ, v.Compared = right, union(differ, quarantined), names(slices.Collect(maps.Keys(hashes)))
		if right != "" {
			tell(v)
		}
	}
	if len(v.Compared) > 1 {
		clear(told) // what was found last, to all
		tell(v)
	}
	tells.Wait()
}

// ask asks a member for its hash, again and again while it does not answer and this node leads.
func (c *Checker) ask(ctx context.Context, r Replica, id string, index uint64) hashAnswer {
	for {
		a, err := memberrpc.Call[hashAnswer](ctx, c.config.Client, id, opHash, hashQuestion{index})
		if unknown := (&memberrpc.RemoteError{}); err == nil || errors.As(err, &unknown) && unknown.Unknown {
			return a // a release that does not compare has none
		}
		if !sleep(ctx, askAgain) || !r.Status().Leading {
			return a
		}
	}
}

// sendVerdict tells a member what was found.
func (c *Checker) sendVerdict(ctx context.Context, id string, v verdict) {
	for {
		var err error
		if id == c.config.Self {
			err = c.take(ctx, v)
		} else {
			_, err = memberrpc.Call[struct{}](ctx, c.config.Client, id, opVerdict, v)
		}
		if err == nil || !sleep(ctx, askAgain) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// union are the IDs of both, sorted, each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// names are the names behind IDs, sorted.
func names(ids []string) (all []string) {
	for _, id := range ids {
		all = append(all, members.Name(id))
	}
	slices.Sort(all)
	return all
}
