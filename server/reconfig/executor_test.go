package reconfig

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
)

// cell is a cluster of nodes that share one world, in which changes and replies can fail.
type cell struct {
	mu sync.Mutex
	world
	t        *testing.T
	services map[string]*Service // by ID
	taken    []AppliedStep
	// before and after are called around each change. The error of either is the result of the change.
	before, after func(Action) error
	// lost has the nodes whose replies to others are lost.
	lost map[string]bool
	// died has the times at which nodes last answered, by ID. The leader reports them as silent a little later.
	died map[string]time.Time
}

func newCell(t *testing.T, line string) *cell {
	c := &cell{
		world: newWorld(t, line), t: t, services: map[string]*Service{}, lost: map[string]bool{},
		before: func(Action) error { return nil }, after: func(Action) error { return nil },
	}
	for _, m := range c.Members {
		told := func(s AppliedStep) { c.taken = append(c.taken, s) }
		c.services[m.ID] = NewService(NewExecutor(seat{c, m.ID}, told), seat{c, m.ID})
	}
	return c
}

// seat is a node of a cell.
type seat struct {
	*cell
	id string
}

func (s seat) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.cell.View
	v.Nodes = maps.Clone(v.Nodes)
	for id, n := range v.Nodes {
		n.Heard = time.Now()
		if died, dead := s.died[id]; dead {
			n.Heard, n.Silent = died, time.Since(died) > 400*time.Millisecond
		}
		if !s.lags[id] {
			n.Match = v.Last
		}
		v.Nodes[id] = n
	}
	v.Leads, v.Self = s.Leads && s.Self == s.id, s.id
	return v
}

func (s seat) Change(_ context.Context, do Action, m members.Member, after uint64) (uint64, error) {
	if err := s.before(do); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if after != s.Index {
		return 0, errors.New("configuration changed")
	}
	s.take(Step{Do: do, Member: m})
	return s.Index, s.after(do)
}

func (s seat) HandOver(_ context.Context, to string) error {
	if err := s.before(HandOver); err != nil {
		return err
	}
	s.set(func() { s.lead(to) })
	return nil
}

func (s seat) TakeState(_ context.Context, id string) (string, error) {
	if err := s.before(TakeState); err != nil {
		return "", err
	}
	return id + " took the state", nil
}

func (s seat) Ask(ctx context.Context, id string, q Request) (Reply, error) {
	if s.lost[id] {
		return Reply{}, errors.New("connection lost")
	}
	reply := s.services[id].Do(ctx, q)
	if s.lost[id] {
		return Reply{}, errors.New("connection lost")
	}
	return reply, nil
}

func (c *cell) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cell) lead(id string) { c.Self, c.Leader = id, id }

// ask sends a request to the service of a node, with a timeout of ten seconds.
func (c *cell) ask(at, line string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	q := requestOf(c.t, line)
	reply, err := c.services[idOf(at)].Ask(ctx, q)
	return reply.Steps, err
}

func bubble(t *testing.T, line string, f func(t *testing.T, c *cell)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newCell(t, line)) })
}

func TestAnyNodeTakesARequest(t *testing.T) {
	bubble(t, "n1* n2 n3 n4-", func(t *testing.T, c *cell) {
		said, err := c.ask("n3", "replace n1 n4")
		require.NoError(t, err)
		require.Equal(t, []string{
			"n4 got a vote: 4 voters, of which 1 may fail", "n1 handed the leadership over to n2",
			"n1 was removed: 3 voters, of which 1 may fail",
		}, said)
		require.Equal(t, "members n2* n3 n4", c.String())
		require.Len(t, c.taken, 3, "the log has every step")
		require.Equal(t, uint64(2), c.taken[0].Index)

		said, err = c.ask("n3", "promote n4")
		require.NoError(t, err)
		require.Equal(t, []string{"n4 has a vote"}, said)
	})
}

// TestALeaderIsLostInTheMiddle shows that if the leader dies during a request, the next leader completes it, whether or
// not the last step was done.
func TestALeaderIsLostInTheMiddle(t *testing.T) {
	for _, taken := range []bool{false, true} {
		bubble(t, "n1* n2 n3 n4-", func(t *testing.T, c *cell) {
			dies := func(do Action) error {
				if do != TakeOut || c.Leader != idOf("n1") {
					return nil
				}
				c.lost[idOf("n1")] = true
				c.lead(idOf("n2"))
				return errors.New("leadership lost while committing log")
			}
			c.before = dies
			if taken {
				c.before, c.after = c.after, dies
			}
			said, err := c.ask("n3", "remove n4")
			require.NoError(t, err)
			require.Len(t, said, 1)
			require.Equal(t, "members n1 n2* n3", c.String())
		})
	}
}

// TestALeaderStepsDownInTheMiddle shows that a leader that loses the leadership but is up returns the next leader,
// which completes the request.
func TestALeaderStepsDownInTheMiddle(t *testing.T) {
	bubble(t, "n1* n2 n3 n4-", func(t *testing.T, c *cell) {
		c.before = func(do Action) error {
			if do != TakeOut || c.Leader != idOf("n1") {
				return nil
			}
			c.lead(idOf("n3"))
			return errors.New("not the leader")
		}
		said, err := c.ask("n1", "replace n2 n4")
		require.NoError(t, err)
		require.Equal(t, []string{
			"n4 got a vote: 4 voters, of which 1 may fail",
			"n2 was removed: 3 voters, of which 1 may fail",
		}, said)
	})
}

// TestNoStepOnAnotherConfiguration shows that a step is decided again if the configuration has changed since it was
// decided.
func TestNoStepOnAnotherConfiguration(t *testing.T) {
	bubble(t, "n1* n2 n3 n4", func(t *testing.T, c *cell) {
		raced := false
		c.before = func(Action) error {
			if !raced {
				raced = true
				c.take(Step{Do: TakeOut, Member: members.Member{ID: idOf("n4")}})
				n := c.Nodes[idOf("n2")]
				n.Silent = true
				c.Nodes[idOf("n2")] = n
			}
			return nil
		}
		_, err := c.ask("n1", "remove n3")
		require.ErrorContains(t, err, "without n3 1 of 2 voters would answer")
		require.Equal(t, "members n1* n2? n3", c.String())
	})
}

// TestARefusalForSilenceIsNotHasty shows that a request waits a little for a member that has just become silent, before
// it is refused.
func TestARefusalForSilenceIsNotHasty(t *testing.T) {
	bubble(t, "n1* n2? n3", func(t *testing.T, c *cell) {
		go func() {
			time.Sleep(time.Second)
			c.set(func() { c.Nodes[idOf("n2")] = Node{} })
		}()
		_, err := c.ask("n1", "remove n3")
		require.NoError(t, err)
	})
	bubble(t, "n1* n2? n3", func(t *testing.T, c *cell) {
		began := time.Now()
		_, err := c.ask("n1", "remove n3")
		require.ErrorContains(t, err, "mend or remove n2 first, or use force")
		require.Less(t, time.Since(began), 3*time.Second)
		_, err = c.ask("n1", "remove n3 force")
		require.NoError(t, err)
		require.True(t, c.taken[0].Request.Force)
	})
}

func TestNoLeader(t *testing.T) {
	bubble(t, "n1* n2 n3", func(t *testing.T, c *cell) {
		c.lead("")
		began := time.Now()
		_, err := c.ask("n1", "remove n3")
		require.ErrorIs(t, err, ErrNoLeader)
		require.Less(t, time.Since(began), 6*time.Second, "a client that waits ten seconds learns why")
		require.Empty(t, c.taken)

		c.lead(idOf("n2"))
		c.lost[idOf("n2")] = true
		_, err = c.ask("n1", "remove n3")
		require.ErrorIs(t, err, ErrUncertain, "it may have got the request")
	})
}

// TestDrain shows that a removed node runs until its client has the reply, and no longer than the context allows.
func TestDrain(t *testing.T) {
	bubble(t, "n1* n2 n3", func(t *testing.T, c *cell) {
		began, hang := time.Now(), make(chan struct{})
		c.before = func(Action) error { <-hang; return nil }
		rest := func(limit time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			c.services[idOf("n3")].Drain(ctx)
			return time.Since(began)
		}
		require.Zero(t, rest(time.Second), "there is no request")
		var asked sync.WaitGroup
		asked.Go(func() { _, _ = c.ask("n3", "remove n3") })
		synctest.Wait()
		require.Equal(t, time.Second, rest(time.Second))
		close(hang)
		asked.Wait()
		require.Less(t, rest(time.Hour), 2*time.Second)
	})
}

// TestAChangeUnderWayIsWaitedFor shows that no step is decided before the latest configuration is committed.
func TestAChangeUnderWayIsWaitedFor(t *testing.T) {
	bubble(t, "n1* n2 n3", func(t *testing.T, c *cell) {
		c.Changing = true
		_, err := c.ask("n1", "remove n3")
		require.ErrorContains(t, err, "is not on a majority's disks yet")
		require.Empty(t, c.taken)
		go func() {
			time.Sleep(time.Second)
			c.set(func() { c.Changing = false })
		}()
		_, err = c.ask("n1", "remove n3")
		require.NoError(t, err)
	})
}

func TestOneRequestAtATime(t *testing.T) {
	bubble(t, "n1* n2 n3", func(t *testing.T, c *cell) {
		hang := make(chan struct{})
		c.before = func(Action) error { <-hang; return nil }
		go func() { _, _ = c.ask("n1", "remove n3") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.Equal(t, "another change of members is under way", c.services[idOf("n1")].Do(ctx,
			requestOf(t, "remove n2")).Error)
		close(hang)
	})
}

// TestVoterDiedAMomentAgo shows that a voter that has just died does not count as one that answers.
func TestVoterDiedAMomentAgo(t *testing.T) {
	for _, line := range []string{"remove n2", "demote n2", "remove n1"} {
		bubble(t, "n1* n2 n3", func(t *testing.T, c *cell) {
			c.died = map[string]time.Time{idOf("n3"): time.Now()}
			time.Sleep(time.Millisecond)
			_, err := c.ask("n1", line)
			require.ErrorContains(t, err, "1 of 2 voters would answer, and 2 must")
			require.Equal(t, "members n1* n2 n3", c.String())
		})
	}
}

// TestWhoLagsHoldsUpNobody shows that a request that waits for a member that lags does not delay other requests.
func TestWhoLagsHoldsUpNobody(t *testing.T) {
	bubble(t, "n1* n2 n3 n4-~", func(t *testing.T, c *cell) {
		began := time.Now()
		go func() { _, _ = c.ask("n1", "promote n4") }()
		synctest.Wait()
		_, err := c.ask("n1", "remove n3")
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
		_, err = c.ask("n1", "promote n4")
		require.ErrorContains(t, err, "n4 does not keep up")
		require.False(t, c.IsVoter(idOf("n4")))
	})
}

func TestTransfer(t *testing.T) {
	bubble(t, "n1* n2 n3", func(t *testing.T, c *cell) {
		said, err := c.ask("n3", "transfer n3")
		require.NoError(t, err)
		require.Equal(t, []string{"n1 handed the leadership over to n3"}, said)
		require.Equal(t, "members n1 n2 n3*", c.String())
		c.before = func(Action) error { return errors.New("no other node takes it") }
		_, err = c.ask("n3", "remove n3")
		require.ErrorContains(t, err, "did not take the leadership: no other node takes it")
		require.Len(t, c.Members, 3)
	})
}

func TestPace(t *testing.T) {
	start := time.Now()
	heard := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	see := func(looks ...[3]uint64) (rounds []bool) {
		var p pacer
		for _, l := range looks {
			rounds = append(rounds, p.observe(l[0], Node{Match: l[1], Heard: heard(int(l[2]))}))
		}
		return rounds
	}
	require.Equal(t, []bool{false, false, false, true}, see([3]uint64{100, 100, 0}, [3]uint64{100, 100, 1},
		[3]uint64{100, 100, 2}, [3]uint64{100, 100, 3}), "at rest")
	require.NotContains(t, see([3]uint64{100, 100, 0}, [3]uint64{100, 100, 0}, [3]uint64{100, 100, 0},
		[3]uint64{100, 100, 0}, [3]uint64{100, 100, 0}), true, "one answer is no proof, however often it is looked at")
	require.NotContains(t, see([3]uint64{9000, 10, 0}, [3]uint64{9000, 20, 1}, [3]uint64{9000, 30, 2},
		[3]uint64{9000, 40, 3}), true, "on the way")
	require.NotContains(t, see([3]uint64{1000, 0, 0}, [3]uint64{2000, 1000, 1}, [3]uint64{3000, 2000, 2},
		[3]uint64{4000, 3000, 3}, [3]uint64{5000, 4000, 4}), true, "the log runs away")
	require.Equal(t, []bool{false, false, false, true}, see([3]uint64{1000, 0, 0}, [3]uint64{1100, 1000, 1},
		[3]uint64{1200, 1100, 2}, [3]uint64{1300, 1200, 3}), "a moment behind")

	var p pacer
	require.False(t, p.observe(100, Node{Match: 100, Heard: heard(0)}))
	for i := range 10 {
		require.False(t, p.observe(100, Node{Match: 100, Heard: heard(i), Silent: true}))
	}
}
