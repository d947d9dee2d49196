package fsm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

func (m *machine) Restore(r io.Reader) error {
	st, err := readState(r)
	if err != nil {
		return fmt.Errorf("restore state: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skipped = append(m.skipped, lostBetween(m.st, st, m.call.thisNode)...)
	m.st, m.call.incarnation = st, protocol.Incarnation{}
	m.version.Store(uint32(st.version))
	return nil
}

func (m *machine) Skipped() []event.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.skipped
	m.skipped = nil
	return events
}

// readState reads and checks a whole stream.
func readState(r io.Reader) (*state, error) {
	sr := snapshotReader{in: bufio.NewReaderSize(r, 1<<16), sum: sha256.New()}
	st := sr.state()
	want := sr.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(sr.in, got); err != nil {
		sr.broke("checksum", err)
	}
	if sr.err == nil && !bytes.Equal(want, got) {
		sr.fail("checksum differs")
	}
	switch _, err := sr.in.ReadByte(); err {
	case nil:
		sr.fail("bytes after the end")
	case io.EOF:
	default:
		sr.broke("end", err)
	}
	return st, sr.err
}

func (r *snapshotReader) state() *state {
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(r.in, magic); err != nil {
		r.broke("first bytes", err)
		return nil
	}
	if string(magic) != snapshotMagic {
		r.fail("it does not begin as one")
		return nil
	}
	r.sum.Write(magic)
	switch version := r.uint("version"); {
	case r.err != nil:
	case version == 0:
		r.fail("version")
	case version > snapshotVersion:
		r.err = fmt.Errorf("snapshot has version %d, this node knows %d: %s", version, snapshotVersion,
			protocol.NewerAdvice)
		return nil
	}
	st := newState()
	r.head(st)
	st.ClockMillis = r.int("cluster time")
	st.wallOffsetMillis = r.int("wall offset")
	for _, d := range st.Databases {
		d.Advance(st.ClockMillis)
	}
	if st.Versions = r.uint("versions"); st.Versions > keyspace.MaxVersion {
		r.fail("versions")
	}
	for i := range st.Swaps {
		st.Swaps[i] = r.version(st, "swap")
	}
	r.newKeys(st)
	for n := r.uint("sessions"); n > 0 && r.err == nil; n-- {
		r.session(st)
	}
	r.incarnations(st)
	r.accounts(st)
	r.scripts(st)
	r.settings(st)
	for i := range protocol.MaxDatabases {
		r.database(st, i)
	}
	r.waits(st)
	r.locks(st)
	r.history(st)
	st.sumItems()
	return st
}

// head reads the version of the cluster.
func (r *snapshotReader) head(st *state) {
	version := r.uint("version of the cluster")
	switch {
	case r.err != nil:
	case version > math.MaxUint8:
		r.fail("version of the cluster")
	case version > protocol.EntryVersion:
		r.err = protocol.NewerError("snapshot is of a cluster of", byte(version))
	default:
		st.version = byte(version)
	}
}

// settings reads the settings of the state.
func (r *snapshotReader) settings(st *state) {
	notifies := r.uint("classes of events")
	if notifies > uint64(event.AllClasses) {
		r.fail("settings")
		return
	}
	st.Notifies = event.Classes(notifies)
}

func (r *snapshotReader) newKeys(st *state) {
	next := uint64(0)
	for n := r.uint("new keys"); n > 0 && r.err == nil; n-- {
		place, version := r.uint("new key"), r.version(st, "new key")
		if place < next || place >= uint64(len(st.NewKeys)) || version == 0 {
			r.fail("new keys")
			return
		}
		st.NewKeys[place] = version
		next = place + 1
	}
}

func (r *snapshotReader) session(st *state) {
	s := &session{node: r.string("node"), epoch: r.uint("epoch"), low: r.uint("low")}
	if n := len(st.sessions); n > 0 && st.sessions[n-1].node >= s.node {
		r.fail("sessions are out of order")
	}
	for n := r.uint("range"); n > 0 && r.err == nil; n-- {
		s.applied = append(s.applied, appliedRange{r.uint("range"), r.uint("range")})
	}
	if r.err == nil && s.verify() != nil {
		r.fail("ranges of a session are out of order")
	}
	st.sessions = append(st.sessions, s)
}

// scripts reads the sources and compiles them, since the stream has no programs.
func (r *snapshotReader) scripts(st *state) {
	sc := &st.scripts
	var previous string
	for n := r.uint("scripts"); n > 0 && r.err == nil; n-- {
		source, turn := r.string("script"), r.uint("script")
		if r.err != nil {
			return
		}
		sha := scriptSHA(source)
		if _, taken := sc.byTurn.Get(turn); sha <= previous || taken {
			r.fail("scripts are out of order")
			return
		}
		previous = sha
		sc.add(compile(source, sha, turn))
	}
	sc.turns = r.uint("script turns")
	if _, newest, some := sc.byTurn.Max(); some && newest.turn > sc.turns {
		r.fail("script turns")
	}
}

func (r *snapshotReader) database(st *state, db int) {
	d := st.Databases[db]
	var prev keyspace.Item
	keys := r.uint("keys")
	d.Expect(int(min(keys, math.MaxInt)))
	for n := keys; n > 0; n-- {
		it := r.item(st)
		if r.err != nil {
			return
		}
		if prev.Version() != 0 && !prev.Before(&it) {
			r.fail("keys are out of order")
			return
		}
		if it.IsLock() {
			r.marked = append(r.marked, markedLock{db, it.LockText()})
		}
		prev = it
		d.Put(&it)
	}
	d.Expect(0)
}

// item reads an item. It is empty after an error.
func (r *snapshotReader) item(st *state) (it keyspace.Item) {
	r.buf = r.buf[:0]
	r.bytes("key")
	switch kind := r.uint("kind"); {
	case r.err != nil:
		return it
	case kind == uint64(keyspace.KindString):
		keyLen := len(r.buf)
		r.bytes("value")
		enc := r.encoding()
		it = keyspace.ItemOf(r.buf, keyLen, enc)
	case kind == uint64(keyspace.KindLock):
		it = r.marker(st)
		r.mark(st, &it)
		return it
	default:
		key := string(r.buf)
		v := r.collection(kind)
		if v == nil {
			return it
		}
		it = keyspace.NewCollection(keyspace.Hash(key), key, v, command.Never, st.Generation)
	}
	r.deadlineAndVersion(st, &it)
	r.mark(st, &it)
	return it
}

func (r *snapshotReader) encoding() keyspace.Encoding {
	enc := r.uint("encoding")
	if enc >= uint64(keyspace.EncodingCount) {
		r.fail("encoding")
		return keyspace.EncodingAuto
	}
	return keyspace.Encoding(enc)
}

// collection reads a collection, word by word. The result is nil after an error.
func (r *snapshotReader) collection(kind uint64) keyspace.Collection {
	words := r.uint("number of words")
	if r.err == nil && (kind > math.MaxUint8 || words > math.MaxInt) {
		r.fail("collection")
	}
	if r.err != nil {
		return nil
	}
	v, err := collection.Load(keyspace.Kind(kind), int(words), func() (string, error) {
		word := r.string("word")
		return word, r.err
	})
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %w", ErrCorruptSnapshot, err)
	}
	if r.err != nil {
		return nil
	}
	return v
}
