// Package workload holds what the clients do, and which checkers judge that.
//
// Each workload is a file: the round that a client goes through again and again, the reads
// at the end, and the checkers. Clients speak the wire dialects of stock lock libraries
// (dialect.go): the same commands in the same order, scripts by EVALSHA with the library's
// fallback and retries, each on record as an operation.
//
// It promises: everything that was sent is recorded before the first byte leaves; the
// outcome recorded is package wire's; keys are given up for new ones before
// so much is unknown about them that a checker would search for ever ([Rotation]).
//
// A workload knows nothing of faults. Start reading at [Workload], then register.go.
package workload

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Service is what clients connect to.
type Service interface {
	// Nodes are the names that clients choose from.
	Nodes() []string
	// Sides is the number of sides that there are.
	Sides() int
	// Dial connects to a node. A client has a side: the node beside it, with
	// which it may be cut off from the others.
	Dial(ctx context.Context, side int, node string) (net.Conn, error)
}

// Features are what a target can do beyond Redis 7.0.
type Features struct {
	Hashes bool // HSET and the rest
	IfEq   bool // SET … IFEQ, DELEX
	Budget bool // a script that runs over the budget is stopped and leaves nothing behind
	Native bool // LOCK.ACQUIRE and the rest
	Users  bool // the nodes have the files of [WriteUsers]
}

// Workload is what clients do, and which checkers judge that.
type Workload interface {
	// Step is a round of a client.
	Step(ctx context.Context, c *Client)
	// Final reads what must be read when everything is whole again.
	Final(ctx context.Context, c *Client)
	// Checkers judge the operations of this workload.
	Checkers() []checker.Func
}

// Options bear on all workloads of a run.
type Options struct {
	Service     Service
	Recorder    *history.Recorder
	Seed        uint64
	Concurrency int
	// Rate is the number of rounds a second that all clients together begin, at most.
	Rate     float64
	Timeout  time.Duration // of an exchange
	Features Features
	// Drift is the bound on clock rate errors that the run's faults keep to.
	Drift float64
	// Drivers are the shell's commands that run clients of libraries, for the workload library.
	Drivers []string
	// Settle is how long after a fault the service may take until clocks run again.
	Settle time.Duration

	name string // of the one workload that gets these; also the prefix of its keys
}

// builder makes a workload, which gets share parts of the clients of a run of several.
type builder struct {
	share int
	build func(*Options) Workload
}

// builders are the workloads by name. Locks get more clients, as locks are held.
var builders = map[string]builder{
	"register":    {3, newRegister},
	"counter":     {2, newCounter},
	"append":      {2, newAppend},
	"txn":         {3, newTxn},
	"script":      {2, newScript},
	"ttl":         {2, newTTL},
	"lock":        {6, newLock},
	"fencedset":   {4, func(o *Options) Workload { return newGuardedSet(o, true) }},
	"unfencedset": {4, func(o *Options) Workload { return newGuardedSet(o, false) }},
	"onelock":     {4, newOneLock},
	"queue":       {4, newQueue},
	"pubsub":      {3, newPubSub},
	"cache":       {3, newCache},
	"redisson":    {4, newRedisson},
	"rwlock":      {4, newRWLock},
	"users":       {3, newUsers},

	"native":        {6, newNative},
	"nativequeue":   {4, newNativeQueue},
	"nativeall":     {3, newNativeAll},
	"nativesession": {4, newNativeSession},
	"library":       {4, newLibrary},
}

// leftOut reports whether "all" does not stand for a workload: byName, and what the target cannot do.
func leftOut(name string, f Features) bool {
	return slices.Contains(byName, name) || strings.HasPrefix(name, "native") && !f.Native ||
		name == "users" && !f.Users
}

// byName are the workloads that "all" leaves out: unfencedset is expected to fail, onelock is drawn, and library needs
// what the libraries need.
var byName = []string{"unfencedset", "onelock", "library"}

// Names are the workloads that there are. All but unfencedset are expected to be valid.
func Names() []string { return slices.Sorted(maps.Keys(builders)) }

// Load is a workload and its clients.
type Load struct {
	Name string
	Workload
	clients []int
}

// Build makes workloads from a list of names, and deals the clients out to them; "all" stands for
// every workload but those left out.
func Build(list string, o *Options) ([]Load, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name == "all" {
			names = append(names, slices.DeleteFunc(Names(), func(n string) bool { return leftOut(n, o.Features) })...)
			continue
		}
		if builders[name].build == nil {
			return nil, fmt.Errorf("no workload %q: there are %s, and all", name, strings.Join(Names(), ", "))
		}
		names = append(names, name)
	}
	if slices.Contains(names, "library") && o.Service != nil && len(o.Drivers) == 0 {
		return nil, errors.New("workload library: say which, by --libraries")
	}
	if o.Concurrency < len(names) {
		return nil, fmt.Errorf("%d clients are too few for %d workloads", o.Concurrency, len(names))
	}
	counts := deal(names, o.Concurrency)
	loads := make([]Load, len(names))
	client := 0
	for n := range names {
		for range counts[n] {
			loads[n].clients = append(loads[n].clients, client)
			client++
		}
	}
	for n, name := range names {
		own := *o
		own.name, own.Concurrency = name, len(loads[n].clients)
		loads[n].Name, loads[n].Workload = name, builders[name].build(&own)
	}
	return loads, nil
}

// deal says how many clients each workload gets. One client alone never meets another: each gets two, then
// the next client goes to the workload that has the smallest part of its share.
func deal(names []string, clients int) []int {
	counts := make([]int, len(names))
	for given := range clients {
		least := given % len(names)
		if given >= 2*len(names) {
			for n, name := range names {
				if counts[n]*builders[names[least]].share < counts[least]*builders[name].share {
					least = n
				}
			}
		}
		counts[least]++
	}
	return counts
}

// Run lets the clients go round until ctx is done.
func Run(ctx context.Context, loads []Load, o *Options) {
	var wg sync.WaitGroup
	pause := float64(o.Concurrency) / o.Rate * float64(time.Second)
	for _, l := range loads {
		for _, worker := range l.clients {
			wg.Go(func() {
				c := newClient(o, worker)
				defer c.close()
				for Sleep(ctx, time.Duration(c.rng.ExpFloat64()*pause)) {
					l.Step(ctx, c)
				}
			})
		}
	}
	wg.Wait()
}

// Final does the last reads of every workload, one client each.
func Final(ctx context.Context, loads []Load, o *Options) {
	var wg sync.WaitGroup
	for worker, l := range loads {
		wg.Go(func() {
			c := newClient(o, worker)
			defer c.close()
			l.Final(ctx, c)
		})
	}
	wg.Wait()
}

// Results judges a history, one checker after the other: each workload's checkers see the workload's operations.
func Results(loads []Load, h *history.History) iter.Seq[checker.Result] {
	return func(yield func(checker.Result) bool) {
		for _, w := range loads {
			own := h.Filter(func(o *history.Op) bool { return strings.HasPrefix(o.Key, w.Name+":") })
			for _, check := range w.Checkers() {
				r := check(own)
				r.Name = w.Name + ": " + r.Name
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Check judges a history by all checkers.
func Check(loads []Load, h *history.History) []checker.Result {
	return slices.Collect(Results(loads, h))
}

// Rotation hands out keys from a few slots. A slot's key is given up for a new
// one after so many operations, or when the outcome of so many of them is unknown: a checker's
// search grows with both, and minutes of history stay cheap to check.
type Rotation struct {
	prefix          string
	maxOps, maxInfo int

	mu    sync.Mutex
	slots []slot
	all   []string
}

type slot struct {
	generation, ops, infos int
}

// NewRotation makes so many slots of keys that begin with prefix.
func NewRotation(prefix string, slots, maxOps, maxInfo int) *Rotation {
	return &Rotation{prefix: prefix, maxOps: maxOps, maxInfo: maxInfo, slots: make([]slot, slots)}
}

// Pick chooses a slot and gives the present key.
func (r *Rotation) Pick(rng *rand.Rand) (n int, key string) {
	n = rng.IntN(len(r.slots))
	return n, r.Key(n)
}

// Key is the present key of a slot.
func (r *Rotation) Key(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[n]
	s.ops++
	if s.ops > r.maxOps {
		*s = slot{generation: s.generation + 1, ops: 1}
	}
	key := fmt.Sprintf("%s:%d:%d", r.prefix, n, s.generation)
	if s.ops == 1 {
		r.all = append(r.all, key)
	}
	return key
}

// Unknown counts an operation on a slot's key whose outcome is unknown.
func (r *Rotation) Unknown(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[n]
	if s.infos++; s.infos >= r.maxInfo && s.ops > 0 {
		*s = slot{generation: s.generation + 1}
	}
}

// All are the keys handed out so far.
func (r *Rotation) All() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}
