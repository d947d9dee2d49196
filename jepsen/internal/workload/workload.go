// Package workload has the actions of clients, and the checkers that judge them.
//
// Each workload is a file: the step that a client repeats, the reads at the end, and the checkers. Clients speak the
// dialects of stock lock libraries (dialect.go): the same commands in the same order, scripts by EVALSHA with the
// library's fallback and retries, each recorded as an operation.
//
// It promises: everything sent is recorded before the first byte leaves; the recorded outcome is package wire's; keys
// are replaced by new ones before a checker would have to search through too many unknown outcomes ([Rotation]).
//
// A workload is independent of the faults. Start reading at [Workload], then register.go.
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

// Service is the service that clients connect to.
type Service interface {
	// Nodes returns the names that clients choose from.
	Nodes() []string
	// Sides returns the number of sides.
	Sides() int
	// Dial connects to a node. A client's side is the node beside it, with which it may be cut off.
	Dial(ctx context.Context, side int, node string) (net.Conn, error)
}

// Features are a target's extensions of Redis 7.0.
type Features struct {
	Hashes bool // HSET and others
	IfEq   bool // SET … IFEQ, DELEX
	Budget bool // a script that exceeds its budget is stopped and has no effect
	Native bool // LOCK.ACQUIRE and others
	Users  bool // the nodes have the files of [WriteUsers]
}

// Workload is a kind of clients, and the checkers that judge them.
type Workload interface {
	// Step performs a client's next round.
	Step(ctx context.Context, c *Client)
	// Final performs the last reads, when all faults are mended.
	Final(ctx context.Context, c *Client)
	// Checkers returns the checkers of this workload's operations.
	Checkers() []checker.Func
}

// Options are the options of all workloads of a run.
type Options struct {
	Service     Service
	Recorder    *history.Recorder
	Seed        uint64
	Concurrency int
	// Rate limits the rounds per second of all clients together.
	Rate     float64
	Timeout  time.Duration // of one exchange
	Features Features
	// Drift bounds the errors of clock rates.
	Drift float64
	// Drivers are the shell commands that run clients of the workload library.
	Drivers []string
	// Settle is added to the end of every fault: see [checker.TTLBounds].
	Settle time.Duration

	name string // of one workload; also its keys' prefix
}

// builder builds a workload; share is its part of the clients, relative to the others.
type builder struct {
	share int
	build func(*Options) Workload
}

// builders are the workloads by name. Those with locks have more clients, since locks are held.
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

// leftOut reports whether "all" excludes a workload: it is in byName, or the target lacks a feature.
func leftOut(name string, f Features) bool {
	return slices.Contains(byName, name) || strings.HasPrefix(name, "native") && !f.Native ||
		name == "users" && !f.Users
}

// byName lists workloads that "all" excludes: unfencedset is expected to fail, onelock is for pictures, and library
// needs toolchains.
var byName = []string{"unfencedset", "onelock", "library"}

// Names returns the workloads' names. All but unfencedset are expected to be valid.
func Names() []string { return slices.Sorted(maps.Keys(builders)) }

// Load is a workload with its clients.
type Load struct {
	Name string
	Workload
	clients []int
}

// Build builds workloads from a list of names and distributes the clients; "all" stands for every workload but those of
// [leftOut].
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

// deal returns the number of clients of each workload. Each gets two, since one alone meets nobody; each further client
// goes to the workload with the smallest part of its share.
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

// Run runs the clients until ctx is done.
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

// Final performs the last reads of every workload, with one client each.
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

// Results judges a history, one checker after another. Each workload's checkers see only its operations.
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

// Check judges a history with all checkers.
func Check(loads []Load, h *history.History) []checker.Result {
	return slices.Collect(Results(loads, h))
}

// Rotation provides keys in a few slots. A slot's key is replaced after a number of operations, or of unknown outcomes,
// since a checker's search grows with both.
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

// NewRotation returns a Rotation of a number of slots, whose keys begin with prefix.
func NewRotation(prefix string, slots, maxOps, maxInfo int) *Rotation {
	return &Rotation{prefix: prefix, maxOps: maxOps, maxInfo: maxInfo, slots: make([]slot, slots)}
}

// Pick chooses a slot and returns its present key.
func (r *Rotation) Pick(rng *rand.Rand) (n int, key string) {
	n = rng.IntN(len(r.slots))
	return n, r.Key(n)
}

// Key returns the present key of a slot.
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

// Unknown counts an unknown outcome on a slot's key.
func (r *Rotation) Unknown(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[n]
	if s.infos++; s.infos >= r.maxInfo && s.ops > 0 {
		*s = slot{generation: s.generation + 1}
	}
}

// All returns all keys so far.
func (r *Rotation) All() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}
