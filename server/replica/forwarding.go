package replica

import (
	"net"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// What package forward is handed of this node.

func (r *Replica) identity() forward.Identity {
	return forward.Identity{ID: r.config.ID, Epoch: r.origin.Epoch, About: forward.About{
		ClientAddr: r.config.ClientAddr, SentinelAddr: r.config.SentinelAddr, Release: r.config.Release,
		NewestVersion: protocol.EntryVersion, HoldVersion: uint64(r.config.HoldVersion),
	}}
}

// newToLeader makes the end that forwards this node's batches to the leader.
func newToLeader(r *Replica) *forward.Client {
	return forward.NewClient(forward.ClientConfig{
		Self:       r.identity(),
		Dial:       r.config.Peers.Forward.DialContext,
		Writes:     r.writes,
		Reads:      r.reader.elsewhere,
		ReplyBytes: r.config.Limits.ReplyBytes,
		Reached:    func(leader string) { r.node.Reached(leader) },
		Refused:    func(leader string) { r.node.Refused(leader) },
		Up:         func(leader string) { r.event(LinkUp{Leader: members.Name(leader)}) },
		Down:       func(leader string, err error) { r.event(LinkDown{Leader: members.Name(leader), Err: err}) },
		OnGreeting: r.onGreeting,
		OnStatus:   r.onStatus,
		Logger:     r.config.Logger,
	})
}

// onStatus takes the leader's status message.
func (r *Replica) onStatus(b forward.Status) {
	for _, m := range b.Members {
		r.addresses.set(m.ID, m.About)
		r.addresses.setProgress(m.ID, m.Silent, m.LogIndex)
		if b.Releases && m.ID != r.config.ID {
			r.addresses.setRelease(m.ID, m.Release)
		}
		if m.ID != r.config.ID {
			r.addresses.setVersions(m.ID, m.About)
		}
	}
	r.leaders.moved(r.addresses.all())
	r.health.onStatus(b.Commit, r.state.index.load())
}

// onGreeting notes another node's greeting.
func (r *Replica) onGreeting(m forward.Member) {
	r.addresses.set(m.ID, m.About)
	r.addresses.setRelease(m.ID, m.Release)
	r.addresses.setProgress(m.ID, false, 0)
	if m.NewestVersion > 0 {
		r.addresses.setVersions(m.ID, m.About)
	}
	notify(r.proposer.wake) // the cluster may go over to a newer version
	r.leaders.moved(r.addresses.all())
}

// newFromFollowers makes the end that takes what followers forward.
func newFromFollowers(r *Replica, wake chan<- struct{}) *forward.Receiver {
	limits := r.config.Limits
	return forward.NewReceiver(forward.ReceiverConfig{
		Self:       r.identity(),
		Listener:   r.config.Peers.Forward,
		Other:      func(conn net.Conn, frame []byte) bool { return r.node.AnswerProposal(conn, frame) },
		IsMember:   r.isMember,
		OnGreeting: r.onGreeting,
		Status:     r.statusMessage,
		Classify:   classify,
		Prepare:    r.machine.PrepareBatch,
		Subscribed: func(id string, yes bool) { r.node.SetCommitSubscriber(id, yes) },
		Wake:       wake,
		Confirm:    r.reader.confirm,
		ReadShort: func(body string, count int, deadline time.Time) ([]protocol.Value, string, error) {
			return r.reader.readSome(body, count, deadline, fsm.ReadShort)
		},
		ReadLong:       r.reader.readOn,
		Wait:           r.waitHere,
		Quorum:         func() int { return r.node.Quorum() },
		CommandTimeout: r.config.CommandTimeout,
		BatchBytes:     limits.BatchBytes,
		ReplyBytes:     limits.ReplyBytes,
		QueueBytes:     limits.PendingBytes,
		Followers:      func() int { return len(r.node.Configuration().Members) - 1 },
		Logger:         r.config.Logger,
	})
}

// classify sets the fields of a batch that its body decides, for the proposer.
func classify(b *forward.Batch) {
	b.Claim = fsm.IsClaim(b.Body)
	b.Patient = !b.Claim && fsm.IsPatient(b.Body)
	b.Source = fsm.HasSource(b.Body)
}

// isMember reports whether conn comes from the other member of that ID.
func (r *Replica) isMember(conn net.Conn, id string) bool {
	return wire.MayBe(conn, id) && id != r.config.ID && r.node.Configuration().Has(id)
}

// statusMessage is the status message for followers. With each the leader also checks whether the followers make
// progress.
func (r *Replica) statusMessage() forward.Status {
	if l := r.serving.Load(); l != nil {
		r.node.Look(l.term)
	}
	b := forward.Status{Term: r.node.Term(), Commit: r.node.Committed(), Releases: true}
	for _, m := range r.members() {
		b.Members = append(b.Members, forward.Member{
			ID: m.ID, About: forward.About{
				ClientAddr: m.ClientAddr, SentinelAddr: m.SentinelAddr, Release: m.Release,
				NewestVersion: m.NewestVersion, HoldVersion: m.HoldVersion,
			},
			Silent: m.Silent, LogIndex: m.LogIndex,
		})
	}
	return b
}
