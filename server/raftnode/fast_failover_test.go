package raftnode

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// TestFitterCandidate: the node with the longer log is elected, then the one that has applied more, then the one with
// the lower ID.
func TestFitterCandidate(t *testing.T) {
	fit := []candidate{
		{id: "n3", length: 9, applied: 2},
		{id: "n2", length: 8, applied: 8},
		{id: "n1", length: 8, applied: 7},
		{id: "n4", length: 8, applied: 7},
		{id: "n6", length: 7, applied: 7},
	}
	for i := range fit {
		for j := range fit {
			require.Equal(t, i < j, fit[i].moreUpToDate(fit[j]), "%v, %v", fit[i], fit[j])
		}
	}
}

// voterStub is a voter with a stub in place of raft.
type voterStub struct {
	*fastFailover
	term, length uint64
	leader       string        // as far as the voter knows
	slow         time.Duration // the time until the voter answers
	nominated    chan string   // the nodes that the voter has nominated
}

func (v *voterStub) CurrentTerm() uint64  { return v.term }
func (v *voterStub) LastIndex() uint64    { return v.length }
func (v *voterStub) AppliedIndex() uint64 { return v.length }
func (v *voterStub) LeaderWithID() (raft.ServerAddress, raft.ServerID) {
	return "", raft.ServerID(v.leader)
}

// orphans returns the voters of a cluster of several nodes whose leader n1, of term 2, is dead. All have the same log,
// and know that the leader is dead.
func orphans(nodes int) map[string]*voterStub {
	all, ids := make(map[string]*voterStub), []string{"n1", "n2", "n3", "n4", "n5"}[:nodes]
	dial := func(_ context.Context, id string) (net.Conn, error) {
		if all[id] == nil {
			return nil, syscall.ECONNREFUSED
		}
		asking, answering := net.Pipe()
		go func() {
			defer answering.Close()
			time.Sleep(all[id].slow)
			if frame, err := wire.Read(bufio.NewReader(answering), nil, wire.Short); err == nil {
				_ = all[id].answer(answering, frame)
			}
		}()
		return asking, nil
	}
	for _, id := range ids[1:] {
		v := &voterStub{term: 2, length: 8, leader: "n1", nominated: make(chan string, nodes)}
		v.fastFailover = newFastFailover(&Config{ID: id, Dial: dial}, newConfigurations(id), v, func(id string) error {
			v.nominated <- id
			return nil
		})
		v.configurations.appended([]*raft.Log{configurationAt(1, ids...)})
		v.refused("n1")
		all[id] = v
	}
	return all
}

// nominations counts how often the voters have nominated n2 since the last call.
func nominations(t *testing.T, all map[string]*voterStub) (n int) {
	t.Helper()
	for _, v := range all {
		for ; len(v.nominated) > 0; n++ {
			require.Equal(t, "n2", <-v.nominated)
		}
	}
	return n
}

// TestOnlyTheMostUpToDateIsNominated: the node that asks is nominated once, unless another node that answers is more up
// to date, in any order of the answers.
func TestOnlyTheMostUpToDateIsNominated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, nodes := range []int{3, 5} {
			for _, order := range [][]string{{"n3", "n4", "n5"}, {"n4", "n5", "n3"}, {"n5", "n3", "n4"}} {
				for _, longer := range []string{"", "n3", "n4", "n5"} {
					all := orphans(nodes)
					for i, id := range order {
						if v := all[id]; v != nil {
							v.slow = time.Duration(i) * time.Millisecond
						}
					}
					want := 1
					if v := all[longer]; v != nil {
						v.length, want = 9, 0
					}
					all["n2"].ask(t.Context(), all["n2"].vacant())
					require.Equal(t, want, nominations(t, all), "%d nodes answer in the order %v, %q has more", nodes, order, longer)
				}
			}
		}
	})
}

// TestTooFewAgree: voters that have reached the leader do not agree to an election, so that there is no majority.
func TestTooFewAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := orphans(5)
		for _, id := range []string{"n4", "n5"} {
			all[id].reached("n1")
			all[id].slow = time.Millisecond
		}
		all["n2"].ask(t.Context(), all["n2"].vacant())
		require.Zero(t, nominations(t, all))
	})
}

// TestVacancyEndsWithTheTerm: a leadership is vacant until its term ends, or another leader is known. Then there is
// another election.
func TestVacancyEndsWithTheTerm(t *testing.T) {
	for _, row := range []struct {
		term   uint64
		leader string
		vacant bool
	}{
		{2, "n1", true},
		{2, "", true},
		{2, "n3", false},
		{3, "", false},
		{3, "n1", false}, // n1 came back, and was elected
		{3, "n3", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := orphans(3)
			asking, asked, dead := all["n2"], all["n3"], deadLeader{"n1", 2}
			asked.term, asked.leader = row.term, row.leader
			asking.ask(t.Context(), dead)
			require.Equal(t, row.vacant, nominations(t, all) == 1, "the node that is asked: %v", row)

			asking.term, asking.leader = row.term, row.leader
			require.Equal(t, row.vacant, asking.vacant() == dead, "%v", row)
			asking.term, asking.leader = 2, "n1"
			require.Equal(t, row.vacant, asking.vacant() == dead, "what is over does not come back")
			asking.ask(t.Context(), dead)
			require.Equal(t, row.vacant, nominations(t, all) == 1, "the node that asks: %v", row)
		})
	}
}

// TestVacancyIsCheckedAgainAfterTheQuestions: changes while the others are asked count. A node that cannot lead, or has
// no other voter to nominate it, asks nobody.
func TestVacancyIsCheckedAgainAfterTheQuestions(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(asking *voterStub)
		others func(asked *voterStub)
		while  func(asking *voterStub)
		dialed bool
		want   int
	}{
		{name: "nothing changes", dialed: true, want: 1},
		{name: "another node is reached", while: func(v *voterStub) { v.reached("n3") }, dialed: true, want: 1},
		{name: "the leader is reached", while: func(v *voterStub) { v.reached("n1") }, dialed: true},
		{name: "the members change", while: func(v *voterStub) {
			v.configurations.appended([]*raft.Log{configurationAt(2, "n1", "n2", "n3")})
		}, dialed: true},
		{name: "the other has reached the leader", others: func(v *voterStub) { v.reached("n1") }, dialed: true},
		{name: "it has no vote", before: func(v *voterStub) {
			v.configurations.appended([]*raft.Log{configurationAt(2, "n1", "n3")})
		}},
		{name: "it is the only voter", before: func(v *voterStub) {
			v.configurations.appended([]*raft.Log{configurationAt(2, "n2")})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, dialed := orphans(3), false
				v, dial := all["n2"], all["n2"].dial
				v.dial = func(ctx context.Context, id string) (net.Conn, error) {
					require.Equal(t, "n3", id, "the only other voter")
					dialed = true
					return dial(ctx, id)
				}
				all["n3"].slow = 2 * time.Millisecond
				if c.others != nil {
					c.others(all["n3"])
				}
				if c.before != nil {
					c.before(v)
				}
				if c.while != nil {
					time.AfterFunc(time.Millisecond, func() { c.while(v) })
				}
				v.ask(t.Context(), v.vacant())
				require.Equal(t, c.want, nominations(t, all))
				require.Equal(t, c.dialed, dialed)
			})
		})
	}
}

// named is a connection from the node name.
type named struct {
	net.Conn
	name string
}

func (c named) PeerName() string { return c.name }

// TestProposalsThatAreNotTaken: a question of another version, or not from another voter, gets no answer. An answered
// question leads to a nomination only if it is about the leadership that this voter knows to be dead.
func TestProposalsThatAreNotTaken(t *testing.T) {
	over, none := deadLeader{"n1", 2}, deadLeader{}
	for _, row := range []struct {
		id       string
		version  byte
		about    deadLeader
		from     string // the node of the connection
		cut      int    // bytes of the question that are missing
		alters   func(asked *voterStub)
		answered bool
		taken    bool
	}{
		{id: "n2", version: proposalVersion, about: over, answered: true, taken: true},
		{id: "n2", version: proposalVersion, about: over, from: "n2", answered: true, taken: true},
		{id: "n2", version: proposalVersion, about: over, from: "n4"},
		{id: "n2", version: proposalVersion - 1, about: over},
		{id: "n2", version: proposalVersion + 1, about: over},
		{id: "n2", version: proposalVersion, about: over, cut: 1},
		{id: "n2", version: proposalVersion, about: over, cut: 3},
		{id: "n3", version: proposalVersion, about: over}, // itself
		{id: "n4", version: proposalVersion, about: over},
		{id: "", version: proposalVersion, about: over},
		{id: "n2", version: proposalVersion, about: deadLeader{"n1", 1}, answered: true},
		{id: "n2", version: proposalVersion, about: deadLeader{"n2", 2}, answered: true},
		{id: "n2", version: proposalVersion, about: none, answered: true},
		{
			id: "n2", version: proposalVersion, about: none, answered: true,
			alters: func(asked *voterStub) { asked.reached("n1") },
		},
		{
			id: "n2", version: proposalVersion, about: over, answered: true,
			alters: func(asked *voterStub) {
				asked.configurations.appended([]*raft.Log{configurationAt(2, "n1", "n2")})
			},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := orphans(3)
			if row.alters != nil {
				row.alters(all["n3"])
			}
			asking, answering := net.Pipe()
			defer asking.Close()
			question := proposal{candidate: candidate{id: row.id, length: 8}, deadLeader: row.about, nominate: true}.append(nil)
			question[1] = row.version
			question = question[:len(question)-row.cut]
			if row.from != "" {
				answering = named{answering, row.from}
			}
			answered := make(chan error, 1)
			go func() {
				defer answering.Close()
				answered <- all["n3"].answer(answering, question)
			}()
			frame, err := wire.Read(bufio.NewReader(asking), nil, wire.Short)
			require.Equal(t, row.answered, err == nil, "%v", row)
			require.Equal(t, row.taken, err == nil && frame[1] == 1, "%v", row)
			require.Equal(t, row.answered, <-answered == nil, "%v", row)
			require.Equal(t, row.taken, nominations(t, all) == 1, "%v", row)
		})
	}
}

// TestLeaderReachedStopsQuestions: a node that the leader's port has refused asks the others repeatedly. A node that
// reaches the leader asks nobody.
func TestLeaderReachedStopsQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var questions atomic.Int64
		all := orphans(3)
		v, dial := all["n2"], all["n2"].dial
		all["n3"].reached("n1") // so it does not agree
		v.dial = func(ctx context.Context, id string) (net.Conn, error) {
			questions.Add(1)
			return dial(ctx, id)
		}
		v.reached("n1")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- v.run(ctx) }()
		const while = 50*askEvery + askEvery/2
		time.Sleep(while)
		require.Zero(t, questions.Load())
		v.refused("n1")
		time.Sleep(while)
		require.EqualValues(t, 51, questions.Load())
		v.reached("n1")
		time.Sleep(while)
		require.EqualValues(t, 51, questions.Load())
		cancel()
		require.NoError(t, <-ended)
	})
}

// TestStateInQuarantineIsOfNoUse: a node in quarantine reports an applied index of 0, so that its state does not help
// it to be elected.
func TestStateInQuarantineIsOfNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t, "n2", "n3")
		n.applier.index.Store(9)
		require.EqualValues(t, 9, n.failover.candidate().applied)
		n.Quarantine()
		require.Zero(t, n.failover.candidate().applied)
	})
}

// TestAnswersToAQuestion: valid answers, invalid ones, and none. The connection ends with its question.
func TestAnswersToAQuestion(t *testing.T) {
	whole := []byte{proposalKind, 1, 200, 1, 7}
	says := candidate{id: "n2", length: 200, applied: 7}
	for _, c := range []struct {
		answer []byte
		says   candidate
		agrees bool
		err    error
	}{
		{whole, says, true, nil},
		{[]byte{proposalKind, 0, 9, 0}, candidate{id: "n2", length: 9}, false, nil},
		{whole[:0:0], candidate{}, false, wire.ErrCorrupt},
		{whole[:1], candidate{}, false, wire.ErrCorrupt},
		{whole[:3], candidate{}, false, wire.ErrCorrupt},
		{append([]byte{proposalKind + 1}, whole[1:]...), candidate{}, false, wire.ErrCorrupt},
		{nil, candidate{}, false, io.ErrClosedPipe}, // no answer in time
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			asking, answering := net.Pipe()
			f := &fastFailover{dial: func(context.Context, string) (net.Conn, error) { return asking, nil }}
			ended := make(chan error, 1)
			go func() {
				br := bufio.NewReader(answering)
				_, _ = wire.Read(br, nil, wire.Short)
				if c.answer != nil {
					_, _ = answering.Write(wire.Seal(append(make([]byte, wire.Head), c.answer...)))
				} else {
					cancel()
				}
				_, err := br.ReadByte()
				ended <- err
			}()
			got, agrees, err := f.send(ctx, "n2", proposal{candidate: candidate{id: "n1", length: 8}})
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				require.Equal(t, c.says, got)
				require.Equal(t, c.agrees, agrees)
			}
			require.ErrorIs(t, <-ended, io.EOF)
			cancel()
		})
	}
}

// TestNominationsThatAreRefused: a node that may not lead refuses a nomination, and raft does not get it.
func TestNominationsThatAreRefused(t *testing.T) {
	for _, want := range []error{errNoVote, ErrQuarantined} {
		synctest.Test(t, func(t *testing.T) {
			f := &rpcFilter{applier: &applier{}, configurations: newConfigurations("n1")}
			if want == ErrQuarantined {
				f.configurations.appended([]*raft.Log{configurationAt(1, "n1", "n2")})
			}
			if want == ErrQuarantined {
				f.applier.quarantine.begin()
			}
			answer := make(chan raft.RPCResponse, 1)
			f.pass(t.Context(), raft.RPC{Command: nomination(), RespChan: answer})
			synctest.Wait()
			require.Len(t, answer, 1)
			require.ErrorIs(t, (<-answer).Error, want)
		})
	}
}
