package raftnode

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// recentLogs is how many of the newest entries are kept in memory, if they are not too large
// (recentBytes). Each is read once per follower, right after the append. recentLogs also bounds how
// many entries a leader's disk may be behind.
const recentLogs = 32

// parallelLog is the log as raft sees it. While this node leads, entries go to the node's disk and
// to the followers at the same time (Ongaro's thesis, section 10.2.1): an append returns at once,
// and what raft appends meanwhile goes to the disk together.
//
// Raft counts an appended entry as this node's before the disk has the entry. Nothing may follow
// from that before it is true:
//   - An entry is committed when a follower's acknowledgement completes a majority. The acknowledgement
//     is held back until the entry is on this node's disk, too ([transport.AppendEntries]).
//   - A former leader may acknowledge as a follower what the same node appended as a leader. So raft gets another
//     leader's request when everything appended before is on the disk ([rpcFilter.pass]).
//
// A single voter appends as usual: no acknowledgement could be held back. So does a leader that appends a
// configuration: under the new one this node may be all that is needed for what was appended before.
type parallelLog struct {
	keeps atomic.Bool // entries behind a snapshot that is installed stay: see [Node.ReplaceState]
	store raft.LogStore
	// fail tells the owner: an append that failed cannot be taken back from raft.
	fail func(error)
	// leads reports whether this node leads, as raft's main loop sees it. While leads is not set,
	// appends are as usual.
	leads atomic.Pointer[func() bool]
	// bounds is how far entries are committed, as this node knows, and where its newest snapshot ends. While bounds
	// is not set, this node knows of none.
	bounds atomic.Pointer[func() (committed, snapshot uint64, err error)]

	// applied returns the index of the newest entry that the state machine has; nil in tests: no entry is far ahead.
	applied func() uint64

	mu      sync.Mutex
	written sync.Cond // the queue became shorter, or err was set
	// queue holds the entries that are not in the store, in order. The append to an empty queue
	// started the goroutine that writes the queue.
	queue  []*raft.Log
	recent [recentLogs]*raft.Log // an entry is at index modulo the length
	sizes  logSizes
	err    error // of the write that failed

	placeholder []byte // in place of the data of a stripped entry

	// configurations is told of what comes and goes; nil in tests.
	configurations *configurations
}

var _ raft.MonotonicLogStore = (*parallelLog)(nil)

// laggingTimes is how much more of the log than usual a snapshot leaves for a member that lags.
const laggingTimes = 4

// laggingFor is how long a member that gets a snapshot may acknowledge nothing before the log is cut as if it got none.
const laggingFor = 10 * time.Second

// newParallelLog returns the log over store. About trailingBytes of entries are kept over a snapshot, and laggingTimes
// as many while a member needs them.
func newParallelLog(store raft.LogStore, trailingBytes int64, fail func(error)) *parallelLog {
	l := &parallelLog{store: store, fail: fail, placeholder: make([]byte, 0, 1)}
	l.sizes.limit = trailingBytes
	l.written.L = &l.mu
	return l
}

// IsMonotonic passes on what the store says: raft empties a monotonic log when a snapshot is installed. It does not
// while a state is installed that the log goes on from.
func (l *parallelLog) IsMonotonic() bool {
	m, ok := l.store.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic() && !l.keeps.Load()
}

// FirstIndex is the store's, unless a snapshot took the place of the whole log.
func (l *parallelLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, err := l.store.FirstIndex()
	if first == 0 && len(l.queue) > 0 {
		first = l.queue[0].Index
	}
	return first, err
}

// LastIndex counts what was appended.
func (l *parallelLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n > 0 {
		return l.queue[n-1].Index, nil
	}
	return l.store.LastIndex()
}

// GetLog reads an entry: from memory if recent, else without the data if there is much data, or some and the state
// machine is far from the entry.
func (l *parallelLog) GetLog(index uint64, log *raft.Log) error {
	l.mu.Lock()
	recent := l.recent[index%recentLogs]
	l.mu.Unlock()
	if recent != nil && recent.Index == index {
		*log = *recent
		return nil
	}
	if err := l.store.GetLog(index, log); err != nil {
		return err
	}
	if l.configurations != nil {
		l.configurations.read(log)
	}
	maxBytes := strippedOver
	if l.applied != nil && index > l.applied()+wholeAhead {
		maxBytes = strippedAheadOver
	}
	if log.Type == raft.LogCommand && len(log.Data) > maxBytes {
		// The store may have read both into one piece of memory, which the extensions would keep.
		log.Data, log.Extensions = l.placeholder, bytes.Clone(log.Extensions)
	}
	return nil
}

// reaches reports whether the log goes back as far as index.
func (l *parallelLog) reaches(index uint64) bool {
	l.mu.Lock()
	recent := l.recent[index%recentLogs]
	l.mu.Unlock()
	if recent != nil && recent.Index == index {
		return true
	}
	first, err := l.FirstIndex()
	return err == nil && 0 < first && first <= index
}

// StoreLog is StoreLogs of a single entry.
func (l *parallelLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends: to the disk, or, while this node leads, to the queue for the disk.
func (l *parallelLog) StoreLogs(logs []*raft.Log) error {
	changes := slices.ContainsFunc(logs, func(log *raft.Log) bool { return log.Type == raft.LogConfiguration })
	if leads := l.leads.Load(); changes || leads == nil || !(*leads)() {
		err := l.storeNow(logs)
		if err == nil && changes && l.configurations != nil {
			l.configurations.appended(logs)
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && len(l.queue)+len(logs) > recentLogs && l.err == nil {
		l.written.Wait()
	}
	if l.err != nil {
		return l.err
	}
	idle := len(l.queue) == 0
	l.queue = append(l.queue, logs...)
	l.remember(logs, l.queue[0].Index)
	if idle {
		go l.write()
	}
	return nil
}

// storeNow appends after everything in the queue.
func (l *parallelLog) storeNow(logs []*raft.Log) error {
	if err := l.flush(); err != nil {
		return err
	}
	if err := l.store.StoreLogs(logs); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember(logs, logs[len(logs)-1].Index)
	return nil
}

// remember keeps logs, and recent entries from index on whatever their size. Requires l.mu.
func (l *parallelLog) remember(logs []*raft.Log, index uint64) {
	l.sizes.append(logs)
	for _, log := range logs {
		l.recent[log.Index%recentLogs] = log
	}
	l.forget(logs[len(logs)-1].Index, index)
}

// write brings the queue to the disk, all that waits in one append.
func (l *parallelLog) write() {
	l.mu.Lock()
	for len(l.queue) > 0 {
		batch := l.queue
		l.mu.Unlock()
		err := l.store.StoreLogs(batch)
		l.mu.Lock()
		l.queue = l.queue[len(batch):]
		if err != nil {
			// Raft must find nothing of what is not there.
			l.err, l.queue, l.recent = fmt.Errorf("disk failed: store logs: %w", err), nil, [recentLogs]*raft.Log{}
		}
		l.written.Broadcast()
	}
	l.queue = nil
	err := l.err
	l.mu.Unlock()
	if err != nil {
		l.fail(err)
	}
}

// awaitWritten returns nil when every entry up to index is on the disk.
func (l *parallelLog) awaitWritten(index uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && l.queue[0].Index <= index {
		l.written.Wait()
	}
	return l.err
}

// flush waits until everything that has been appended by now is on the disk.
func (l *parallelLog) flush() error {
	l.mu.Lock()
	var last uint64
	if n := len(l.queue); n > 0 {
		last = l.queue[n-1].Index
	}
	l.mu.Unlock()
	return l.awaitWritten(last)
}

// DeleteRange removes entries from the beginning or the end, none of them committed unless a snapshot has it.
func (l *parallelLog) DeleteRange(lo, hi uint64) error {
	if err := l.awaitWritten(hi); err != nil {
		return err
	}
	if err := l.spareCommitted(lo); err != nil {
		return err
	}
	l.mu.Lock()
	for i, log := range l.recent {
		if log != nil && lo <= log.Index && log.Index <= hi {
			l.recent[i] = nil
		}
	}
	l.mu.Unlock()
	last, err := l.store.LastIndex()
	if err != nil {
		return err
	}
	if err := l.store.DeleteRange(lo, hi); err != nil {
		return err
	}
	if hi >= last && l.configurations != nil {
		l.configurations.truncated(lo)
	}
	return nil
}

// lostMembers is what the operator is told.
const lostMembers = "a leader would replace them, so members have lost entries that they had acknowledged " +
	"(an old copy of a data folder put back, or a disk that lost what it had synced); nothing was deleted: replace " +
	"those members, see MEMBERS.md"

// spareCommitted refuses a deletion of committed entries from lo on, unless a snapshot takes their place: that begins
// with the log's first entry, and within the snapshot. The store keeps what is behind the snapshot's end.
func (l *parallelLog) spareCommitted(lo uint64) error {
	bounds := l.bounds.Load()
	if bounds == nil {
		return nil
	}
	first, err := l.store.FirstIndex()
	if err != nil {
		return err
	}
	committed, snapshot, err := (*bounds)()
	if err != nil || lo > committed || lo <= first && lo <= snapshot {
		return err
	}
	return l.lost(lo, committed)
}

// lost has the node end: the leader has other entries than this node from lo to committed.
func (l *parallelLog) lost(lo, committed uint64) error {
	return l.end(fmt.Errorf("log entries %d to %d are committed, and %s", lo, committed, lostMembers))
}

// end has the node end because of err: the log takes no more.
func (l *parallelLog) end(err error) error {
	l.mu.Lock()
	l.err = err
	l.written.Broadcast()
	l.mu.Unlock()
	l.fail(err)
	return err
}

const (
	// Raft gets commands of more than strippedOver bytes without their data. A request of smaller commands is sent in
	// one piece.
	strippedOver = appendGather / maxAppend
	// strippedAheadOver is the same for entries that are more than wholeAhead entries ahead of the state machine. Raft
	// reads up to 4,096 entries ahead: 16 MiB so, beside 16 MiB of those that come next.
	strippedAheadOver = 4 << 10
	wholeAhead        = 2 * maxAppend
	// recentBytes bounds the recent entries in memory, but for the newest entry and entries that
	// are not on the disk.
	recentBytes = 64 << 20
)

// forget drops recent entries beyond the bound, from the oldest on. Entries from index on stay.
// Requires l.mu.
func (l *parallelLog) forget(last, index uint64) {
	size := int64(0)
	for i := last; i+recentLogs > last; i-- { // indices that wrap around find nothing
		at := &l.recent[i%recentLogs]
		switch log := *at; {
		case log == nil:
		case log.Index != i:
			*at = nil
		default:
			if size += sizeOfEntry(log); size > recentBytes && i < index {
				*at = nil
			}
		}
	}
}

// trailing returns how many of the newest entries a snapshot leaves in the log: as many as fill the byte limit, up to
// maxEntries, or all from needed on if they are within the limit for a lagging member.
func (l *parallelLog) trailing(maxEntries, needed uint64) (uint64, error) {
	last, err := l.LastIndex()
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	first, bytes := l.sizes.newest(last, l.sizes.limit)
	lagging := uint64(0)
	if reach, _ := l.sizes.newest(last, laggingTimes*l.sizes.limit); 0 < needed && reach <= needed {
		lagging = last - needed + 1
	}
	l.mu.Unlock()
	// Entries of this node's former life are read, once: from here on others are newer. They are on
	// the disk.
	for ; bytes < l.sizes.limit && first > 1 && last-first+1 < maxEntries; first-- {
		var entry raft.Log
		if l.store.GetLog(first-1, &entry) != nil {
			break // the log begins here
		}
		bytes += sizeOfEntry(&entry)
	}
	return max(1, lagging, min(last-first+1, maxEntries)), nil
}

// A leader has all that is committed. So a leader with another entry in a committed entry's place was elected by
// members that had forgotten what they acknowledged: an old copy of a data folder was put back, or a disk lost what it
// had synced. Raft would delete the entry here, and keep what the entry did in the state: this node would differ from
// the others for good. Such a node ends instead, before anything is deleted, and is the only one to notice.
//
// After a restart this node knows as committed what its snapshot has, and learns the rest from a leader. Entries behind
// the snapshot give way then, and are not applied. If the leader has another entry than the snapshot, the node ends
// again.

// contradicted ends the node, which is in that term, if the leader that sent req has another entry than this node at
// the end of this node's newest snapshot. Raft refuses a request of an older term without help.
func (l *parallelLog) contradicted(req *raft.AppendEntriesRequest, end *raft.SnapshotMeta, current uint64) error {
	term, has := req.PrevLogTerm, req.PrevLogEntry == end.Index
	for _, e := range req.Entries {
		if e.Index == end.Index {
			term, has = e.Term, true
		}
	}
	if !has || term == end.Term || req.Term < current {
		return nil
	}
	return l.end(fmt.Errorf("log entries up to %d are committed and in this node's snapshot, and %s", end.Index,
		lostMembers))
}
