package nemesis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// The faults with duplicated data: a copied folder, a backup that is restored twice.

var backupFaults = []fault{
	{kind("backup-twice", schedule.Members, 2*second, 4*second, nil,
		"a backup is taken under load, and restored into two clusters one after the other: no fence is given twice, and "+
			"no lock has two holders"), drawn, (*Nemesis).restoreTwice},
}

// The ways to copy a folder, as the size of the step.
const (
	copiedStopped = iota // copied before the node's last start: the copy must end
	copiedFrozen         // the node is frozen until the copy serves, and must end once it continues
	copiedBehind         // the node continues after the copy: it must end, and so may the copy, which lacks entries
	copiedWays
)

var copiedHow = [copiedWays]string{"before it started again", "while it was frozen", "and went on"}

// copyFolder runs two processes with one identity.
func (n *Nemesis) copyFolder(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	place, m, fleet := members[0], n.membership(), n.Target.Fleet()
	spares := m.Spares()
	if len(spares) == 0 || len(members) < 2 {
		return effect{detail: "no place is free"}, nil
	}
	twin := spares[0]
	e := effect{detail: fmt.Sprintf("%s, copied to %s %s", role(place, leader), twin, copiedHow[s.Size])}
	e.mend = func() error { return m.Out(twin) }
	halt, goOn := fleet.Pause, fleet.Resume
	ends, goes := []string{place}, []string{twin}
	switch s.Size {
	case copiedStopped:
		halt, goOn, ends, goes = fleet.Stop, fleet.Start, goes, ends
	case copiedBehind:
		goes = nil
		defer fleet.Excuse(twin)()
	}
	if s.Size != copiedStopped {
		e.mend = func() error { return errors.Join(m.Out(twin), n.renewed(place)) }
	}
	defer fleet.Excuse(ends[0])()
	f := n.fences(s)
	f.take(place)
	f.take(members[1])
	serves := func(at string) func() error {
		served := f.through(at)
		return func() error {
			return n.until(context.WithoutCancel(ctx), twinLimit, at+" serves", func() bool { return f.through(at) > served })
		}
	}
	err := firstError(
		serves(place),
		func() error { return m.Out(twin) },
		func() error { return halt(place) },
		func() error { return copyTree(n.DataDir(twin), n.DataDir(place)) },
	)
	f.take(twin)
	start := func() error { return m.Twin(twin, place) }
	switch {
	case err != nil:
		err = errors.Join(err, goOn(place))
	case s.Size == copiedFrozen:
		err = errors.Join(firstError(start, serves(twin)), goOn(place))
	default:
		err = firstError(func() error { return goOn(place) }, serves(place), start)
	}
	if err == nil {
		n.judgeTwins(ctx, place, twin, ends, goes, serves)
	}
	s.part(ctx, 50)
	f.end()
	if served := f.through(twin); s.Size == copiedStopped && served > 0 {
		n.find("members: %s gave %d fences with an older copy of the folder of %s", twin, served, place)
	}
	f.forget()
	e.details = f.String
	return e, err
}

// judgeTwins checks that of two processes with one identity those in ends end, and those in goes serve.
func (n *Nemesis) judgeTwins(ctx context.Context, place, twin string, ends, goes []string,
	serves func(string) func() error,
) {
	for _, at := range ends {
		if n.until(context.WithoutCancel(ctx), twinLimit, "", func() bool { return !n.Target.Fleet().Running(at) }) != nil {
			n.find("members: two processes of %s go on, at %s and at %s", place, place, twin)
		}
	}
	for _, at := range goes {
		if err := serves(at)(); err != nil {
			n.find("members: of two processes of %s, at %s and at %s, none serves: %v", place, place, twin, err)
		}
	}
}

// restoreTwice takes a backup and runs two clusters from it, one after the other. The original cluster keeps running.
func (n *Nemesis) restoreTwice(ctx context.Context, s step) (effect, error) {
	m, backups := n.membership(), n.Target.(cluster.Backups)
	members, spares := n.Target.Members(), m.Spares()
	if len(spares) == 0 {
		return effect{detail: "no place is free"}, nil
	}
	place := spares[0]
	file := n.DataDir(place) + ".backup"
	f := n.fences(s)
	e := effect{detail: "at " + place, details: f.String, mend: func() error {
		return errors.Join(m.Out(place), os.Remove(file))
	}}
	for _, member := range members {
		f.take(member)
	}
	var err error
	if n.until(ctx, changeLimit, "", func() bool {
		err = firstError(func() error { return f.hold(ctx) }, func() error {
			return backups.Backup(ctx, members[f.next(len(members))], file)
		})
		return err == nil
	}) != nil {
		f.end()
		e.mend = func() error { return m.Out(place) }
		return e, err
	}
	s.part(ctx, 50)
	f.end()
	f.forget()
	for range 2 {
		f.begin()
		if err := backups.Restore(ctx, place, file, f.key+":*"); err != nil {
			return e, err
		}
		f.take(place)
		if n.until(context.WithoutCancel(ctx), twinLimit, "", func() bool { return f.through(place) > 0 }) != nil {
			n.find("backup: a cluster that was restored gives no fence within %s", twinLimit)
		}
		s.part(ctx, 50)
		f.held(ctx, place)
		f.end()
	}
	return e, nil
}

const (
	// twinLimit bounds the time until one of two processes has ended and the other serves.
	twinLimit = 30 * second
	// fenceLease is longer than a client holds its lock, and short, since a lock whose holder is unknown blocks all
	// others.
	fenceLease = 2 * second
	// heldLease is longer than a fault.
	heldLease = 10 * time.Minute
)

// fences checks the fences granted to a fault's own clients, by native locks and by a counter. Each must be unique and
// larger than all fences of previous lives. A lock must not have two holders.
type fences struct {
	n   *Nemesis
	key string

	stop context.CancelFunc
	ctx  context.Context
	wg   sync.WaitGroup

	mu     sync.Mutex
	given  map[string]string // client by fence
	most   map[string]int64  // largest fence by kind
	floors map[string]int64  // most at the start of this life
	holder string
	until  time.Time
	served map[string]int
	lives  int
	turns  int
}

// fences returns the fences of a step, with a key of its own.
func (n *Nemesis) fences(s step) *fences {
	f := &fences{
		n: n, key: fmt.Sprintf("jepsen-fences-%d", s.At.Milliseconds()),
		given: map[string]string{}, most: map[string]int64{}, served: map[string]int{},
	}
	f.begin()
	return f
}

// begin starts a life: every fence from now on must be larger than all before. Each life has its own lock, since the
// previous life's lock may still be held.
func (f *fences) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.floors = map[string]int64{}
	for kind, most := range f.most { // unordered: a copy
		f.floors[kind] = most
	}
	f.holder, f.served = "", map[string]int{}
	f.lives++
	f.ctx, f.stop = context.WithCancel(context.Background())
}

// end stops the clients of a life.
func (f *fences) end() {
	f.stop()
	f.wg.Wait()
}

// take starts clients at a place, from each side, that acquire fences until the life ends.
func (f *fences) take(place string) {
	for side := range f.n.Target.Sides() {
		f.wg.Go(func() {
			for k := 0; f.ctx.Err() == nil; k++ {
				f.client(place, side, fmt.Sprintf("%s-%d-%d", place, side, k))
				workload.Sleep(f.ctx, 20*time.Millisecond)
			}
		})
	}
}

// client acquires fences until its connection ends.
func (f *fences) client(place string, side int, who string) {
	conn, err := f.dial(f.ctx, place, side)
	if err != nil {
		return
	}
	defer conn.Close()
	lock := fmt.Sprintf("%s:%d", f.key, f.lives)
	for k := 0; f.ctx.Err() == nil && !conn.Broken(); k++ {
		owner := fmt.Sprintf("%s-%d", who, k)
		sent := time.Now()
		if r := conn.Do("LOCK.ACQUIRE", lock, owner, "PX", millis(fenceLease), "WAIT", millis(second)); isGrant(r) {
			f.give(place, "fence", r.Value.Num, owner)
			f.granted(owner, sent)
			workload.Sleep(f.ctx, 2*time.Millisecond)
			f.released(owner)
			conn.Do("LOCK.RELEASE", lock, owner)
		}
		if r := conn.Do("INCR", f.key+":number"); r.Outcome == history.OK {
			f.give(place, "number", r.Value.Num, owner)
		}
		workload.Sleep(f.ctx, 5*time.Millisecond)
	}
}

func (f *fences) dial(ctx context.Context, place string, side int) (*wire.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	nc, err := f.n.Target.Dial(ctx, side, place)
	if err != nil {
		return nil, err
	}
	return wire.New(nc, witnessTimeout), nil
}

// give records and checks a granted fence.
func (f *fences) give(place, kind string, fence int64, who string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := fmt.Sprintf("%s %d", kind, fence)
	if to, twice := f.given[name]; twice {
		f.n.find("%s: %s was given twice, to %s and to %s", f.key, name, to, who)
	} else if fence <= f.floors[kind] {
		f.n.find("%s: %s was given to %s, and %d before the backup was restored", f.key, name, who, f.floors[kind])
	}
	f.given[name] = who
	f.most[kind] = max(f.most[kind], fence)
	f.served[place]++
}

// granted records and checks a holder, whose lease counts from before its request.
func (f *fences) granted(who string, sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.holder != "" && now.Before(f.until) && now.Before(sent.Add(fenceLease)) {
		f.n.find("%s: two holders: %s has it, and %s is granted it", f.key, f.holder, who)
	}
	f.holder, f.until = who, sent.Add(fenceLease)
}

func (f *fences) released(who string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holder == who {
		f.holder = ""
	}
}

// through returns the number of fences granted through a place in this life.
func (f *fences) through(place string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.served[place]
}

// forget deletes the fault's keys from the cluster.
func (f *fences) forget() {
	f.n.forget(context.Background(), []string{f.key + ":1", f.key + ":held", f.key + ":number"})
}

// next returns the next of n turns, round robin.
func (f *fences) next(n int) int {
	f.turns++
	return f.turns % n
}

// hold acquires a lock for the duration of the fault.
func (f *fences) hold(ctx context.Context) error {
	members := f.n.Target.Members()
	conn, err := f.dial(ctx, members[f.next(len(members))], 0)
	if err != nil {
		return err
	}
	defer conn.Close()
	if r := conn.Do("LOCK.ACQUIRE", f.key+":held", "holder", "PX", millis(heldLease)); !isGrant(r) {
		return errors.New("the lock was not granted: " + cmp.Or(r.Why, "it is taken"))
	}
	return nil
}

// held checks, in a restored cluster, that the lock of [fences.hold] still has its holder.
func (f *fences) held(ctx context.Context, place string) {
	conn, err := f.dial(ctx, place, 0)
	if err != nil {
		return
	}
	defer conn.Close()
	if isGrant(conn.Do("LOCK.ACQUIRE", f.key+":held", "another", "PX", millis(fenceLease))) {
		f.n.find("%s: two holders: the lock was held in the backup, and is granted to another where that was restored", f.key)
	}
}

// String lists the number of fences by place.
func (f *fences) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var each []string
	for place, served := range f.served { // sorted below
		each = append(each, fmt.Sprintf("%d through %s", served, place))
	}
	slices.Sort(each)
	return "(fences " + strings.Join(each, ", ") + ")"
}
