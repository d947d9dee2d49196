package fsm

import (
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/invariant"
)

// Machine is the replicated state machine of a node. A Machine is safe for concurrent use: entries are applied one
// after another, reads run beside each other and between entries. Machine is an interface to spare other packages the
// compilation of its trees: see DESIGN.md.
type Machine interface {
	// Apply runs a log entry. An error means that the entry is corrupt, or of a newer release. The node must stop then,
	// or its state would differ from the other nodes'.
	Apply(data []byte, sink Sink) error
	// Prepare compiles the large sources of scripts in a log entry that is about to be applied, while the machine is free
	// for reads: see [protocol.LargeScript]. Without Prepare, Apply compiles them.
	Prepare(data []byte)
	// PrepareBatch is Prepare for the body of a batch, which is not in an entry yet.
	PrepareBatch(body []byte)
	// Compile compiles a source. The client's reply has the text of the error. A node compiles a script before it proposes
	// the script, so that the log has no invalid sources.
	Compile(source string) error
	// Compiled reports whether Compile has the source in its cache.
	Compiled(source string) bool
	// ScriptWork estimates the work of a script with such keys and arguments, by its last run in an entry on this node.
	// It returns 0 if that run did less than [MuchWork]. word is the source or the SHA of the script.
	ScriptWork(word []byte, words [][]byte) int64
	// Applied reports whether a batch was applied, or never will be since its node has given it up.
	Applied(o protocol.Incarnation, seq uint64) bool
	// Incarnation returns the newest epoch of a node that had a batch applied, or 0.
	Incarnation(node string) uint64
	// SeedReads seeds the random numbers of reads with this node's incarnation o, so that they differ between
	// incarnations. In events, batches and waiters of o then count as this node's own.
	SeedReads(o protocol.Incarnation)
	// Listen selects the events that the sink takes from the next entry on.
	Listen(i event.Interest)

	// Read runs count requests of the Read route, and scripts that only read, at cluster time nowMillis: the leader's
	// estimate, which is not before the clock. rest has the requests that did not fit into class: the caller reads them
	// again with ReadLong. due reports that a request met a key that is due at nowMillis, but not by the log. The replies
	// are void then: the caller commits a stamp and reads again. If the log has that stamp, entries have left the key for
	// later, and the caller commits the requests.
	//
	// An error means that body is corrupt, or has a request that writes.
	Read(body string, count int, nowMillis, wallOffsetMillis int64, class ReadClass) (replies []protocol.Value,
		rest string, due bool, err error)
	// IsNoop reports whether body is one request that would only be refused, or only wait, if applied at nowMillis, so it
	// changes nothing for other clients. Entries that are applied before may change the answer. It may be true for SETNX,
	// SET with NX, blocking commands and requests for locks: see [protocol.Hints]. It is false for a request with NOTIFY,
	// since other callers share its connection, and wait behind it.
	IsNoop(body string, nowMillis int64) bool

	// Version returns the version of the cluster: the version by which reads run, and the least that the next entry may
	// have. It is [protocol.OldestEntryVersion] at least, and never falls. fresh: no entry was applied yet. Version does
	// not wait for the present entry, which may run a script for seconds.
	Version() (version byte, fresh bool)
	// Clock returns cluster time, and Unix time minus cluster time, of the newest entry.
	Clock() (stampMillis, wallOffsetMillis int64)
	// NextDue returns the first instant of cluster time at which a key or a wait is due, one millisecond after its
	// deadline. The instant is past while entries have ended keys to remove, or waiters to serve.
	NextDue() (dueMillis int64, ok bool)

	// Waits reports whether a client of an incarnation of a node waits under the ticket, for a key or for a lock.
	Waits(o protocol.Incarnation, ticket uint64) bool
	// WaitingIncarnations returns the incarnations of nodes whose clients wait, ordered by node and epoch.
	WaitingIncarnations() []protocol.Incarnation
	// Waiting reports whether a client of any node waits.
	Waiting() bool
	// KeptSessions calls f with the sessions that are attached to connections of this node: see [Machine.SeedReads].
	KeptSessions(f func(conn int64, session uint64, leaseMillis int64))

	// Snapshot captures the state in constant time. [Snapshot.WriteTo] may run while entries are applied.
	Snapshot() Snapshot
	// Restore replaces the state by that of a stream. It returns an error and changes nothing if the stream is truncated,
	// damaged, or of a newer release. [Machine.Skipped] has events afterwards.
	Restore(r io.Reader) error
	// Skipped returns events about holds that ended in entries that Restore skipped. Each event is returned once.
	Skipped() []event.Event
	// Renew makes the state the first one of another cluster: it has no waiters and no sessions of nodes, no lease is
	// shorter than it was, and later fences of native locks are new. After an error the machine is unusable.
	Renew(r Renewal) (Renewed, error)

	// Hash returns a hexadecimal hash of the state, which is equal on nodes that have applied the same entries.
	Hash() string
	// Stats returns counts of the machine.
	Stats() Stats
	// LockStats counts the locks.
	LockStats() LockStats
	// ClassifyLocks sets the patterns of lock classes, at most [MaxLockClasses]. The counts begin anew.
	ClassifyLocks(patterns []string)
	// LockClasses returns the counts of each class since the start of this node. The last class has all other locks.
	LockClasses() []LockClass
	// StockWaiters returns the clients that poll for a stock lock, as far as this node remembers them.
	StockWaiters(db int, key string) []StockWaiter
	// Survey examines the whole state. fenceKeys limits Survey.FenceKeys. No entry is applied meanwhile.
	Survey(fenceKeys int) Survey
}

// New returns a machine without keys, at cluster time 0.
func New() Machine { return newMachine() }

// Sink receives the replies of the batches that clients of this node wait for. Apply calls it while the machine is
// locked, so it must not call the machine.
type Sink interface {
	// Wanted reports whether a client of this node waits for the replies of a batch. If not, Apply skips the reads of the
	// batch.
	Wanted(o protocol.Incarnation, seq uint64) bool
	// Done receives the replies of a wanted batch, one for each request, in order. If there are fewer replies, the other
	// requests did not fit into the budget of the batch or the entry. They were not applied, and may be proposed again in
	// another batch. If applied is false, the batch was applied before or never will be, and there are no replies. The
	// sink owns the slice.
	Done(o protocol.Incarnation, seq uint64, replies []protocol.Value, applied bool)
	// Events receives the events of an entry, in order, after the last batch. Apply does not call it without events. The
	// slice is valid during the call.
	Events(events []event.Event)
}

// Discard is the sink of a machine without clients and listeners.
type Discard struct{}

// Wanted implements [Sink]: no client waits.
func (Discard) Wanted(protocol.Incarnation, uint64) bool { return false }

// Done implements [Sink].
func (Discard) Done(protocol.Incarnation, uint64, []protocol.Value, bool) {}

// Events implements [Sink].
func (Discard) Events([]event.Event) {}

func (m *machine) SeedReads(o protocol.Incarnation) {
	m.draws.Store(xxh3.HashStringSeed(o.Node, o.Epoch))
	m.call.thisNode = o
}

func (m *machine) Listen(i event.Interest) { m.interest.Store(uint32(i)) }

func (m *machine) Apply(data []byte, sink Sink) error {
	entry, err := protocol.DecodeEntry(string(data))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.call
	c.listen(event.Interest(m.interest.Load()))
	entry.Version = m.st.raiseVersion(entry.Version)
	m.version.Store(uint32(entry.Version))
	c.use(m.st, m.ops)
	c.EntryVersion = entry.Version
	c.advance(&entry)
	c.NowMillis, c.WallOffsetMillis = m.st.ClockMillis, m.st.wallOffsetMillis
	c.limitMemory(&entry.Limits)
	c.limitScripts(entry.Limits.ScriptSteps)
	c.bounds = m.budgets
	c.writeBudget, c.readBudget, c.wakeBudget = newBudget(c.bounds.entry), newBudget(c.bounds.reads),
		newBudget(c.bounds.serving)
	c.lockWorkLeft = c.bounds.lockChanges
	c.prefetch.start(entry, m.st)
	c.beginWaits()
	c.sweepLocks()
	err = c.runEntry(&entry, sink)
	c.EndLockEvents()
	m.countLookups(c)
	m.expired += uint64(c.Ended)
	m.peak = max(m.peak, m.st.usedBytes())
	if err != nil {
		return err
	}
	if invariant.On {
		m.verify()
	}
	if len(c.LockChanges) > 0 {
		c.Events = append(c.Events, event.Event{Kind: event.LocksChanged, Changes: c.LockChanges})
	}
	if len(c.Events) > 0 {
		sink.Events(c.Events)
	}
	return nil
}

func (c *call) runEntry(entry *protocol.Entry, sink Sink) error {
	var b protocol.Batch
	for {
		more, err := entry.Next(&b)
		if err != nil || !more {
			return err
		}
		if b.Origin.Node == "" {
			c.st.Locks.AddSecret(b.Body)
			continue
		}
		wanted := sink.Wanted(b.Origin, b.Seq)
		if !c.st.sessions.begin(&b) {
			if wanted {
				sink.Done(b.Origin, b.Seq, nil, false)
			}
			continue
		}
		c.Quiet = !wanted
		c.beginBatch(&b)
		c.endPreviousIncarnations(b.Origin)
		replies, err := c.runBatch(&b)
		c.endBatch()
		if err != nil {
			return fmt.Errorf("apply batch %d of node %q: %w", b.Seq, b.Origin.Node, err)
		}
		if wanted {
			sink.Done(b.Origin, b.Seq, replies, true)
		}
	}
}

// runBatch runs as many requests of a batch as the budgets allow. A quiet batch skips the reads.
func (c *call) runBatch(b *protocol.Batch) (replies []protocol.Value, err error) {
	r := protocol.Request{Args: c.Args[:0]}
	number := b.Seq << 20
	c.origin, c.seq, c.scripted = b.Origin, b.Seq, [2]uint64{}
	c.replies = c.replies[:0]
	c.writeBudget.open(c.bounds.batch)
	c.readBudget.open(c.bounds.batch)
	for body := b.Body; body != ""; number++ {
		rest, err := protocol.NextRequest(body, &r)
		if err != nil {
			return nil, err
		}
		c.prefetch.step(c.st)
		c.Work, c.Ceiling = price(&r, len(body)-len(rest)), c.writeBudget.ceiling()
		if c.Work > c.Ceiling || c.st.Waits.HasReady() {
			break
		}
		body = rest
		writes := c.writes(r.Args[0])
		if !writes && c.Quiet {
			c.writeBudget.left -= c.Work
			continue
		}
		c.begin(&r, number)
		var reply protocol.Value
		counted := c.Lookups
		if writes {
			c.openAccount(&r.Quota)
			reply = c.run()
			c.closeAccount()
		} else {
			reply = c.readInEntry()
		}
		c.writeBudget.left -= c.Work
		if c.OverBudget {
			c.OverBudget, c.Lookups = false, counted
			break
		}
		if !c.Quiet {
			c.replies = append(c.replies, reply)
		}
		if c.st.Waits.HasReady() {
			c.serve()
			c.origin, c.seq = b.Origin, b.Seq
		}
	}
	c.Args = r.Args
	if len(c.replies) > 0 {
		// The sink owns the copy. c.replies keeps its memory for the next batch.
		replies = slices.Clone(c.replies)
		clear(c.replies)
	}
	return replies, nil
}

// ReadClass bounds the time of a call of [Machine.Read].
type ReadClass bool

const (
	// ReadShort suffices for most requests. Any number of such calls may run at the same time.
	ReadShort ReadClass = false
	// ReadLong allows more, and the first request as much as it takes. One such call runs at a time, since entries wait
	// for it.
	ReadLong ReadClass = true
)

func (m *machine) Read(body string, count int, nowMillis, wallOffsetMillis int64,
	class ReadClass,
) (replies []protocol.Value, rest string, due bool, err error) {
	m.prepareRead(body)
	c := m.readers.Get().(*call)
	c.readWatch = &m.call.watch
	defer func() {
		c.st, c.Keys = nil, nil // a state that was replaced meanwhile must not be kept
		c.Lookups = command.Lookups{}
		m.readers.Put(c)
	}()
	m.mu.RLock()
	defer m.mu.RUnlock()
	c.use(m.st, m.ops)
	c.Reading, c.HasDue = true, false
	c.NowMillis, c.WallOffsetMillis = max(nowMillis, m.st.ClockMillis), wallOffsetMillis
	c.EntryVersion = m.st.readVersion()
	c.scriptSteps = m.call.scriptSteps
	if class == ReadShort {
		c.writeBudget, c.readBudget = newOwnBudget(m.budgets.readShort), newOwnBudget(m.budgets.batch)
	} else {
		c.writeBudget, c.readBudget = newBudget(m.budgets.readLong), newBudget(m.budgets.readLong)
	}
	r := protocol.Request{Args: c.Args[:0]}
	replies = make([]protocol.Value, 0, min(count, len(body)))
	for body != "" {
		rest, err := protocol.NextRequest(body, &r)
		if err != nil {
			return nil, "", false, err
		}
		if c.writes(r.Args[0]) {
			return nil, "", false, fmt.Errorf("read %q: it writes", r.Args[0])
		}
		work := price(&r, len(body)-len(rest))
		if work > c.writeBudget.ceiling() {
			break
		}
		c.writeBudget.left -= work
		c.begin(&r, m.draws.Add(1))
		counted := c.Lookups
		reply := c.runRead()
		if c.HasDue {
			c.OverBudget = false
			return nil, "", true, nil
		}
		if c.OverBudget {
			c.OverBudget, c.Lookups = false, counted
			break
		}
		replies, body = append(replies, reply), rest
	}
	c.Args = r.Args
	m.countLookups(c)
	return replies, body, false, nil
}

func (m *machine) Version() (version byte, fresh bool) {
	version = byte(m.version.Load())
	return max(version, protocol.OldestEntryVersion), version == 0
}

func (m *machine) Clock() (stampMillis, wallOffsetMillis int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.ClockMillis, m.st.wallOffsetMillis
}

func (m *machine) NextDue() (dueMillis int64, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.nextDue()
}

func (m *machine) Incarnation(node string) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if i, known := m.st.sessions.find(node); known {
		return m.st.sessions[i].epoch
	}
	return 0
}

func (m *machine) Applied(o protocol.Incarnation, seq uint64) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.st.sessions.done(o, seq)
}

func newMachine() *machine {
	m := &machine{ops: newBindings(), st: newState(), budgets: defaultBudgets()}
	m.byRow = m.ops.byRow()
	m.call.init(m)
	m.call.limitScripts(0)
	m.readers.New = func() any {
		c := new(call)
		c.init(m)
		return c
	}
	return m
}
