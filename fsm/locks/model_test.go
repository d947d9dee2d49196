package locks

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// TestModel makes random calls to the table and to the naive model. After each call it compares the replies, the
// events, the descriptions of all locks and sessions, and the time of the next due event. Every third program has a
// small budget, so that events run in several calls; then it compares only at the end.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			runModel(t, &dice{rand: r}, 300, seed%3 == 2)
		})
	}
}

// FuzzModel does the work of TestModel with numbers of a fuzzer.
func FuzzModel(f *testing.F) {
	fuzz(f, func(t *testing.T, d *dice, pieces bool) { runModel(t, d, 2000, pieces) })
}

func fuzz(f *testing.F, run func(t *testing.T, d *dice, pieces bool)) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 8))
		program := make([]byte, 400)
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		f.Add(program, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, program []byte, pieces bool) {
		if len(program) <= 4000 {
			run(t, &dice{bytes: program}, pieces)
		}
	})
}

// dice returns random numbers, or numbers from the bytes of a fuzzer.
type dice struct {
	rand  *rand.Rand
	bytes []byte
	over  bool
}

func (d *dice) n(n int) int {
	if d.rand != nil {
		return d.rand.IntN(n)
	}
	if len(d.bytes) == 0 {
		d.over = true
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

func (d *dice) one(in int) bool { return d.n(in) == 0 }

// twins has a table and its model, which receive the same calls.
type twins struct {
	t       *testing.T
	d       *dice
	table   *Table
	model   *naive
	pieces  bool
	tickets uint64
	log     []string
	kept    *Table
	old     *naive
	// present has the locks that were Created and not Removed.
	present, keptPresent map[string]bool
	told                 []Event // the events of the table that are not compared yet
	// ragged is set while a log entry may run out of budget, and loose while events are compared without their order. See
	// runEntries.
	ragged, loose bool
	// coarse is set if all times are multiples of coarseMillis, so that many events are due at one time. Each request is
	// then for one lock, since the table may settle the locks of a request in any order.
	coarse bool
	epochs map[string]uint64 // the current epoch of each node
	// ghosts are the owners that held a lock or waited for one before the log entries of the current time. aim is the
	// owner of the next call.
	ghosts []party
	aim    *party
}

var (
	modelKeys   = []string{"a", "b", "c"}
	modelOwners = []string{"ann", "bob", "cid", "dot", "eve"}
)

func newTwins(t *testing.T, d *dice, pieces bool) *twins {
	p := &twins{
		t: t, d: d, table: New(), model: newNaive(), pieces: pieces, present: map[string]bool{}, coarse: d.one(2),
		epochs: map[string]uint64{},
	}
	p.model.now = 1000
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program:\n%s", strings.Join(p.log[max(0, len(p.log)-40):], "\n"))
		}
	})
	return p
}

func runModel(t *testing.T, d *dice, calls int, pieces bool) {
	p := newTwins(t, d, pieces)
	for range calls {
		p.pass()
		p.copies()
		p.call()
		p.compare()
		p.estimate()
		if d.over {
			break
		}
	}
	p.end()
}

// pass advances the time, mostly by little.
func (p *twins) pass() {
	switch p.d.n(6) {
	case 0, 1:
		p.model.now += int64(p.d.n(40))
	case 2:
		p.model.now += int64(p.d.n(250))
	case 3:
		// The new time is exactly that of the next due event.
		if due, ok := p.table.NextDue(); ok {
			p.model.now = max(p.model.now, due-int64(p.d.n(2)))
		}
	}
	p.model.now = p.rounded(p.model.now)
	p.model.catchUp()
	p.drain()
	p.match("time " + fmt.Sprint(p.model.now))
}

// steps returns a random budget for a call.
func (p *twins) steps() int {
	if p.pieces || p.ragged {
		return p.d.n(3) * ChangeUnits
	}
	return enough
}

// minSteps is the smallest budget, in changes, with which each call makes progress: one to find the lock, one to grant
// it.
const minSteps = 2

// drain runs all due events.
func (p *twins) drain() {
	for i := 0; ; i++ {
		require.Less(p.t, i, 10_000, "the work never ends")
		p.table.Begin(p.model.now, max(minSteps*ChangeUnits, p.steps()))
		p.table.Sweep()
		if due, ok := p.table.NextDue(); !ok || due > p.model.now {
			return
		}
	}
}

// copies sometimes replaces the table by an earlier copy, or by a table that was loaded from its snapshot.
func (p *twins) copies() {
	switch p.d.n(40) {
	case 0:
		p.log = append(p.log, "copy")
		p.kept, p.old, p.keptPresent = p.table.Copy(), p.model.copy(), maps.Clone(p.present)
	case 1:
		if p.kept != nil && p.old.now == p.model.now {
			p.log = append(p.log, "back")
			p.table, p.model, p.present = p.kept, p.old, p.keptPresent
			p.kept = nil
		}
	case 2:
		p.log = append(p.log, "snapshot")
		p.table = reloaded(p.t, p.table)
		p.table.Begin(p.model.now, enough)
	}
}

func (p *twins) key() string {
	if p.aim != nil {
		return p.aim.key
	}
	return modelKeys[p.d.n(len(modelKeys))]
}

func (p *twins) owner() string {
	if p.aim != nil {
		return p.aim.owner
	}
	return modelOwners[p.d.n(len(modelOwners))]
}

func (p *twins) db() int {
	switch {
	case p.aim != nil:
		return p.aim.db
	case p.d.one(8):
		return 1
	}
	return 0
}

func (p *twins) client() Client {
	node := []string{"n1", "n2"}[p.d.n(2)]
	return Client{p.origin(node), int64(1 + p.d.n(3))}
}

// origin returns the current incarnation of a node.
func (p *twins) origin(node string) protocol.Incarnation {
	return protocol.Incarnation{Node: node, Epoch: 1 + p.epochs[node]}
}

// coarseMillis divides all times of a coarse program.
const coarseMillis = 20

// millis returns a random duration up to a maximum.
func (p *twins) millis(maximum int) int64 {
	return p.rounded(int64(1 + p.d.n(maximum)))
}

func (p *twins) rounded(millis int64) int64 {
	if p.coarse {
		millis = (millis + coarseMillis - 1) / coarseMillis * coarseMillis
	}
	return millis
}

func (p *twins) session() uint64 {
	if n := len(p.model.sessions); n > 0 && !p.d.one(6) {
		return p.model.sessions[p.d.n(n)].id
	}
	return uint64(1 + p.d.n(5))
}

// word makes a random call to the table and to the model, and returns a text of the call and both replies.
func (p *twins) word() (string, reply, reply) {
	words := []func() (string, reply, reply){
		p.acquire, p.acquire, p.acquire, p.acquire, p.acquire, p.acquire, p.release, p.release, p.renew, p.cancel, p.breaks,
		p.downgrade, p.downgrade,
		p.releaseAll, p.giveBack, p.open, p.keepAlive, p.attach, p.close, p.alive, p.gone, p.unblock, p.unblock,
		p.dropped, p.flush,
	}
	if p.ragged { // calls that affect many holds are more frequent
		words = append(words, p.close, p.close, p.gone, p.dropped, p.cancel, p.cancel, p.cancel, p.breaks, p.downgrade,
			p.unblock, p.flush, p.flush)
	}
	return words[p.d.n(len(words))]()
}

// call makes a random call to the table and to the model, and compares the replies and the events.
func (p *twins) call() {
	p.table.Begin(p.model.now, p.steps())
	text, want, got := p.word()
	p.model.pump()
	p.model.tidy()
	p.log = append(p.log, fmt.Sprintf("%d: %s -> %+v", p.model.now, text, got))
	if p.pieces {
		p.drain()
	}
	p.match(text)
	if want.grant != nil {
		want.fence, want.grant = want.grant.fence, nil
	}
	require.Equal(p.t, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got), text)
}

// goOn runs all due events, unless log entries may run out of budget.
func (p *twins) goOn() {
	if !p.ragged {
		p.drain()
	}
}

// end removes all waits, and advances the time until all holds and sessions have ended. It requires that the table is
// empty then.
func (p *twins) end() {
	p.model.now += 10_000
	p.model.catchUp()
	p.drain()
	for _, w := range slices.Clone(p.model.queue) {
		p.table.Begin(p.model.now, enough)
		name := waits.Name{Origin: w.Client.Origin, Ticket: w.Ticket}
		require.Equal(p.t, p.model.unblock(name, protocol.LeaveGone).ok, p.table.RemoveWaiter(name, protocol.LeaveGone))
	}
	for range 200 {
		p.model.now += 1000
		p.model.catchUp()
		p.drain()
	}
	p.match("the end")
	p.compare()
	stats := p.table.Stats()
	stats.Fences = 0
	require.Equal(p.t, Stats{Bytes: New().Bytes()}, stats)
	_, ok := p.table.NextDue()
	require.False(p.t, ok)
}

// line returns the text of an event for comparisons, without its key and database.
func line(e *Event) string {
	f := *e
	f.Key, f.DB, f.Err = "", 0, nil
	return fmt.Sprintf("%+v %v", f, e.Err)
}

// sequence returns the name of the sequence to which an event belongs: a wait, a session or a key. Events of different
// sequences have no common order.
func sequence(e *Event) string {
	switch e.Kind {
	case WaitEnded:
		return fmt.Sprintf("told %+v", e.Name)
	case SessionEnded:
		return fmt.Sprint("session ", e.Session)
	}
	return fmt.Sprintf("%d %s", e.DB, e.Key)
}

// hear takes the events of the table, and records which locks exist.
func (p *twins) hear() (heard []Event) {
	events := p.table.TakeEvents()
	for i := range events {
		if !p.cameOrWent(&events[i]) && events[i].Kind != Late { // a loaded table may repeat Late
			heard = append(heard, events[i])
		}
	}
	p.told = append(p.told, heard...)
	return heard
}

// match compares the events of the table with those of the model, and sets the fences of the model's grants. The events
// of each lock must have the same order.
func (p *twins) match(text string) {
	want, got, beside := map[string][]string{}, map[string][]string{}, map[string][]string{}
	grants := map[string][]*nGrant{}
	for i := range p.model.events {
		if e := &p.model.events[i]; e.Kind == Granted {
			name := sequence(&e.Event) + e.Owner
			grants[name] = append(grants[name], e.grant)
		}
	}
	p.hear()
	events := p.told
	p.told = nil
	for i := range events {
		e := &events[i]
		if e.Kind != Granted {
			continue
		}
		name := sequence(e) + e.Owner
		require.NotEmpty(p.t, grants[name], "%s: %s got %s", text, e.Owner, e.Key)
		g := grants[name][0]
		grants[name] = grants[name][1:]
		if g.fence == 0 {
			g.fence = e.Fence
		}
		require.Equal(p.t, g.fence, e.Fence, "one fence for all of a request")
	}
	for i := range events {
		if p.loose {
			p.soften(&events[i])
		}
		got[sequence(&events[i])] = append(got[sequence(&events[i])], line(&events[i]))
	}
	for i := range p.model.events {
		e := &p.model.events[i]
		if e.Kind == Created || e.Kind == Removed {
			continue
		}
		if e.grant != nil {
			e.Fence = e.grant.fence
		}
		if p.loose {
			p.soften(&e.Event)
		}
		name := sequence(&e.Event)
		want[name], beside[name] = append(want[name], line(&e.Event)), append(beside[name], e.beside)
	}
	for name := range want {
		if p.loose {
			clear(beside[name])
			slices.Sort(want[name])
			slices.Sort(got[name])
		}
		sortBeside(beside[name], want[name], got[name])
	}
	p.model.events = nil
	p.order(events)
	require.Equal(p.t, want, got, text)
}

// sortBeside sorts each run of events that may come in any order among themselves.
func sortBeside(runs []string, lines ...[]string) {
	for from := 0; from < len(runs); {
		to := from + 1
		for to < len(runs) && runs[to] == runs[from] {
			to++
		}
		for _, l := range lines {
			if runs[from] != "" && to <= len(l) {
				slices.Sort(l[from:to])
			}
		}
		from = to
	}
}

// cameOrWent reports whether an event is Created or Removed, and records which locks exist. The caller does not compare
// such events: with a small budget the table may make and remove a lock, and the model not.
func (p *twins) cameOrWent(e *Event) bool {
	name := sequence(e)
	switch e.Kind {
	case Created:
		require.False(p.t, p.present[name], "%s came twice", name)
		p.present[name] = true
	case Removed:
		require.True(p.t, p.present[name], "%s went and had not come", name)
		delete(p.present, name)
	}
	return e.Kind == Created || e.Kind == Removed
}

// order requires that each fence is larger than all before.
func (p *twins) order(events []Event) {
	var last uint64
	for i := range events {
		if e := &events[i]; e.Kind == Granted {
			require.GreaterOrEqual(p.t, e.Fence, last, "fences in the order of grants")
			last = e.Fence
		}
	}
}

// compare compares the answers of the table with those of the model.
func (p *twins) compare() {
	now := p.model.now
	require.NoError(p.t, p.table.Verify())
	for db := range 2 {
		for _, key := range modelKeys {
			want := p.model.info(db, key)
			got := p.table.Info(db, key, now, enough)
			require.Equal(p.t, want, got, "%d %s", db, key)
			require.Equal(p.t, want != nil, p.table.Has(db, key))
			require.Equal(p.t, want != nil, p.present[fmt.Sprintf("%d %s", db, key)], "%d %s", db, key)
			p.left(db, key, want)
			if got != nil {
				safe(p.t, got)
			}
			p.fences(db, key)
		}
	}
	p.queues()
	for account := 1; account < 3; account++ {
		n := 0
		for _, w := range p.model.queue {
			if int(w.Account) == account {
				n++
			}
		}
		require.Equal(p.t, n, p.table.WaitersOf(account), "account %d", account)
	}
	all := make(map[string][]SessionInfo)
	for id := range p.model.lastID + 1 {
		want := p.model.sessionInfo(id)
		require.Equal(p.t, want, p.table.Session(id, now), "session %d", id)
		for _, user := range users {
			may := user == "" || want != nil && want.User == user
			if may && want != nil {
				all[user] = append(all[user], *want)
			}
			if want != nil || may {
				require.Equal(p.t, may, p.table.MayUse(id, user), "session %d of %q", id, user)
			}
		}
	}
	for _, user := range users {
		var rows []SessionInfo
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var page []SessionInfo
			page, cursor, _ = p.table.Sessions(user, cursor, 2, now)
			rows = append(rows, page...)
		}
		require.Equal(p.t, all[user], rows, "sessions of %q", user)
	}
	want := int64(noDeadline)
	if all := p.model.timers(); len(all) > 0 {
		want = slices.MinFunc(all, func(a, b nDue) int { return cmp.Compare(a.at, b.at) }).at
	}
	due, ok := p.table.NextDue()
	if want == noDeadline {
		require.False(p.t, ok, "due %d", due)
	} else {
		require.True(p.t, ok)
		require.LessOrEqual(p.t, due, want+1, "a thing due is not known")
	}
	p.model.tidy()
}

// fences compares the fences of all owners' holds.
func (p *twins) fences(db int, key string) {
	for _, owner := range modelOwners {
		var fence uint64
		if h := p.model.lock(db, key).holdOf(owner); h != nil {
			fence = h.grant.fence
		}
		require.Equal(p.t, fence, p.table.FenceOf(db, key, owner, p.model.now))
	}
}

// left compares LeaseLeftMillis with the holds of the model.
func (p *twins) left(db int, key string, want *Info) {
	longest := int64(0)
	if want != nil {
		for _, h := range want.Holds {
			if longest = max(longest, h.LeftMillis); h.Session != 0 {
				longest = -1
				break
			}
		}
	}
	millis, ok := p.table.LeaseLeftMillis(db, key, p.model.now)
	require.Equal(p.t, want != nil && len(want.Holds) > 0, ok, "%d %s", db, key)
	require.Equal(p.t, longest, millis, "%d %s", db, key)
}

// queues compares the lengths of all queues.
func (p *twins) queues() {
	var want, got []string
	for db := range 2 {
		for _, key := range modelKeys {
			if n := p.model.inLine(db, key); n > 0 {
				want = append(want, fmt.Sprint(key, n))
			}
		}
	}
	p.table.EachQueue(func(key string, waiters int) { got = append(got, fmt.Sprint(key, waiters)) })
	require.ElementsMatch(p.t, want, got)
}

// safe requires that an exclusive hold is the only one, that all holds have the same mode, and that no owner has two
// holds.
func safe(t *testing.T, i *Info) {
	owners := map[string]bool{}
	for _, h := range i.Holds {
		require.False(t, owners[h.Owner], "%s holds %s twice", h.Owner, i.Key)
		owners[h.Owner] = true
		require.True(t, len(i.Holds) == 1 || h.Mode != Exclusive && h.Mode == i.Holds[0].Mode, "%+v", i)
	}
}
