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

// recentLogs bounds the newest entries that are kept in memory, within recentBytes: each follower's sender reads them
// right after the append. It also bounds the entries that wait for a leader's disk.
const recentLogs = 32

// parallelLog is the log as raft sees it. While this node leads, entries are written to its disk and sent to the
// followers at the same time (Ongaro's thesis, section 10.2.1): an append returns at once, and entries that raft
// appends during a write are written together.
//
// Raft counts an appended entry as stored by this node before it is on the disk. Two rules keep that safe:
//   - An entry is committed when a follower's acknowledgement completes a majority. The acknowledgement is delayed
//     until the entry is on this node's disk, too ([transport.AppendEntries]).
//   - A former leader may acknowledge as a follower what it appended as a leader. So raft receives another leader's
//     request only when everything appended before is on the disk ([rpcFilter.pass]).
//
// Two appends are synchronous: those of a single voter, which waits for no acknowledgement that could be delayed, and
// that of a configuration, under which this node alone may be enough to commit earlier entries.
type parallelLog struct {
	keeps atomic.Bool // installing a snapshot keeps the entries behind it, see [Node.ReplaceState]
	store raft.LogStore
	// fail ends the node, since raft already counts an append that fails.
	fail func(error)
	// leads reports whether this node leads, as raft's main loop sees it, and has other voters to wait for. Until it is
	// set, appends are synchronous.
	leads atomic.Pointer[func() bool]
	// bounds is [Node.bounds]. Until it is set, no entry is known to be committed.
	bounds atomic.Pointer[func() (committed, snapshot uint64, err error)]

	// applied returns the index of the newest applied entry. It is nil in tests, where no entry is far ahead.
	applied func() uint64

	mu      sync.Mutex
	written sync.Cond // signals that the queue became shorter or err was set
	// queue has the entries that are not in the store yet, in order. An append to an empty queue starts the goroutine
	// that writes it.
	queue  []*raft.Log
	recent [recentLogs]*raft.Log // by index modulo the length
	sizes  logSizes
	err    error // sticky: the error of a failed write

	placeholder []byte // replaces the data of a stripped entry

	// configurations tracks the configurations that are appended and removed. It is nil in tests.
	configurations *configurations
}

var _ raft.MonotonicLogStore = (*parallelLog)(nil)

// laggingTimes is the factor by which a snapshot leaves more bytes of the log while a member lags.
const laggingTimes = 4

// laggingFor is the time without an acknowledgement after which a member that receives a snapshot no longer counts as
// lagging.
const laggingFor = 10 * time.Second

// newParallelLog returns the log over store. About trailingBytes of entries are kept behind a snapshot, and
// laggingTimes as many while a member needs them.
func newParallelLog(store raft.LogStore, trailingBytes int64, fail func(error)) *parallelLog {
	l := &parallelLog{store: store, fail: fail, placeholder: make([]byte, 0, 1)}
	l.sizes.limit = trailingBytes
	l.written.L = &l.mu
	return l
}

// IsMonotonic reports whether raft must empty the log when it installs a snapshot: if the store is monotonic, unless
// the entries behind the snapshot are to be kept.
func (l *parallelLog) IsMonotonic() bool {
	m, ok := l.store.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic() && !l.keeps.Load()
}

// FirstIndex returns the store's first index, or the queue's if the store is empty.
func (l *parallelLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, err := l.store.FirstIndex()
	if first == 0 && len(l.queue) > 0 {
		first = l.queue[0].Index
	}
	return first, err
}

// LastIndex returns the index of the last appended entry, whether it is in the store or not.
func (l *parallelLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n > 0 {
		return l.queue[n-1].Index, nil
	}
	return l.store.LastIndex()
}

// GetLog reads an entry from memory if it is recent, and else from the store. An entry from the store is stripped of
// its data if that is large, or if the entry is far ahead of the state machine and its data is not small.
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
		// The clone lets the data be collected, since the store may have read both into one slice.
		log.Data, log.Extensions = l.placeholder, bytes.Clone(log.Extensions)
	}
	return nil
}

// reaches reports whether the log begins at or before index.
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

// StoreLog calls StoreLogs with a single entry.
func (l *parallelLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries to the queue if this node leads and none is a configuration, and else to the store.
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

// storeNow appends to the store once the queue is written.
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

// remember adds logs to the recent entries. Those from index on are kept whatever their size. Requires l.mu.
func (l *parallelLog) remember(logs []*raft.Log, index uint64) {
	l.sizes.append(logs)
	for _, log := range logs {
		l.recent[log.Index%recentLogs] = log
	}
	l.forget(logs[len(logs)-1].Index, index)
}

// write writes the queue to the store until it is empty, each time in one append.
func (l *parallelLog) write() {
	l.mu.Lock()
	for len(l.queue) > 0 {
		batch := l.queue
		l.mu.Unlock()
		err := l.store.StoreLogs(batch)
		l.mu.Lock()
		l.queue = l.queue[len(batch):]
		if err != nil {
			// Raft must not read entries that are not stored.
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

// awaitWritten waits until every entry up to index is on the disk, or returns the error of a failed write.
func (l *parallelLog) awaitWritten(index uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && l.queue[0].Index <= index {
		l.written.Wait()
	}
	return l.err
}

// flush waits until every entry in the queue is on the disk.
func (l *parallelLog) flush() error {
	l.mu.Lock()
	var last uint64
	if n := len(l.queue); n > 0 {
		last = l.queue[n-1].Index
	}
	l.mu.Unlock()
	return l.awaitWritten(last)
}

// DeleteRange removes entries from the beginning or the end. It refuses to remove a committed entry that is in no
// snapshot.
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

// lostMembers is the end of error messages about members that have lost acknowledged entries.
const lostMembers = "a leader would replace them, so members have lost entries that they had acknowledged " +
	"(an old copy of a data folder put back, or a disk that lost what it had synced); nothing was deleted: replace " +
	"those members, see MEMBERS.md"

// spareCommitted returns an error if a deletion that begins at index lo may remove committed entries, unless it begins
// at the log's first entry and within the newest snapshot.
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

// lost ends the node because the leader has other entries than this node from lo to committed.
func (l *parallelLog) lost(lo, committed uint64) error {
	return l.end(fmt.Errorf("log entries %d to %d are committed, and %s", lo, committed, lostMembers))
}

// end ends the node with err. Later appends fail.
func (l *parallelLog) end(err error) error {
	l.mu.Lock()
	l.err = err
	l.written.Broadcast()
	l.mu.Unlock()
	l.fail(err)
	return err
}

const (
	// strippedOver is the size above which raft reads a command without its data. A request of smaller commands is not
	// split.
	strippedOver = appendGather / maxAppend
	// strippedAheadOver is that size for entries more than wholeAhead ahead of the state machine. Raft reads up to
	// 4,096 entries ahead, so those have up to 16 MiB, as have the next wholeAhead.
	strippedAheadOver = 4 << 10
	wholeAhead        = 2 * maxAppend
	// recentBytes bounds the recent entries in memory, apart from the newest entry and those not on the disk.
	recentBytes = 16 << 20
)

// forget drops the oldest recent entries beyond recentBytes, but none from index on. Requires l.mu.
func (l *parallelLog) forget(last, index uint64) {
	size := int64(0)
	for i := last; i+recentLogs > last; i-- { // an index that wraps around matches no entry
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

// trailing returns how many of the newest entries a snapshot leaves in the log: as many as fill maxBytes, up to
// maxEntries, or all from needed on if they are within laggingTimes maxBytes.
func (l *parallelLog) trailing(maxEntries uint64, maxBytes int64, needed uint64) (uint64, error) {
	last, err := l.LastIndex()
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	first, bytes := l.sizes.newest(last, maxBytes)
	lagging := uint64(0)
	if reach, _ := l.sizes.newest(last, laggingTimes*maxBytes); 0 < needed && reach <= needed {
		lagging = last - needed + 1
	}
	l.mu.Unlock()
	// Only the first snapshot after a start reads entries here: sizes has those appended since.
	for ; bytes < maxBytes && first > 1 && last-first+1 < maxEntries; first-- {
		var entry raft.Log
		if l.store.GetLog(first-1, &entry) != nil {
			break // the log begins here
		}
		bytes += sizeOfEntry(&entry)
	}
	return max(1, lagging, min(last-first+1, maxEntries)), nil
}

// A leader has every committed entry. A leader with another entry in place of a committed one was elected by members
// that lost entries they had acknowledged: an old copy of a data folder was put back, or a disk lost synced data. Raft
// would delete the entry here but keep its effect on the state, so that this node would differ from the others
// permanently. Only this node can notice that, so it ends before anything is deleted.
//
// After a restart the node knows only the entries of its snapshot to be committed. It replaces later entries by the
// leader's without having applied them. If the leader has another entry than the snapshot, the node ends again.

// contradicted ends the node if the leader that sent req has another entry at the end of this node's newest snapshot. A
// request of a term before current is left to raft, which refuses it.
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
