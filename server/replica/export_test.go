package replica

import (
	"context"
	"errors"
	"io"
	"net"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// Propose proposes an entry as if it had been stamped for term.
func (r *Replica) Propose(term uint64, entry []byte) { r.propose(term, entry) }

// OnGreeting handles the greeting of another node.
func (r *Replica) OnGreeting(m forward.Member) { r.onGreeting(m) }

// IsMember reports whether this node accepts batches over conn as the member's.
func (r *Replica) IsMember(conn net.Conn, id string) bool { return r.isMember(conn, id) }

// ProposeFirst proposes the first entry of a leadership again.
func (r *Replica) ProposeFirst() { r.leadership.proposeFirst(r.serving.Load().term) }

// Look has the leadership read raft's state.
func (r *Replica) Look() { r.leadership.poke() }

// Follow calls follow on a leader, as happens if raft has not reported the leadership yet.
func (r *Replica) Follow() { r.leadership.follow() }

// ServeAnew has this leader pass all waiting batches to raft again.
func (r *Replica) ServeAnew() { r.leadership.serveAnew() }

// ProposeOwn proposes a batch as requests of the node itself.
func (r *Replica) ProposeOwn(b *Batch) error { return r.sessionsCluster().Propose(b.Body, b.Count) }

// LogEntries returns the number of entries in this node's log.
func (r *Replica) LogEntries() int {
	first, _ := r.config.Stores.Log.FirstIndex()
	if first == 0 {
		return 0
	}
	return int(r.node.Last() - first + 1)
}

// Committed returns the newest index that this node knows to be committed.
func (r *Replica) Committed() (index uint64, known bool) { return r.committed() }

// InFlight returns how many entries this leader counts as in flight.
func (r *Replica) InFlight() int { return int(r.serving.Load().inFlight.Load()) }

// SendSnapshot sends this node's newest snapshot to another node, as raft does to a follower that lacks truncated
// entries.
func (r *Replica) SendSnapshot(to string) (resp raft.InstallSnapshotResponse, err error) {
	stored, err := r.config.Stores.Snapshots.List()
	if err != nil {
		return resp, err
	}
	meta, data, err := r.config.Stores.Snapshots.Open(stored[0].ID)
	if err != nil {
		return resp, err
	}
	defer data.Close()
	stream := dialing{r.config.Peers.Raft, make(chan struct{})}
	transport := raft.NewNetworkTransport(stream, 1, time.Second, io.Discard)
	defer transport.Close()
	err = transport.InstallSnapshot(raft.ServerID(to), raft.ServerAddress(to), &raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(r.config.ID)},
		SnapshotVersion: meta.Version,
		Term:            r.node.Term(), LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: meta.Size,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
	}, &resp, data)
	return resp, err
}

// SendTimeoutNow asks another node to stand for election at once.
func (r *Replica) SendTimeoutNow(to string) error {
	transport := raft.NewNetworkTransport(dialing{r.config.Peers.Raft, make(chan struct{})}, 1, time.Second, io.Discard)
	defer transport.Close()
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	return transport.TimeoutNow(raft.ServerID(to), raft.ServerAddress(to), req, &raft.TimeoutNowResponse{})
}

// dialing is a stream that accepts no connections.
type dialing struct {
	raft.StreamLayer
	closed chan struct{}
}

func (d dialing) Accept() (net.Conn, error) {
	<-d.closed
	return nil, net.ErrClosed
}

func (d dialing) Close() error {
	close(d.closed)
	return nil
}

// Serves reports whether this leader has a link of the other node.
func (r *Replica) Serves(other *Replica) bool { return r.fromFollowers.Peer(other.origin) != nil }

// ForgetApplied has the node behave as if it had applied nothing, until it applies another entry.
func (r *Replica) ForgetApplied() {
	r.state.index.mu.Lock()
	defer r.state.index.mu.Unlock()
	r.state.index.value = 0
}

// ServeFormerTerm has the node serve as the leader of the term before its own, as if it had lost and won an election
// between two updates.
func (r *Replica) ServeFormerTerm() {
	stamp, offset := r.machine.Clock()
	l := &leaderTerm{
		term:    r.node.Term() - 1,
		clock:   newClusterClock(r.config.Clock, r.config.ClockStep, stamp, offset),
		gone:    make(chan struct{}),
		landed:  make(chan struct{}, 1),
		stamped: stamp,
	}
	r.serving.Store(l)
	r.writes.Attach(l, r.proposer.wake)
	notify(r.leadership.noted)
}

// Refused reports to the node that its leader's port has refused a connection.
func (r *Replica) Refused() {
	_, leader := r.node.Leader()
	r.node.Refused(leader)
}

// HoldTurn occupies the turn of long reads, until LetTurn.
func (r *Replica) HoldTurn() { r.reader.long <- struct{}{} }

// LetTurn releases the turn of HoldTurn.
func (r *Replica) LetTurn() { <-r.reader.long }

// LookForWaiters runs the check for silent nodes that runs each second, with a clock that is ahead of the node's.
func (r *Replica) LookForWaiters(ahead time.Duration) { r.waiting.check(time.Now().Add(ahead)) }

// SawLeader reports whether there was a leader since the last check.
func (r *Replica) SawLeader() bool { return r.waiting.led.Load() }

// CheckLeadership runs the leadership check that reads wait for. After the check is confirmed, it asks leads instead of
// raft.
func (r *Replica) CheckLeadership(ctx context.Context, leads func(term uint64) bool) error {
	c := r.rounds.roundsConfig
	c.leads = leads
	return newRounds(c).check(ctx)
}

// SlowDown has this node take the duration d longer to apply an entry.
func (r *Replica) SlowDown(d time.Duration) {
	synctest.Wait() // the node applies nothing while its machine is replaced
	r.state.machine = slowMachine{r.state.machine, d}
}

// SlowDownBatches has this node take the duration d longer to run the last batch of an entry.
func (r *Replica) SlowDownBatches(d time.Duration) {
	synctest.Wait() // see SlowDown
	r.state.machine = slowBatches{slowMachine{r.state.machine, d}}
}

// slowBatches sleeps before it applies the entry: in virtual time, no goroutine may sleep while it holds the machine's
// mutex.
type slowBatches struct{ slowMachine }

func (m slowBatches) Apply(data []byte, sink fsm.Sink) error {
	entry, err := protocol.DecodeEntry(string(data))
	for b, more := (protocol.Batch{}), true; more && err == nil; {
		if more, err = entry.Next(&b); more && b.Origin.Node != "" {
			sink.Wanted(b.Origin, b.Seq)
		}
	}
	return errors.Join(err, m.slowMachine.Apply(data, sink))
}

type slowMachine struct {
	fsm.Machine
	each time.Duration
}

func (m slowMachine) Apply(entry []byte, sink fsm.Sink) error {
	time.Sleep(m.each)
	return m.Machine.Apply(entry, sink)
}

// FullBytesPerSecond is fullBytesPerSecond.
const FullBytesPerSecond = fullBytesPerSecond
