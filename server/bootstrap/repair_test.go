package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// rotten is a cluster that was bootstrapped and stopped. Its members have entries 21 to 30.
type rotten struct {
	*world
	store.Identity // of one of them
	initial        map[string]string
}

// newRotten returns a cluster of n nodes. The newest snapshot of n1, up to index 25, is damaged.
func newRotten(t *testing.T, n int) *rotten {
	w := newWorld(t)
	r := &rotten{world: w, initial: make(map[string]string)}
	for i := range n {
		name := fmt.Sprint("n", i+1)
		r.initial[name] = name + ":1"
	}
	var lives []*life
	for name := range r.initial { // unordered: they found together
		lives = append(lives, w.start(name, func(c *Config) { c.Initial = r.initial }))
	}
	r.Identity = w.requireEntered(lives...)
	for name := range r.initial { // likewise
		w.kill(name)
	}
	r.fill("n1", 25)
	require.NoError(t, w.disks["n1"].RotSnapshots())
	return r
}

// stateOf returns the state in a node's snapshot.
func stateOf(name string) string { return strings.Repeat("the state of "+name, 100) }

// fill gives a stopped node the log, and a snapshot up to index.
func (r *rotten) fill(name string, index uint64) {
	r.t.Helper()
	s, err := r.disks[name].Open(store.Config{Name: name})
	require.NoError(r.t, err)
	var logs []*raft.Log
	for i := uint64(1); i <= 30; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1})
	}
	require.NoError(r.t, s.Log.StoreLogs(logs))
	conf := raft.Configuration{}
	for _, m := range r.Founders {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Addr)})
	}
	sink, err := s.Snapshots.Create(1, index, 1, conf, 1, nil)
	require.NoError(r.t, err)
	_, err = io.WriteString(sink, stateOf(name))
	require.NoError(r.t, err)
	require.NoError(r.t, sink.Close())
	require.NoError(r.t, s.Log.DeleteRange(1, 20))
	require.NoError(r.t, s.Close())
	r.disks[name].Crash()
}

// again starts a node, which knows the founders as the members.
func (r *rotten) again(name string, change ...func(*Config)) *life {
	founders := func() members.Configuration { return members.NewConfiguration(1, r.Founders...) }
	first := func(c *Config) {
		c.Initial, c.Committed, c.Newest = r.initial, founders, founders
		s := c.Folder.(*folder).Store
		c.State = func(from uint64) (store.Snapshot, io.ReadCloser, error) { return newest(s, from) }
	}
	return r.start(name, append([]func(*Config){first}, change...)...)
}

// newest returns the newest state of a node, if it reaches index from.
func newest(s *store.Store, from uint64) (store.Snapshot, io.ReadCloser, error) {
	list, err := s.Snapshots.List()
	if err != nil || len(list) == 0 || list[0].Index < from {
		return store.Snapshot{}, nil, errors.Join(err, errors.New("it is behind"))
	}
	meta, state, err := s.Snapshots.Open(list[0].ID)
	if err != nil {
		return store.Snapshot{}, nil, err
	}
	return store.FromRaft(meta), state, nil
}

// requireMended requires that the node has entered the cluster with the state of another node, and that its log is
// unchanged.
func (l *life) requireMended(t *testing.T, of string) {
	t.Helper()
	require.NoError(t, <-l.entered)
	require.Nil(t, l.store.Missing())
	_, r, err := newest(l.store, 0)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.Equal(t, stateOf(of), string(text))
	first, err := l.store.Log.FirstIndex()
	require.NoError(t, err)
	last, err := l.store.Log.LastIndex()
	require.NoError(t, err)
	require.Equal(t, [2]uint64{21, 30}, [2]uint64{first, last})
}

// waits requires that the node waits for a state, and has logged why.
func (l *life) waits(t *testing.T, why ...string) {
	t.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	require.Empty(t, l.entered)
	require.Equal(t, "waiting for a member's state in the place of a damaged snapshot", l.Waiting())
	for _, w := range why {
		require.Contains(t, l.log.text(), w)
	}
	require.False(t, l.proved())
}

// TestDamagedSnapshotIsMended shows that a node with a damaged snapshot gets the state of a member whose state is new
// enough for the node's log. Until there is one, the node waits and asks the members again.
func TestDamagedSnapshotIsMended(t *testing.T) {
	for _, has := range []uint64{20, 22, 25, 30} {
		synctest.Test(t, func(t *testing.T) {
			r := newRotten(t, 3)
			r.fill("n2", 20)
			r.fill("n3", has)
			r.again("n2", func(c *Config) {
				c.State = func(uint64) (store.Snapshot, io.ReadCloser, error) {
					return store.Snapshot{}, nil, errors.New("it is behind")
				}
			})
			one := r.again("n1")
			require.False(t, one.Alone())
			one.waits(t, "takes no part before another member has sent its state", "is damaged", "from_index=20",
				"n2:1: it is behind", "n3:1: dial peer n3:1")
			r.again("n3")
			one.requireMended(t, "n3")
			require.Contains(t, one.log.text(), fmt.Sprintf("member=n3 index=%d term=1 bytes=1500", has))
			require.NoError(t, <-r.again("n1").entered, "and stays so")
		})
	}
}

// TestStateOfAMemberThatIsNotKnown shows that a node gets the state of a member whose new address it learns from
// another member.
func TestStateOfAMemberThatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotten(t, 3)
		r.fill("n3", 25)
		moved := members.NewConfiguration(9, append([]members.Member{{ID: "n3", Addr: "n3:2"}}, r.Founders[:2]...)...)
		r.again("n3", func(c *Config) { c.Addr = "n3:2" })
		r.again("n2", func(c *Config) {
			c.Committed = func() members.Configuration { return moved }
			c.State = func(uint64) (store.Snapshot, io.ReadCloser, error) {
				return store.Snapshot{}, nil, errors.New("it is behind")
			}
		})
		r.again("n1").requireMended(t, "n3")
	})
}

// TestNobodyHasTheState shows that a node ends as soon as all other members have said that they cannot send the state,
// and not while one of them is down.
func TestNobodyHasTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotten(t, 3)
		r.fill("n3", 25)
		require.NoError(t, r.disks["n3"].RotSnapshots())
		r.older["n2"] = true
		three := r.again("n3")
		three.waits(t)
		one := r.again("n1")
		one.waits(t, "n3:1: its newest snapshot is missing or damaged, too", "n2:1: dial peer n2:1")
		r.again("n2")
		err := <-one.entered
		require.ErrorContains(t, err, "is damaged: its state is damaged; this node must not go on under its name")
		require.ErrorContains(t, err, "no other member has the state")
		require.ErrorContains(t, err, `does not know the request "state"`)
		require.NotContains(t, err.Error(), "\n")
		require.NotNil(t, one.store.Missing())
		require.Error(t, <-three.entered)
	})
}

// TestTwoOfThreeAreMended shows that two members get the state of the third at the same time.
func TestTwoOfThreeAreMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotten(t, 3)
		r.fill("n2", 25)
		r.fill("n3", 24)
		require.NoError(t, r.disks["n2"].RotSnapshots())
		one, two := r.again("n1"), r.again("n2")
		one.waits(t)
		two.waits(t)
		r.again("n3")
		one.requireMended(t, "n3")
		two.requireMended(t, "n3")
	})
}

// TestLoneNodeIsNotMended shows that a node that knows no other member ends at once, also if its contact is its own
// address.
func TestLoneNodeIsNotMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begun := newRotten(t, 1), time.Now()
		one := r.again("n1")
		require.True(t, one.Alone())
		err := <-one.entered
		require.ErrorContains(t, err, "is damaged")
		require.ErrorContains(t, err, "this node knows no other member")
		require.Zero(t, time.Since(begun))
		one = r.again("n1", func(c *Config) { c.Addr, c.Contacts = ":1", []string{"n1:1"} })
		require.False(t, one.Alone())
		require.ErrorContains(t, <-one.entered, "this node knows no other member", "the address leads back to it")
	})
}

// TestRemovedNodeIsNotMended shows that a removed node gets no state. It learns that it was removed if it knows that it
// was a member, and waits otherwise.
func TestRemovedNodeIsNotMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotten(t, 3)
		r.fill("n2", 25)
		left := members.NewConfiguration(9, r.Founders[1:]...)
		without := func(c *Config) { c.Committed = func() members.Configuration { return left }; c.Newest = c.Committed }
		r.again("n2", without)
		removed := make(chan struct{})
		one := r.again("n1", func(c *Config) { c.Removed = func() { close(removed) } })
		<-removed
		synctest.Wait()
		require.Empty(t, one.entered, "the owner ends it")
		require.NotNil(t, one.store.Missing())

		one = r.again("n1", func(c *Config) { // it does not know that it was a member
			c.Committed = func() members.Configuration { return members.Configuration{} }
			c.Newest = c.Committed
		})
		one.waits(t, "is no member, as far as is known here")
	})
}

// badStream is the stream of a state. Each read takes pause, and err, if set, replaces io.EOF.
type badStream struct {
	io.Reader
	pause time.Duration
	err   error
}

func (b *badStream) Read(p []byte) (int, error) {
	time.Sleep(b.pause)
	n, err := b.Reader.Read(p[:min(len(p), 16<<10)])
	if err == io.EOF && b.err != nil {
		err = b.err
	}
	return n, err
}

func (*badStream) Close() error { return nil }

// TestStatesThatAreNotWhole shows that a state that is incomplete, slow or of no use is dropped, and the next member is
// asked, within minutes.
func TestStatesThatAreNotWhole(t *testing.T) {
	for name, row := range map[string]struct {
		alter func(*store.Snapshot)
		bytes int // that are sent
		pause time.Duration
		err   error
		why   string
	}{
		"cut off":   {nil, 1000, 0, errors.New("the disk"), "the stream is cut off"},
		"too short": {nil, 999, 0, nil, "999 bytes instead of 1000"},
		"too long":  {nil, 1 << 20, 0, nil, "1001 bytes instead of 1000"},
		"slow": {
			func(s *store.Snapshot) { s.Bytes = 16 << 20 }, 16 << 20, 100 * time.Millisecond, nil,
			"does not come in time",
		},
		"stuck":           {nil, 1000, 3 * time.Minute, nil, "cut off"},
		"too early":       {func(s *store.Snapshot) { s.Index = 19 }, 1000, 0, nil, "is needed up to 20"},
		"larger than any": {func(s *store.Snapshot) { s.Bytes = maxStateBytes + 1 }, 1000, 0, nil, "makes no sense"},
		"without this node": {
			func(s *store.Snapshot) { s.Members.Index = 9 }, 1000, 0, nil,
			"does not have this node as a member",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, asked := newRotten(t, 3), new(atomic.Int32)
				r.fill("n3", 25)
				r.again("n2", func(c *Config) {
					c.State = func(uint64) (store.Snapshot, io.ReadCloser, error) {
						asked.Add(1)
						s := store.Snapshot{
							Index: 25, Term: 1, Bytes: 1000,
							Members: members.NewConfiguration(1, members.Member{ID: "n7"}),
						}
						if row.alter != nil {
							row.alter(&s)
						}
						return s, &badStream{strings.NewReader(strings.Repeat("0", row.bytes)), row.pause, row.err}, nil
					}
				})
				one := r.again("n1")
				time.Sleep(4 * time.Minute)
				require.Contains(t, one.log.text(), row.why)
				require.Less(t, asked.Load(), int32(30), "each costs the other node something")
				r.again("n3")
				one.requireMended(t, "n3")
			})
		})
	}
}

// TestMendingEndsWithTheNode shows that EnterCluster ends at once with its context, also while a state is received.
func TestMendingEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRotten(t, 2)
		r.again("n2", func(c *Config) {
			c.State = func(uint64) (store.Snapshot, io.ReadCloser, error) {
				s := store.Snapshot{
					Index: 25, Term: 1, Bytes: 1000, Members: members.NewConfiguration(0, members.Member{ID: "n1"}),
				}
				return s, &badStream{Reader: strings.NewReader("s"), pause: 15 * time.Second}, nil
			}
		})
		one := r.again("n1")
		time.Sleep(time.Second)
		begun := time.Now()
		one.cancel()
		require.Error(t, <-one.entered)
		require.Zero(t, time.Since(begun))
	})
}

// TestLargeState shows that a large state may take longer than stateTimeout.
func TestLargeState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 48 << 20
		r, begun := newRotten(t, 2), time.Now()
		r.again("n2", func(c *Config) {
			c.State = func(uint64) (store.Snapshot, io.ReadCloser, error) {
				s := store.Snapshot{
					Index: 25, Term: 1, Bytes: size, Members: members.NewConfiguration(0, r.Founders[0]),
				}
				return s, &badStream{Reader: io.LimitReader(zeros{}, size), pause: 50 * time.Millisecond}, nil
			}
		})
		require.NoError(t, <-r.again("n1").entered)
		require.Greater(t, time.Since(begun), stateTimeout)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
