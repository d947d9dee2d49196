package fsm

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// The snapshot stream, version 1. Signed numbers are varints, other numbers are uvarints. Bytes are a uvarint, the
// length, and then that many bytes. Equal states give equal bytes.
//
//	8 bytes   "HOLDFAST"
//	uvarint   version
//	uvarint   version of the cluster: the newest version of all applied entries, or 0 before the first entry
//	varint    cluster time
//	varint    wall offset
//	uvarint   the last version that was issued to a key
//	16 times  uvarint version at which the database was last swapped
//	uvarint   number of places of new keys that have a version, each, in order:
//	            uvarint place, version
//	uvarint   number of sessions, each, in the order of names:
//	            bytes node, uvarint epoch, low, number of applied ranges, (from, until)*
//	uvarint   the last number of an incarnation that was issued, number of known incarnations, each, in their order:
//	            uvarint number, bytes node, uvarint epoch
//	uvarint   number of accounts, each, in the order of their numbers: bytes user
//	uvarint   number of scripts, each, in the order of SHA-1:
//	            bytes source, uvarint turn (0 if SCRIPT LOAD loaded it)
//	uvarint   the last turn that was issued to a script
//	uvarint   flags of notify-keyspace-events
//	16 times  uvarint number of keys, each, in the order of (hash, key):
//	            bytes key, uvarint kind, the value, uvarint deadline, version,
//	            uvarint 0, 1 more if a mark follows, 2 more if an account follows, and then
//	            the mark:     varint since, uvarint lease, incarnation, connection, renewals
//	            the account:  uvarint number
//	            a string:     bytes value, uvarint encoding
//	            a collection: uvarint number of words, bytes each: see keyspace.Collection.Save
//	            a lock:       uvarint 0
//	the requests that wait: see snapshot_waits.go
//	the lock table, and its history: see snapshot_locks.go
//	32 bytes  SHA-256 of all bytes before
const (
	snapshotMagic   = "HOLDFAST"
	snapshotVersion = 1
)

// Snapshot is the immutable state of a machine at one time.
type Snapshot interface {
	// Keys counts the keys, including those that have ended and are not removed.
	Keys() (n int)
	// Locks counts the native locks.
	Locks() int
	// Version is the version of the cluster: see [Machine.Version].
	Version() byte
	// ClockMillis is the cluster time of the state.
	ClockMillis() int64
	// WriteTo writes the stream that [Machine.Restore] reads.
	WriteTo(w io.Writer) (int64, error)
	// Hash is the [Machine.Hash] of the state.
	Hash() string
}

type snapshot struct {
	version          byte
	clockMillis      int64
	wallOffsetMillis int64
	versions         uint64
	sessions         sessions
	incarnations     incarnations
	accounts         []string
	scripts          scriptCache
	waits            *waits.Table
	locks            *locks.Table
	history          lockHistory
	databases        [protocol.MaxDatabases]keyspace.Captured
	swaps            [protocol.MaxDatabases]uint64
	newKeys          command.NewKeyVersions
	notifies         event.Classes
}

func (m *machine) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.st.capture()
}

func (s *snapshot) Keys() (n int) {
	for i := range s.databases {
		n += s.databases[i].Len()
	}
	return n
}

func (s *snapshot) Locks() int { return s.locks.Len() }

func (s *snapshot) Version() byte { return max(s.version, protocol.OldestEntryVersion) }

func (s *snapshot) ClockMillis() int64 { return s.clockMillis }

func (s *snapshot) WriteTo(w io.Writer) (int64, error) {
	sw := snapshotWriter{sum: sha256.New(), out: bufio.NewWriterSize(w, 1<<16)}
	sw.state(s)
	sw.raw(sw.sum.Sum(nil))
	if sw.err == nil {
		sw.err = sw.out.Flush()
	}
	return sw.written, sw.err
}

func (m *machine) Hash() string {
	return m.Snapshot().Hash()
}

func (s *snapshot) Hash() string {
	sw := snapshotWriter{sum: sha256.New(), out: bufio.NewWriter(io.Discard)}
	sw.state(s)
	return hex.EncodeToString(sw.sum.Sum(nil))
}

func (w *snapshotWriter) state(s *snapshot) {
	w.buf = append(w.buf, snapshotMagic...)
	w.uint(snapshotVersion)
	w.uint(uint64(s.version))
	w.int(s.clockMillis)
	w.int(s.wallOffsetMillis)
	w.uint(s.versions)
	for _, version := range s.swaps {
		w.uint(version)
	}
	w.newKeys(&s.newKeys)
	w.uint(uint64(len(s.sessions)))
	for _, each := range s.sessions {
		w.session(each)
	}
	w.incarnations(&s.incarnations)
	w.accounts(s.accounts)
	w.scripts(s.scripts)
	w.uint(uint64(s.notifies))
	for i := range s.databases {
		w.database(&s.databases[i])
	}
	w.waits(s.waits)
	s.locks.Save(lockWriter{w})
	w.history(&s.history)
	w.flush(0)
}

func (w *snapshotWriter) newKeys(vs *command.NewKeyVersions) {
	w.uint(vs.Count())
	for place, version := range vs {
		if version != 0 {
			w.uint(uint64(place))
			w.uint(version)
			w.flush(1 << 15)
		}
	}
}

func (w *snapshotWriter) session(s *session) {
	w.string(s.node)
	w.uint(s.epoch)
	w.uint(s.low)
	w.uint(uint64(len(s.applied)))
	for _, applied := range s.applied {
		w.uint(applied.from)
		w.uint(applied.until)
	}
}

func (w *snapshotWriter) scripts(sc scriptCache) {
	w.uint(uint64(sc.bySHA.Len()))
	sc.bySHA.Scan(func(_ string, s *script) bool {
		w.string(s.source)
		w.uint(s.turn)
		return true
	})
	w.uint(sc.turns)
}

func (w *snapshotWriter) database(d *keyspace.Captured) {
	w.uint(uint64(d.Len()))
	d.Ascend(func(it *keyspace.Item) bool {
		w.string(it.Key())
		w.uint(uint64(it.Kind()))
		if v := it.Collection(); v != nil {
			w.collection(v)
		} else {
			w.string(it.Value())
			w.uint(uint64(it.Encoding()))
		}
		w.uint(uint64(it.DeadlineMillis))
		w.uint(it.Version())
		w.mark(it)
		return w.err == nil
	})
}

func (w *snapshotWriter) collection(v keyspace.Collection) {
	w.uint(uint64(v.SavedWords()))
	v.Save(func(word string) bool {
		w.string(word)
		return w.err == nil
	})
}

// capture returns a snapshot of the state, in constant time.
func (st *state) capture() *snapshot {
	st.Generation++
	s := &snapshot{
		version:          st.version,
		clockMillis:      st.ClockMillis,
		wallOffsetMillis: st.wallOffsetMillis,
		versions:         st.Versions,
		newKeys:          st.NewKeys,
		swaps:            st.Swaps,
		sessions:         st.sessions.copy(),
		incarnations:     st.incarnations.copy(),
		accounts:         slices.Clone(st.accounts.users),
		scripts:          st.scripts.copy(),
		waits:            st.Waits.Copy(),
		locks:            st.Locks.Copy(),
		history:          st.history,
		notifies:         st.Notifies,
	}
	for i, d := range st.Databases {
		s.databases[i] = d.Capture()
	}
	return s
}
