package consistency

import (
	"context"
	"encoding/hex"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

const (
	// DefaultInterval is between two checks.
	DefaultInterval = 5 * time.Minute
	// MinInterval is the shortest useful interval between comparisons.
	MinInterval = minGap
	// minGap is the minimum time between two indices that a leader chooses for comparisons, whichever member asks.
	minGap = 10 * time.Second
	// startDelay is how long after its start a node asks for a check: nodes that start together need one.
	startDelay = 5 * time.Second
	// overdue is how often a node that does not lead looks whether it has to name the next index by now.
	overdue = time.Second
	// kept is how many hashes a node remembers: the leader asks for the newest, or one before.
	kept = 4
)

// Replica is the node's: a [replica.Replica].
type Replica interface {
	Configuration() members.Configuration
	Status() replica.Status
	Reached() uint64
	ProposeCheck() bool
	Quarantine()
	Release() error
	Quarantined() (on, frozen bool)
	ReplaceState(ctx context.Context, snapshot store.Snapshot, state io.Reader) error
}

// Folder is the node's data folder.
type Folder interface {
	Identity() store.Identity
	SetIdentity(change func(*store.Identity)) error
	// Spool keeps a state of so many bytes in a file until it is closed.
	Spool(state io.Reader, size int64) (io.ReadCloser, error)
}

// Config is what a checker needs of its owner.
type Config struct {
	Self string // ID
	// Interval is between two checks; 0: this node asks for one only after its state was replaced in quarantine, and names
	// no index unless another member asks.
	Interval time.Duration
	Folder   Folder
	Client   *memberrpc.Client
	// Replica returns nil while the node has none.
	Replica func() Replica
	// Fetch opens the leader's committed state that ends at an index or later.
	Fetch func(ctx context.Context, leader members.Member, from uint64) (store.Snapshot, io.ReadCloser, error)
	// OnEvent is told what an operator may want to know. It must be quick.
	OnEvent func(Event)
	// Fail is called when the quarantine cannot be noted, and must be quick.
	Fail func(error)
}

// Checker compares this node's state with the other members'.
type Checker struct {
	config   Config
	work     chan struct{} // there is a capture to hash
	wake     chan struct{} // there is something for the watch to do
	deciding chan struct{} // held while a verdict is taken
	repairs  chan *repair
	asking   chan struct{} // held while the members are asked who is in quarantine

	mu      sync.Mutex
	next    *captured // to be hashed
	newest  uint64    // index of the newest capture
	hashing uint64    // index of the capture at work; 0: none
	hashes  []hashed  // oldest first
	moved   chan struct{}
	times   times
	report  Report
	repair  *repair // under way; nil: none
	// away are the IDs of other members that said that they are in quarantine, and survey says when they are asked next.
	away   []string
	survey struct {
		term uint64
		next time.Time
	}
}

// captured is a state behind an entry.
type captured struct {
	index uint64
	state fsm.Snapshot
}

// hashed is the hash of the state behind an entry. collected: this node has compared it, as leader, or did not lead.
type hashed struct {
	index     uint64
	hash      string
	collected bool
}

// times say when the next check is due.
type times struct {
	named  time.Time // when the newest index was named, as far as is known here, or the start
	asked  bool      // a member asks for a check
	begun  bool      // an index was named since the start
	single bool      // this node wants to be compared: it was started, or its state was replaced
	retry  time.Time // when it asks for that
	pause  time.Duration
}

// name notes that an index is named now.
func (t *times) name() { t.named, t.asked, t.begun = time.Now(), false, true }

// New makes a checker.
func New(c Config) *Checker {
	return &Checker{
		config: c, work: make(chan struct{}, 1), wake: make(chan struct{}, 1), deciding: make(chan struct{}, 1),
		asking:  make(chan struct{}, 1),
		repairs: make(chan *repair, 1), moved: make(chan struct{}), times: times{named: time.Now()},
	}
}

// Captured takes the state behind an entry that names an index: see [replica.Config].OnCapture. A capture that was not
// hashed yet is dropped.
func (c *Checker) Captured(index uint64, state fsm.Snapshot) {
	c.mu.Lock()
	c.next, c.newest = &captured{index, state}, index
	c.times.name()
	c.signal()
	c.mu.Unlock()
	notify(c.work)
}

// Restored is told that the state was replaced by a snapshot's.
func (c *Checker) Restored() { c.wantCheck(time.Second) }

// wantCheck has this node compared soon.
func (c *Checker) wantCheck(delay time.Duration) {
	c.mu.Lock()
	c.times.single, c.times.retry, c.times.pause = true, time.Now().Add(delay), minGap
	c.mu.Unlock()
	notify(c.wake)
}

// signal wakes those that wait for a hash or a verdict. Requires: mu is held.
func (c *Checker) signal() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// Run hashes and compares until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	c.wantCheck(startDelay)
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { c.hashAll(ctx) })
	others.Go(func() { c.repairAll(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		timer.Reset(c.step(ctx))
	}
}

// hashAll hashes what is captured.
func (c *Checker) hashAll(ctx context.Context) {
	for {
		select {
		case <-c.work:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		work := c.next
		c.next = nil
		if work != nil {
			c.hashing = work.index
		}
		c.mu.Unlock()
		if work == nil {
			continue
		}
		began := time.Now()
		hash, err := hashOf(ctx, work.state)
		c.mu.Lock()
		c.hashing = 0
		if err == nil {
			c.hashes = append(c.hashes, hashed{index: work.index, hash: hash})
			c.hashes = c.hashes[max(0, len(c.hashes)-kept):]
			c.report.Took = time.Since(began)
		}
		c.signal()
		c.mu.Unlock()
		notify(c.wake)
	}
}

// hashOf hashes a state: its snapshot ends with the hash of all before.
func hashOf(ctx context.Context, state fsm.Snapshot) (string, error) {
	w := &pacer{ctx: ctx, resumed: time.Now()}
	if _, err := state.WriteTo(w); err != nil {
		return "", err
	}
	return hex.EncodeToString(w.end), nil
}

// pacer keeps the last bytes of what is written, and makes the writer rest three times as long as it worked, so that
// clients do not notice.
type pacer struct {
	ctx     context.Context
	end     []byte
	resumed time.Time
}

const (
	sumBytes   = 32
	restFactor = 3
	// maxRest bounds a rest: a long time may have been a pause of the whole process.
	maxRest = 20 * time.Millisecond
)

// Write implements io.Writer.
func (p *pacer) Write(b []byte) (int, error) {
	p.end = append(p.end, b[max(0, len(b)-sumBytes):]...)
	p.end = p.end[max(0, len(p.end)-sumBytes):]
	timer := time.NewTimer(min(restFactor*time.Since(p.resumed), maxRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
	p.resumed = time.Now()
	return len(b), nil
}

// step does what is due, and returns when to look again.
func (c *Checker) step(ctx context.Context) time.Duration {
	r := c.config.Replica()
	if r == nil {
		return overdue
	}
	st := r.Status()
	if index, hash := c.uncollected(); hash != "" && st.Leading {
		c.collect(ctx, r, index, hash)
		st = r.Status()
	}
	on, frozen := r.Quarantined()
	names, asks, wait := c.due(st.Leading, on && !frozen)
	wait = min(wait, c.surveyDue(ctx, r, &st))
	switch {
	case len(r.Configuration().Members) < 2:
		return max(c.config.Interval, overdue)
	case names && r.ProposeCheck():
		c.mu.Lock()
		c.times.name() // if the entry gets lost, another is due later
		c.mu.Unlock()
	case asks && st.Leader.ID != "":
		ctx, cancel := context.WithTimeout(ctx, requestWithin)
		defer cancel()
		_, _ = memberrpc.Call[struct{}](ctx, c.config.Client, st.Leader.ID, opCheck, struct{}{}) // tried again until compared
	}
	return wait
}

// uncollected is the newest hash, unless it was compared or is another leader's to compare.
func (c *Checker) uncollected() (index uint64, hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hashes) == 0 {
		return 0, ""
	}
	newest := &c.hashes[len(c.hashes)-1]
	if newest.collected {
		return 0, ""
	}
	newest.collected = true
	return newest.index, newest.hash
}

// due says whether this node as leader has to name an index, or whether it has to ask the leader for a check, and when
// to look again. replaced: this node is in quarantine until its state, which was replaced, is compared.
func (c *Checker) due(leads, replaced bool) (names, asks bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, now := &c.times, time.Now()
	regular, wants := c.config.Interval > 0, false
	single := t.single && (regular || replaced)
	if single && !now.Before(t.retry) {
		wants = true
		t.retry, t.pause = now.Add(t.pause), min(2*t.pause, max(c.config.Interval, minGap))
	}
	t.asked = t.asked || leads && wants
	wait = time.Hour
	if regular {
		wait = max(t.named.Add(c.config.Interval).Sub(now), overdue)
		names = leads && now.Sub(t.named) >= c.config.Interval
	}
	if single {
		wait = min(wait, max(t.retry.Sub(now), overdue))
	}
	if leads && t.asked {
		wait = min(wait, overdue)
		names = names || !t.begun || now.Sub(t.named) >= minGap
	}
	return names, wants && !leads, wait
}

// notify wakes the goroutine that listens on ch, a channel with a buffer of one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// judge finds the hash that a majority of the voters has; "": there is none. differ are the IDs of the members that
// have another, or, without a majority, of all that were compared if they are not equal.
func judge(conf members.Configuration, hashes map[string]string) (right string, differ []string) {
	votes := make(map[string]int)
	for id, hash := range hashes {
		if votes[hash] += 0; conf.IsVoter(id) {
			votes[hash]++
		}
	}
	for hash, n := range votes {
		if n >= conf.Quorum() {
			right = hash
		}
	}
	if right == "" && len(votes) < 2 {
		return "", nil
	}
	for id, hash := range hashes {
		if hash != right {
			differ = append(differ, id)
		}
	}
	slices.Sort(differ)
	return right, differ
}
