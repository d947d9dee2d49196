package raftnode

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// ended is a context that has ended, but whose Done channel is open.
type ended struct{ context.Context }

func (ended) Err() error { return context.Canceled }

// TestChangesThatAreNotMade: a change that is not made returns at once, and leaves the members and the log as they are.
func TestChangesThatAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follower := openSingle(t, "n2", "n3")
		follower.start()
		_, err := follower.Change(t.Context(), Change{Kind: Remove, Member: members.Member{ID: "n2"}, After: 1})
		require.ErrorIs(t, err, ErrNotLeader)

		n := openSingle(t)
		n.start()
		conf, last := n.Configuration(), n.Last()
		n1, n9 := members.Member{ID: "n1"}, members.Member{ID: "n9", Addr: "n9:1"}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			name   string
			ctx    context.Context
			change Change
			held   bool
			err    error
		}{
			{"it makes no difference", t.Context(), Change{AddVoter, n1, conf.Index}, false, nil},
			{"it is for other members", t.Context(), Change{AddVoter, n1, conf.Index + 1}, false, ErrConfigurationChanged},
			{"it makes no sense", t.Context(), Change{Remove, n9, conf.Index}, false, ErrNotMember},
			{"its time is over", ended{t.Context()}, Change{AddNonvoter, n9, conf.Index}, false, ErrOutcomeUnknown},
			{"its time is over before its turn", canceled, Change{AddNonvoter, n9, conf.Index}, true, context.Canceled},
		} {
			if c.held {
				require.NoError(t, n.hold(t.Context()))
			}
			began := time.Now()
			index, err := n.Change(c.ctx, c.change)
			require.Zero(t, time.Since(began), c.name)
			require.ErrorIs(t, err, c.err, c.name)
			require.Equal(t, map[bool]uint64{true: conf.Index}[c.err == nil], index, c.name)
			synctest.Wait()
			require.Equal(t, conf, n.Configuration(), c.name)
			require.Equal(t, last, n.Last(), c.name)
			require.Equal(t, c.held, len(n.changing) > 0, c.name)
			if c.held {
				require.ErrorIs(t, n.TransferTo(c.ctx, "", nil), c.err, "a transfer waits for its turn, too")
				require.Len(t, n.changing, 1)
				n.release()
			}
		}
	})
}

// TestChangeBehindAnother: raft accepts a change only after the one before is committed, which may take several
// attempts. Change returns after its change is committed.
func TestChangeBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		var refuses atomic.Bool
		n.append.answer = func(req *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			is := takesAll(req)
			if refuses.Load() && !isHeartbeat(req) {
				is.Success, is.LastLog = false, 0
			}
			return is
		}
		n.start()
		change := func(kind ChangeKind, id, addr string) (index uint64, took time.Duration, err error) {
			began := time.Now()
			index, err = n.Change(t.Context(), Change{kind, members.Member{ID: id, Addr: addr}, n.Configuration().Index})
			return index, time.Since(began), err
		}
		index, took, err := change(AddNonvoter, "n2", "n2:1")
		require.NoError(t, err)
		require.Equal(t, n.Configuration().Index, index)
		require.Less(t, took, retryChange, "raft takes it at once")
		_, _, err = change(Move, "n2", "n2:2")
		require.NoError(t, err)
		require.Equal(t, members.Member{ID: "n2", Addr: "n2:2"}, n.CommittedConfiguration().Members[1])
		index, _, err = change(AddVoter, "n2", "")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, index+1, n.Last(), "an entry that the new voter acknowledges as a voter")

		refuses.Store(true)
		const held = 5 * time.Second
		time.AfterFunc(held, func() { refuses.Store(false) })
		done := make(chan time.Duration)
		go func() {
			_, took, err := change(AddNonvoter, "n3", "n3:1")
			require.NoError(t, err)
			done <- took
		}()
		time.Sleep(time.Second)
		require.Equal(t, 3, len(n.Configuration().Members), "it is in the log")
		_, took, err = change(Remove, "n3", "")
		require.NoError(t, err)
		require.GreaterOrEqual(t, took, held-time.Second)
		require.GreaterOrEqual(t, <-done, held)
		require.Len(t, n.CommittedConfiguration().Members, 2)
	})
}

// TestWhatBecameOfAChange: awaitChange waits until the outcome is known: the change is committed, or a node that no
// longer leads has it no more in its log.
func TestWhatBecameOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.start()
		committed, term := n.Configuration(), n.Term()
		n.configurations.appended([]*raft.Log{configurationAt(90, "n1", "n2")})
		for _, c := range []struct {
			name  string
			term  uint64
			want  members.Configuration
			waits bool
			err   error
		}{
			{"committed", term, committed, false, nil},
			{"another in its place", term, members.NewConfiguration(committed.Index), false, ErrOutcomeUnknown},
			{"in the log", term, members.NewConfiguration(90), true, ErrOutcomeUnknown},
			{"in the log of a former leader", term - 1, members.NewConfiguration(90), true, ErrOutcomeUnknown},
			{"out of the log of a former leader", term - 1, members.NewConfiguration(91), false, ErrOutcomeUnknown},
			{"not in the log of the leader", term, members.NewConfiguration(91), true, ErrOutcomeUnknown},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			require.ErrorIs(t, n.awaitChange(ctx, c.term, c.want), c.err, c.name)
			cancel()
			require.Equal(t, c.waits, time.Since(began) > 0, c.name)
		}
		_, err := n.Node.append(t.Context(), term, Change{After: committed.Index}, committed)
		require.ErrorIs(t, err, ErrConfigurationChanged, "another change took its turn")
	})
}

// TestTransfersThatAreNotMade: a transfer to a node that cannot lead fails at once, and the leadership stays.
func TestTransfersThatAreNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := openSingle(t)
		n.append.answer = takesAll
		n.start()
		_, err := n.Change(t.Context(), Change{AddNonvoter, members.Member{ID: "n2", Addr: "n2:1"}, n.Configuration().Index})
		require.NoError(t, err)
		began := time.Now()
		require.ErrorIs(t, n.TransferTo(t.Context(), "n2", nil), ErrNotVoter)
		require.EqualError(t, n.TransferTo(t.Context(), "n9", nil), "n9: "+ErrNotMember.Error())
		require.ErrorIs(t, n.TransferTo(t.Context(), "", nil), ErrNotMember)
		require.Zero(t, time.Since(began))
		require.True(t, n.Leads(n.Term()))
	})
}
