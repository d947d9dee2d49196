package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// story is a renewer with a cluster that notes what is proposed, and when.
type story struct {
	*Renewer
	clients *Clients
	began   time.Time
	stop    func() // ends Run, and waits for that

	mu      sync.Mutex
	down    bool
	slow    time.Duration
	most    int // closed connections at a time
	applied uint64
	tried   time.Time // when a request ended last, applied or not
	// meanwhile is called once, when the renewer asks what was applied.
	meanwhile func()
	lines     []string
	// subscribed are the arguments of SubscribeSessions.
	subscribed []bool
}

func newStory(t *testing.T) *story {
	s := &story{began: time.Now()}
	s.clients = New(Cluster{
		Propose: s.propose, Renew: func() error { return s.note(0, "renew") },
		Applied: func(number uint64) bool {
			var f func()
			s.set(func() { f, s.meanwhile = s.meanwhile, nil })
			if f != nil {
				f()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			return number <= s.applied
		},
		SubscribeSessions: func(yes bool) { s.set(func() { s.subscribed = append(s.subscribed, yes) }) },
	})
	s.Renewer = s.clients.Renewer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.clients.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		stop()
		require.NoError(t, <-done)
	})
	t.Cleanup(s.stop)
	return s
}

// inStory has a test tell a story in virtual time.
func inStory(t *testing.T, test func(t *testing.T, s *story)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStory(t)) })
}

// propose takes what ends the sessions of closed connections.
func (s *story) propose(body []byte, _ int) error {
	var r protocol.Request
	if _, err := protocol.NextRequest(string(body), &r); err != nil {
		return err
	}
	return s.note(len(r.Args)-1, "closed ["+strings.Join(r.Args[1:], " ")+"]")
}

// note notes a request, of so many closed connections.
func (s *story) note(closed int, what string) error {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried = time.Now()
	if s.most > 0 && closed > s.most {
		return errors.New("too much work")
	}
	if s.down {
		return protocol.ErrNoLeader
	}
	s.lines = append(s.lines, fmt.Sprintf("%v: %s", time.Since(s.began), what))
	return nil
}

// told is what was noted since the last call.
func (s *story) told() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *story) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// keep and part are what the log tells.
func (s *story) keep(conn int64, id uint64, lease time.Duration) {
	s.Events([]event.Event{{Kind: event.SessionKept, Lock: &event.LockNews{
		Conn: conn, Session: id,
		LeaseMillis: lease.Milliseconds(),
	}}})
}

func (s *story) part(conn int64, id uint64) {
	s.Events([]event.Event{{Kind: event.SessionLeft, Lock: &event.LockNews{Conn: conn, Session: id}}})
}

// conn is a connection that notes what happens to it.
type conn struct {
	s      *story
	id     int64
	gone   bool
	leases []time.Duration
	heard  time.Time
}

func (c *conn) Heard() (at time.Time) {
	c.s.set(func() { at = c.heard })
	return at
}

// sends is a sign of life.
func (c *conn) sends() { c.s.set(func() { c.heard = time.Now() }) }

func (c *conn) SetLease(shortest time.Duration) {
	c.s.set(func() { c.leases = append(c.leases, shortest) })
}

func (s *story) open(id int64) *conn {
	c := &conn{s: s, id: id, heard: time.Now()}
	s.Enter(id, c)
	return c
}

func (c *conn) note(what string) {
	c.s.set(func() {
		c.s.lines = append(c.s.lines, fmt.Sprintf("%v: connection %d: %s", time.Since(c.s.began), c.id, what))
	})
}

func (c *conn) Post(m *push.Message) {
	c.note(string(m.AppendFrom(nil, protocol.RESP3, 0, 100)))
}

func (c *conn) Cut(why string) {
	c.note("cut, " + why)
	c.s.set(func() { c.gone = true })
}

func (c *conn) isGone() (yes bool) {
	c.s.set(func() { yes = c.gone })
	return yes
}

// TestRenewals: one request renews all, three times in the shortest lease, and none is made without a session.
func TestRenewals(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		time.Sleep(time.Hour)
		require.Empty(t, s.told())
		s.began = time.Now()
		s.open(1)
		s.open(2)
		s.keep(1, 11, 30*time.Second)
		s.keep(2, 12, 60*time.Second)
		time.Sleep(21 * time.Second)
		require.Equal(t, []string{"0s: renew", "10s: renew", "20s: renew"}, s.told())
		s.keep(2, 13, 3*time.Second)
		s.keep(2, 14, 3*time.Second)
		time.Sleep(time.Second)
		require.Equal(t, []string{"21s: renew", "22s: renew"}, s.told())
		require.Equal(t, 4, s.Len())
		require.Zero(t, s.silent.Len(), "no client has promised to send")
		s.part(2, 14)
		s.part(2, 13)
		s.part(1, 11)
		s.part(1, 11)
		s.part(9, 9)
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"42s: renew"}, s.told())
		s.part(2, 12)
		time.Sleep(time.Hour)
		require.Empty(t, s.told())
		require.Zero(t, s.Len())
	})
}

// TestCloses: a closed connection ends its sessions, and is not forgotten while there is no leader. A node
// that ends leaves them.
func TestCloses(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		s.set(func() { s.down = true })
		for id := range int64(4) {
			s.open(id)
			s.keep(id, uint64(id), time.Minute)
		}
		s.open(4)
		s.Leave(4, true) // no sessions
		s.Leave(1, true)
		s.Leave(1, true)
		s.Leave(2, true)
		time.Sleep(10*time.Second + renewRetryInterval/2)
		s.set(func() { s.down = false })
		time.Sleep(time.Second - renewRetryInterval/2)
		require.ElementsMatch(t, []string{"10.1s: closed [1 2]", "10.1s: renew"}, s.told())
		require.Equal(t, 1, s.Sessions(0))
		require.Zero(t, s.Sessions(1))

		// A command of a connection that had closed is applied.
		s.keep(1, 5, time.Minute)
		require.Equal(t, []string{"11s: closed [1]"}, s.told())

		s.Leave(0, false)
		s.keep(3, 8, time.Minute)
		require.Equal(t, 2, s.Sessions(3))
		s.Leave(3, false)
		s.open(5)
		s.Leave(5, true) // a client that leaves while the node ends
		s.keep(3, 9, time.Minute)
		time.Sleep(time.Hour)
		require.Empty(t, s.told())
	})
}

// TestCut: a node that is cut off closes connections before their sessions may be taken for ended, the
// shortest lease first, and gives the clients the time to go elsewhere.
func TestCut(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		short, long := s.open(1), s.open(2)
		s.keep(1, 1, 8*time.Second)
		s.keep(1, 6, 8*time.Second)
		s.keep(1, 2, 16*time.Second)
		s.keep(2, 3, 24*time.Second)
		time.Sleep(6 * time.Second)
		require.Len(t, s.told(), 3)
		s.set(func() { s.down = true })
		s.open(3)
		time.Sleep(4 * time.Second)
		s.keep(3, 4, 8*time.Second) // a log that lags
		time.Sleep(2 * time.Second)
		require.Len(t, s.told(), 0)
		time.Sleep(time.Second) // 13s; renewed last at 5.33s
		require.Equal(t, []string{"12.333333332s: connection 1: cut, its session could not be renewed in time"}, s.told())
		require.False(t, long.isGone())
		require.True(t, short.isGone())
		require.EqualValues(t, 1, s.Cuts())
		s.keep(1, 5, 20*time.Second) // too late
		s.Expect(1, 30*time.Second, 7, time.Now())
		require.Zero(t, s.Sessions(1))
		s.Leave(1, true)
		time.Sleep(4*time.Second + 500*time.Millisecond)
		require.Equal(t, []string{"17s: connection 3: cut, its session could not be renewed in time"}, s.told())
		s.Leave(3, false)
		s.set(func() { s.down = false })
		time.Sleep(14 * time.Second)
		require.Equal(t, []string{"17.599999998s: renew", "25.599999998s: renew"}, s.told())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"33s: closed [1]"}, s.told())
		require.Nil(t, s.endLater, "a crowd's memory is given back")
		require.False(t, long.isGone())
	})
}

// TestSlowRenewal: the lease counts from the beginning of a renewal, however late the reply is.
func TestSlowRenewal(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		s.set(func() { s.slow = 3 * time.Second })
		c := s.open(1)
		s.keep(1, 1, 8*time.Second)
		time.Sleep(11 * time.Second) // the last acknowledged renewal took from 6s to 9s
		require.False(t, c.isGone())
		s.set(func() { s.down = true })
		time.Sleep(1990 * time.Millisecond)
		require.False(t, c.isGone())
		time.Sleep(20 * time.Millisecond)
		require.True(t, c.isGone())
	})
}

// TestExpected: a session that this node's log has not told of is renewed as well, until the log has passed
// its batch.
func TestExpected(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		s.open(1)
		s.Expect(1, 30*time.Second, 7, time.Now())
		s.Expect(1, 30*time.Second, 7, time.Now())
		require.Equal(t, 1, s.Sessions(1))
		s.Expect(1, 30*time.Second, 6, time.Now())
		require.Equal(t, 2, s.Sessions(1))
		require.Equal(t, 2, s.Len())
		s.Expect(2, time.Second, 8, time.Now()) // gone already
		time.Sleep(11 * time.Second)
		require.Equal(t, []string{"0s: renew", "10s: renew"}, s.told())
		s.keep(1, 1, 60*time.Second)
		s.set(func() { s.applied = 7 })
		time.Sleep(39 * time.Second)
		require.Equal(t, []string{"30s: renew", "50s: renew"}, s.told())
		require.Equal(t, 1, s.Len())
		require.Equal(t, 1, s.Sessions(1))
		require.Empty(t, s.expected)
		s.Expect(1, time.Second, 6, time.Now()) // the log was quicker
		require.Equal(t, 1, s.Len())

		// The lease of an attached session is not known.
		s.Expect(1, 0, 9, time.Now())
		time.Sleep(time.Second)
		require.Len(t, s.told(), 3)
		s.Leave(1, true)
		require.Equal(t, []string{"51s: closed [1]"}, s.told())
		require.Zero(t, s.Len())
		require.Empty(t, s.expected)

		// A connection closes while the renewer asks whether the log has passed its batch.
		s.open(3)
		s.open(4)
		s.Expect(3, 30*time.Second, 10, time.Now())
		s.Expect(4, 30*time.Second, 10, time.Now())
		require.Equal(t, 2, s.Len())
		s.set(func() { s.applied, s.meanwhile = 10, func() { s.Leave(3, true) } })
		time.Sleep(time.Minute)
		require.Zero(t, s.Len())
	})
}

// TestEnds: Run ends between two tries, and leaves nothing under way.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, slow := range []time.Duration{0, time.Second} {
			s := newStory(t)
			s.set(func() { s.down, s.slow = true, slow })
			s.open(1)
			s.open(2)
			s.keep(1, 1, time.Minute)
			s.keep(2, 2, time.Minute)
			time.Sleep(time.Second / 2)
			s.Leave(2, true)
			time.Sleep(time.Second + 3*renewRetryInterval/2) // the slow request for the closed connection is the last to end
			stopped := time.Now()
			s.stop()
			require.LessOrEqual(t, time.Since(stopped), slow)
			ended := time.Now()
			time.Sleep(time.Hour)
			s.set(func() { require.False(t, s.tried.After(ended), "a try after the end") })
		}
	})
}

// TestSlowAttach: the lease runs from the moment at which the command went out, though the log told of it late, or a
// snapshot tells of it again. So the connection is closed before the lease is over.
func TestSlowAttach(t *testing.T) {
	cut := func(at string) []string {
		return []string{at + ": connection 1: cut, its session could not be renewed in time"}
	}
	// unrenewed tells of a session of connection 1 that is never renewed. The connection must be cut at an instant.
	unrenewed := func(name, at string, tell func(t *testing.T, s *story)) {
		t.Run(name, func(t *testing.T) {
			inStory(t, func(t *testing.T, s *story) {
				s.open(1)
				s.set(func() { s.down = true })
				tell(t, s)
				time.Sleep(20 * time.Second)
				require.Equal(t, cut(at), s.told())
			})
		})
	}
	for _, c := range []struct {
		name string
		slow time.Duration
		cut  string
	}{
		{"at once", 0, "7s"}, {"half the lease later", 4 * time.Second, "7s"}, {"later than the lease", 9 * time.Second, "9s"},
	} {
		unrenewed(c.name, c.cut, func(_ *testing.T, s *story) {
			s.Ask(1, time.Now())
			s.Ask(2, time.Now()) // gone already
			time.Sleep(c.slow)
			s.keep(1, 1, 8*time.Second)
		})
	}
	unrenewed("behind other commands", "7s", func(_ *testing.T, s *story) {
		for number := range uint64(2) {
			s.Expect(1, 20*time.Second, 7+number, time.Now())
			time.Sleep(2 * time.Second)
		}
		s.Ask(1, time.Now())
		s.keep(1, 1, 8*time.Second)
	})
	unrenewed("told of again, with another lease", "14s", func(t *testing.T, s *story) {
		s.keep(1, 1, 8*time.Second)
		time.Sleep(4 * time.Second)
		s.keep(1, 1, 16*time.Second)
		require.Equal(t, 1, s.Len())
	})
	unrenewed("a snapshot", "7s", func(_ *testing.T, s *story) {
		s.keep(1, 1, 8*time.Second)
		time.Sleep(4 * time.Second)
		s.Ask(1, time.Now()) // for another session
		s.restored(func(each func(int64, uint64, int64)) {
			each(1, 2, 8000)
			each(1, 1, 8000)
		})
	})
	t.Run("later than the lease, and renewed meanwhile", func(t *testing.T) {
		inStory(t, func(t *testing.T, s *story) {
			late := s.open(1)
			s.open(2)
			s.keep(2, 2, 6*time.Second)
			s.Ask(1, time.Now())
			time.Sleep(9 * time.Second)
			s.keep(1, 1, 8*time.Second)
			time.Sleep(9 * time.Second)
			require.False(t, late.isGone())
		})
	})
	t.Run("later than the lease, and the log goes on", func(t *testing.T) {
		inStory(t, func(t *testing.T, s *story) {
			synctest.Wait()
			s.Renewer = New(*s.cluster).Renewer // which does not run: a renewal could come first
			s.open(1)
			s.Ask(1, time.Now())
			time.Sleep(9 * time.Second)
			s.keep(1, 1, 8*time.Second)
			require.Equal(t, cut("9s"), s.told())
		})
	})
}

// TestExpectedWhenCut: a session that the log has not told of may be there all the same, and keeps its lease.
func TestExpectedWhenCut(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		c := s.open(1)
		s.set(func() { s.down = true })
		s.Expect(1, 12*time.Second, 7, time.Now())
		time.Sleep(11 * time.Second)
		require.True(t, c.isGone())
		s.told()
		s.Leave(1, true)
		s.set(func() { s.down = false })
		time.Sleep(11 * time.Second)
		require.Empty(t, s.told())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"23s: closed [1]"}, s.told())
	})
}

// TestVanished: a connection learns the shortest lease of its sessions. When its client was silent for that long, the
// sessions have the rest of their longest lease.
func TestVanished(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		both, short, none, expects := s.open(1), s.open(2), s.open(3), s.open(5)
		s.Expect(1, 30*time.Second, 7, time.Now())
		s.Expect(5, 40*time.Second, 9, time.Now())
		require.Equal(t, []time.Duration{40 * time.Second}, expects.leases)
		s.keep(1, 1, 30*time.Second)
		s.Expect(1, 0, 8, time.Now()) // the lease is not known
		s.set(func() { s.applied = 8 })
		s.keep(1, 2, 8*time.Second)
		s.keep(1, 3, 20*time.Second)
		s.keep(2, 4, 8*time.Second)
		require.Equal(t, []time.Duration{30 * time.Second, 8 * time.Second}, both.leases)
		require.Equal(t, []time.Duration{8 * time.Second}, short.leases)
		require.Empty(t, none.leases)
		time.Sleep(time.Second)
		s.told()
		for id := range int64(6) {
			s.Vanished(id)
			require.Zero(t, s.Sessions(id))
			s.Leave(id, true)
			synctest.Wait() // each leaves alone
		}
		require.Zero(t, s.Len())
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"1s: closed [2]", "1s: closed [5]", "23s: closed [1]"}, s.told())
	})
}

// cutIn is when connections were cut for their silence, among what was noted.
func (s *story) cutIn() (cuts []string) {
	for _, line := range s.told() {
		if strings.HasSuffix(line, whySilent) || strings.Contains(line, "closed") {
			cuts = append(cuts, strings.TrimSuffix(strings.TrimSuffix(line, whySilent), " renew"))
		}
	}
	return cuts
}

// TestSilence: where signs of life are demanded, a connection ends when its client was silent for the shortest lease of
// its sessions, and a longer session has the rest of its lease. What sends in time, or was not asked, is left alone.
func TestSilence(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		lively, asked, unasked, both := s.open(1), s.open(2), s.open(3), s.open(4)
		for id := range int64(5) {
			s.Demand(id, true) // 0 is not there; no sessions yet
		}
		s.Demand(3, false)
		time.Sleep(time.Hour)
		require.Empty(t, s.cutIn())
		s.began = time.Now()
		for _, c := range []*conn{lively, asked, unasked, both} {
			c.sends()
			s.keep(c.id, uint64(c.id), 8*time.Second)
		}
		s.keep(4, 5, 20*time.Second)
		for i := range 22 {
			time.Sleep(time.Second)
			lively.sends()
			for _, c := range []*conn{asked, both} {
				if i == 8 {
					require.True(t, c.isGone())
					s.Leave(c.id, true)
				}
			}
		}
		require.Equal(t, []string{
			"8s: connection 2: cut, ", "8s: connection 4: cut, ", "9s: closed [2]", "21s: closed [4]",
		}, s.cutIn())
		s.Demand(4, true) // gone
		time.Sleep(7900 * time.Millisecond)
		require.False(t, lively.isGone())
		s.part(1, 1)
		time.Sleep(time.Hour)
		require.False(t, lively.isGone(), "no session, nothing is demanded")
		lively.sends()
		s.keep(1, 6, 30*time.Second)
		s.keep(1, 7, 4*time.Second)
		time.Sleep(3900 * time.Millisecond)
		require.False(t, lively.isGone())
		s.Demand(1, false)
		time.Sleep(time.Hour)
		require.False(t, lively.isGone(), "no longer demanded")
		lively.sends()
		time.Sleep(time.Second)
		s.Demand(1, true)
		time.Sleep(3100 * time.Millisecond)
		require.True(t, lively.isGone())
		require.False(t, unasked.isGone())
		require.Zero(t, s.Cuts(), "renewals were in time")
		s.Leave(1, true)
		time.Sleep(25800 * time.Millisecond)
		require.Empty(t, slices.DeleteFunc(s.cutIn(), func(line string) bool { return !strings.Contains(line, "closed") }))
		time.Sleep(200 * time.Millisecond)
		require.Len(t, s.cutIn(), 1, "the longer session had its lease")
		require.Zero(t, s.silent.Len())
	})
}

// TestSilenceCountsFromTheLastCommand: a client is silent when it has sent nothing for a whole limit, whenever the
// renewer checks.
func TestSilenceCountsFromTheLastCommand(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		c := s.open(1)
		c.sends()
		s.keep(1, 1, 8*time.Second)
		s.Demand(1, true)
		time.Sleep(3 * time.Second)
		c.sends()
		time.Sleep(7900 * time.Millisecond)
		require.False(t, c.isGone(), "the renewer checked 5 s after the last command")
		time.Sleep(200 * time.Millisecond)
		require.True(t, c.isGone())
	})
}

// TestSilenceOfTheShortest: silent clients are cut in the order in which their shortest leases end, in whatever order
// clients came and their sessions were opened.
func TestSilenceOfTheShortest(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		for id, leases := range map[int64][]time.Duration{1: {30}, 2: {20, 8}, 3: {20}, 4: {12}} {
			s.open(id)
			s.Demand(id, true)
			for i, lease := range leases {
				s.keep(id, uint64(i+1), lease*time.Second)
			}
		}
		s.open(5)
		s.keep(5, 1, 10*time.Second)
		time.Sleep(9900 * time.Millisecond)
		s.Demand(5, true)
		time.Sleep(25 * time.Second)
		require.Equal(t, []string{
			"8s: connection 2: cut, ", "10s: connection 5: cut, ", "12s: connection 4: cut, ", "20s: connection 3: cut, ",
			"30s: connection 1: cut, ",
		}, s.cutIn())
		s.open(6)
		s.Demand(6, true)
		s.keep(6, 1, time.Hour)
		synctest.Wait()
		require.Equal(t, 1, s.silent.Len())
		s.Leave(6, true)
		require.Zero(t, s.silent.Len(), "who has left is not checked")
	})
}

// TestSilenceOfANodeThatSlept: what clients sent while the node itself slept may be unread. They have a moment more.
func TestSilenceOfANodeThatSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{began: time.Now()}
		s.Renewer = New(Cluster{Applied: func(uint64) bool { return true }, SubscribeSessions: func(bool) {}}).Renewer
		c := s.open(1)
		s.keep(1, 1, 8*time.Second)
		s.Demand(1, true)
		require.Equal(t, time.Second, s.cutSilent(s.began.Add(7*time.Second)))
		require.Equal(t, time.Second, s.cutSilent(s.began.Add(9100*time.Millisecond)), "late by more than an eighth")
		require.False(t, c.isGone())
		s.cutSilent(s.began.Add(10100 * time.Millisecond))
		require.True(t, c.isGone())
		require.Equal(t, time.Duration(noDeadline), s.cutSilent(s.began.Add(time.Hour)))
	})
}

// TestRestored: a snapshot says which sessions there are.
func TestRestored(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		s.open(1)
		s.open(2)
		s.keep(1, 1, 30*time.Second)
		s.keep(1, 2, 3*time.Second)
		require.Equal(t, []string{"0s: renew"}, s.told())
		s.clients.Restored(func(each func(int64, uint64, int64)) {
			each(1, 1, 30_000)
			each(2, 3, 60_000)
			each(7, 4, 1000)
		})
		require.Equal(t, 2, s.Len())
		require.Equal(t, 1, s.Sessions(1))
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"0s: closed [7]", "10s: renew", "20s: renew"}, s.told())
	})
}

// TestTold: a loss is told to the connection that it is for.
func TestTold(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		s.open(1)
		for conn := range int64(2) {
			s.Events([]event.Event{{Kind: event.LockLost, Key: "k", Lock: &event.LockNews{
				Owner: "me", Fence: 7,
				Reason: "broken", Conn: conn,
			}}})
		}
		require.Equal(t,
			[]string{"0s: connection 1: >6\r\n$4\r\nlock\r\n$4\r\nlost\r\n$1\r\nk\r\n$2\r\nme\r\n:7\r\n$6\r\nbroken\r\n"},
			s.told())
		for text, by := range map[string]string{"": "admin", "why": "", "for repair": "admin"} {
			s.Events([]event.Event{{Kind: event.LockLost, Key: "k", Lock: &event.LockNews{
				Owner: "me", Reason: "broken", Conn: 1, Text: text, By: by,
			}}})
			told := s.told()
			require.Len(t, told, 1)
			require.Contains(t, told[0], fmt.Sprintf("broken\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(text), text, len(by), by))
		}
	})
}

// TestSubscribes: while there are clients, whatever they hold.
func TestSubscribes(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		s.open(1)
		s.open(2)
		s.Leave(1, true)
		s.set(func() { require.Equal(t, []bool{true}, s.subscribed) })
		s.Leave(2, false)
		s.Leave(2, true)
		s.open(3)
		s.set(func() { require.Equal(t, []bool{true, false, true}, s.subscribed) })
	})
}

// TestRefusedDepartures: sessions are renewed, whatever becomes of those who have left.
func TestRefusedDepartures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewals := 0
		s := &story{began: time.Now(), clients: New(Cluster{
			Propose:           func([]byte, int) error { return errors.New("refused") },
			Renew:             func() error { renewals++; return nil },
			SubscribeSessions: func(bool) {},
		})}
		s.Renewer = s.clients.Renewer
		go s.clients.Run(t.Context())
		gone, stays := s.open(1), s.open(2)
		s.keep(1, 1, 3*time.Second)
		s.keep(2, 2, 3*time.Second)
		s.Leave(gone.id, true)
		time.Sleep(time.Minute + renewRetryInterval)
		synctest.Wait()
		require.Equal(t, 61, renewals, "three times in the lease")
		require.False(t, stays.isGone())
	})
}

// TestManyClose: those who close while others are asked for are not forgotten.
func TestManyClose(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		const many = 2*maxLeaving + 1
		for id := range int64(many) {
			s.open(id)
			s.keep(id, 1, time.Hour)
		}
		require.NotEmpty(t, s.told())
		s.set(func() { s.down = true })
		for id := range int64(many) {
			s.Leave(id, true)
		}
		time.Sleep(time.Second + renewRetryInterval/2)
		s.set(func() { s.down = false })
		time.Sleep(time.Second)
		require.Equal(t, 3, len(s.told()))
		require.Empty(t, s.departures.conns)
		s.set(func() { s.most, s.down = 300, true }) // down until all have closed: else few leave at a time
		for id := range int64(many) {
			s.open(id)
			s.keep(id, 1, time.Hour)
			s.Leave(id, true)
		}
		s.set(func() { s.down = false })
		time.Sleep(time.Minute)
		require.NotEmpty(t, s.told())
		require.Empty(t, s.departures.conns)

		// What was refused once is no measure for later.
		s.set(func() { s.most, s.down = 0, true })
		for id := range int64(many) {
			s.keep(id, 1, time.Hour) // of a connection that has closed
		}
		time.Sleep(time.Second + renewRetryInterval/2)
		s.set(func() { s.down = false })
		time.Sleep(time.Second)
		require.Len(t, s.told(), 3)
	})
}

// unheard is a connection that notes nothing, and so takes no lock.
type unheard struct{}

func (unheard) SetLease(time.Duration) {}
func (unheard) Heard() time.Time       { return time.Now() }
func (unheard) Post(*push.Message)     {}
func (unheard) Cut(string)             {}

// TestEachTwo: any two calls may come at once. The race detector looks on: no other lock orders the two.
func TestEachTwo(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	calls := []func(c *Clients){
		func(c *Clients) { c.Renewer.Enter(4, unheard{}) },
		func(c *Clients) { c.Renewer.Leave(1, true) },
		func(c *Clients) { c.Renewer.Vanished(1) },
		func(c *Clients) { c.Renewer.Sessions(1) },
		func(c *Clients) { c.Renewer.Ask(1, time.Now()) },
		func(c *Clients) { c.Renewer.Expect(1, time.Minute, 8, time.Now()) },
		func(c *Clients) { c.Renewer.Demand(1, true) },
		func(c *Clients) { c.Renewer.sessionAttached(1, 1, 60_000) },
		func(c *Clients) { c.Renewer.sessionDetached(1, 1) },
		func(c *Clients) { c.Renewer.post(1, nil) },
		func(c *Clients) { c.Renewer.Len() },
		func(c *Clients) { c.Renewer.Cuts() },
		func(c *Clients) { c.Renewer.next(time.Now()) },
		func(c *Clients) { c.Renewer.renewedAt(time.Now()) },
		func(c *Clients) { c.Renewer.forgetExpected() },
		func(c *Clients) { c.Renewer.cutUnrenewed(time.Now().Add(time.Hour)) },
		func(c *Clients) { c.Renewer.cutSilent(time.Now().Add(time.Hour)) },
		func(c *Clients) { c.Renewer.restored(func(each func(int64, uint64, int64)) { each(1, 1, 60_000) }) },
		func(c *Clients) { c.Waiters.Enter(1, func(protocol.Value) {}) },
		func(c *Clients) { c.Waiters.UnsubscribeIdle() },
		func(c *Clients) { c.Waiters.Forget(1) },
		func(c *Clients) { c.Waiters.Parked(1, 1) },
		func(c *Clients) { c.Waiters.Woken(2, protocol.OK) },
		func(c *Clients) { c.Waiters.stateRestored() },
		func(c *Clients) { c.Waiters.Leave(1) },
		func(c *Clients) { c.Waiters.LeaveAll(protocol.OK) },
		func(c *Clients) { c.Waiters.Len() },
		func(c *Clients) { c.departures.addConn(3) },
		func(c *Clients) { c.departures.hasWork() },
		func(c *Clients) { c.departures.abortWait(c.departures.drained()) },
		func(c *Clients) { c.departures.shrinkBatch(errors.New("refused")) },
		func(c *Clients) { c.departures.request() },
		func(c *Clients) { c.departures.applied() },
		func(c *Clients) { c.departures.wait(ended) },
	}
	for i, one := range calls {
		for _, other := range calls[i:] {
			nothing, applied := func(bool) {}, uint64(0)
			c := New(Cluster{
				Waits: func(uint64) bool { return false }, Applied: func(number uint64) bool { return number <= applied },
				SubscribeWaiting: nothing, SubscribeSessions: nothing,
			})
			c.Renewer.Enter(1, unheard{})
			c.Renewer.Demand(1, true)
			c.Renewer.sessionAttached(1, 1, 60_000)
			c.Renewer.Expect(1, time.Minute, 7, time.Now())
			c.Waiters.Parked(c.Waiters.Enter(1, func(protocol.Value) {}), 7)
			for range 2 {
				c.Waiters.Leave(c.Waiters.Enter(1, func(protocol.Value) {}))
			}
			applied = 7
			var both sync.WaitGroup
			both.Go(func() { one(c) })
			both.Go(func() { other(c) })
			both.Wait()
		}
	}
}
