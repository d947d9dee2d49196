package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/reconfig"
	"github.com/holdfast/holdfast/server/replica/replicatest"
	"github.com/holdfast/holdfast/server/store"
)

// change is a change of members on three voters and n4, which runs and is no member unless learner says so.
type change struct {
	name    string
	learner bool // n4 is a member without a vote
	ask     func(s *staff) reconfig.Request
	// half and whole are the members, "-" for without a vote: on the way, and in the end.
	half  []string
	whole string
}

// staff are the nodes by their part. The change is about subject or leader; other is asked first.
type staff struct{ leader, subject, other, fourth *replicatest.Node }

func (s *staff) of(part string) *replicatest.Node {
	return map[string]*replicatest.Node{
		"leader": s.leader, "subject": s.subject, "other": s.other,
		"fourth": s.fourth,
	}[part]
}

// describe lists members by their parts.
func (s *staff) describe(conf members.Configuration) (all string) {
	for _, part := range []string{"leader", "subject", "other", "fourth"} {
		if m, ok := conf.Find(s.of(part).ID); ok {
			all += " " + part
			if !m.Voter {
				all += "-"
			}
		}
	}
	return all[1:]
}

const three = "leader subject other"

var changes = []change{
	{
		name: "join", half: []string{three}, whole: three + " fourth-",
		ask: func(s *staff) reconfig.Request {
			return reconfig.Request{
				Op: reconfig.Join, Member: s.fourth.ID, Addr: s.fourth.PeerAddr, LogFormat: protocol.EntryVersion,
			}
		},
	},
	{
		name: "promote", learner: true, half: []string{three + " fourth-"}, whole: three + " fourth",
		ask: func(s *staff) reconfig.Request {
			return reconfig.Request{Op: reconfig.Promote, Member: s.fourth.ID}
		},
	},
	{
		name: "demote", half: []string{three}, whole: "leader subject- other",
		ask: func(s *staff) reconfig.Request {
			return reconfig.Request{Op: reconfig.Demote, Member: s.subject.ID}
		},
	},
	{
		name: "remove", half: []string{three}, whole: "leader other",
		ask: func(s *staff) reconfig.Request {
			return reconfig.Request{Op: reconfig.Remove, Member: s.subject.ID}
		},
	},
	{
		name: "remove the leader", half: []string{three}, whole: "subject other",
		ask: func(s *staff) reconfig.Request {
			return reconfig.Request{Op: reconfig.Remove, Member: s.leader.ID}
		},
	},
	{
		name: "replace", learner: true, half: []string{three + " fourth-", three + " fourth", "leader other fourth-"},
		whole: "leader other fourth",
		ask: func(s *staff) reconfig.Request {
			return reconfig.Request{Op: reconfig.Replace, Member: s.subject.ID, By: s.fourth.ID}
		},
	},
}

// office has the reconfiguration service of each node of a cluster.
type office struct{ *replicatest.Cluster }

var errGone = errors.New("the node is gone")

// at carries out a request on a node.
func (o office) at(n *replicatest.Node, do func(*reconfig.Service)) error {
	life := n.Life()
	if n.Replica() == nil {
		return errGone
	}
	raft := server.Raft{Identity: func() (string, string) { return n.ID, "test" }, Replica: n.Replica}
	do(reconfig.NewService(reconfig.NewExecutor(raft, func(reconfig.AppliedStep) {}), o))
	if n.Replica() == nil || n.Life() != life {
		return errGone // and what it said got lost
	}
	return nil
}

// Ask implements [reconfig.Peers].
func (o office) Ask(ctx context.Context, id string, q reconfig.Request) (reply reconfig.Reply, err error) {
	for _, n := range o.Nodes() {
		if n.ID == id {
			err = o.at(n, func(d *reconfig.Service) { reply = d.Do(ctx, q) })
		}
	}
	return reply, err
}

// ask asks one node after another until one of them says how it ended, or until ctx ends.
func (o office) ask(ctx context.Context, q reconfig.Request, nodes ...*replicatest.Node) error {
	for i := 0; ; i++ {
		said := reconfig.ErrUncertain
		err := o.at(nodes[i%len(nodes)], func(d *reconfig.Service) { _, said = d.Ask(ctx, q) })
		if err == nil && !errors.Is(said, reconfig.ErrUncertain) {
			return said
		}
		if ctx.Err() != nil {
			return reconfig.ErrUncertain
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// slowly starts a cluster in which each write to a disk and each message takes a millisecond, so that there is time
// between the steps of a change.
func slowly(t *testing.T, learner bool) (office, *staff) {
	o := office{replicatest.New(t, replicatest.Options{Minted: true, Spares: 1})}
	s := &staff{leader: o.Leader(), fourth: o.Node("n4")}
	s.subject, s.other = o.Followers()[0], o.Followers()[1]
	s.fourth.Start()
	if learner {
		require.NoError(t, o.ask(t.Context(), changes[0].ask(s), s.other))
		o.Settle()
	}
	for _, n := range o.Nodes() {
		n.Faults.Inject(store.Fault{Delay: time.Millisecond})
		for _, to := range o.Nodes() {
			o.Net.Delay(n.Name, to.Name, time.Millisecond)
		}
	}
	return o, s
}

// TestKilledDuringAChangeOfMembers: a node is killed, and its power cut, at any instant of a change, and the request is
// not repeated. What is there then is one of the steps, and all nodes agree on it; the cluster serves; and asking again
// completes the change.
func TestKilledDuringAChangeOfMembers(t *testing.T) {
	protocoltest.SkipShort(t, "every change, victim and instant")
	for _, c := range changes {
		var took time.Duration
		synctest.Test(t, func(t *testing.T) {
			o, s := slowly(t, c.learner)
			began := time.Now()
			require.NoError(t, o.ask(t.Context(), c.ask(s), s.other))
			took = time.Since(began)
			require.Equal(t, c.whole, s.describe(o.Leader().Replica().CommittedConfiguration()))
		})
		for _, victim := range []string{"leader", "subject", "other", "fourth"} {
			const instants = 4
			for i := range instants {
				at := took * time.Duration(2*i+1) / (2 * instants)
				t.Run(fmt.Sprintf("%s, %s killed after %v", c.name, victim, at), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { c.killed(t, victim, at) })
				})
			}
		}
	}
}

// killed kills a node at an instant of the change.
func (c *change) killed(t *testing.T, part string, at time.Duration) {
	o, s := slowly(t, c.learner)
	victim := s.of(part)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- o.ask(ctx, c.ask(s), s.other) }()
	time.Sleep(at)
	victim.Crash()
	cancel()
	<-asked
	victim.PowerCut(1)
	time.Sleep(time.Second)
	victim.Start()
	time.Sleep(5 * time.Second)
	require.Equal(t, protocol.OK, o.Leader().Do("SET", "k", "v"))
	conf := o.agreed(t)
	require.Contains(t, append(c.half, c.whole), s.describe(conf))

	err := o.ask(t.Context(), c.ask(s), s.other, s.subject, s.leader)
	if refusal := new(reconfig.Refusal); errors.As(err, &refusal) {
		t.Fatalf("%s after %s", refusal.Text, s.describe(conf))
	}
	time.Sleep(5 * time.Second)
	require.Equal(t, c.whole, s.describe(o.agreed(t)))
	require.Equal(t, protocol.Bulk("v"), o.Leader().Do("GET", "k"))
}

// agreed are the members, as all of them say.
func (o office) agreed(t *testing.T) members.Configuration {
	t.Helper()
	conf := o.Leader().Replica().CommittedConfiguration()
	for _, n := range o.Nodes() {
		if r := n.Replica(); r != nil && conf.Has(n.ID) {
			require.Equal(t, conf, r.Configuration(), n.Name)
			require.Equal(t, conf, r.CommittedConfiguration(), n.Name)
		}
	}
	return conf
}
