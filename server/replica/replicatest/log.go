package replicatest

import "github.com/hashicorp/raft"

// turnLog has changes of the log wait for each other on a channel, as they would on the log's own lock. In a bubble, time
// does not go on while a goroutine waits for a lock: a disk whose syncs are held up for a while would hold them for ever.
type turnLog struct {
	raft.LogStore
	turn chan struct{} // has room for one
}

var _ raft.MonotonicLogStore = turnLog{}

func inTurn(log raft.LogStore) turnLog { return turnLog{log, make(chan struct{}, 1)} }

func (l turnLog) take() (done func()) {
	l.turn <- struct{}{}
	return func() { <-l.turn }
}

func (l turnLog) IsMonotonic() bool {
	m, ok := l.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (l turnLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l turnLog) StoreLogs(logs []*raft.Log) error {
	defer l.take()()
	return l.LogStore.StoreLogs(logs)
}

func (l turnLog) DeleteRange(lo, hi uint64) error {
	defer l.take()()
	return l.LogStore.DeleteRange(lo, hi)
}
