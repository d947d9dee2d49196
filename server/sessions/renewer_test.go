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

// harness is a renewer with a cluster that records the requests and their times.
type harness struct {
	*Renewer
	clients *Clients
	started time.Time
	stop    func() // ends Run, and waits for its end

	mu          sync.Mutex
	noLeader    bool
	delay       time.Duration
	maxClosed   int // the most closed connections in one request; 0: any
	applied     uint64
	lastRequest time.Time // the end of the last request, applied or not
	// onApplied is called once, at the renewer's next call of Applied.
	onApplied func()
	lines     []string
	// subscribed has the arguments of SubscribeSessions.
	subscribed []bool
}

func newHarness(t *testing.T) *harness {
	s := &harness{started: time.Now()}
	s.clients = New(Cluster{
		Propose: s.propose, Renew: func() error { return s.record(0, "renew") },
		Applied: func(number uint64) bool {
			var f func()
			s.set(func() { f, s.onApplied = s.onApplied, nil })
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

// withHarness runs a test in virtual time.
func withHarness(t *testing.T, test func(t *testing.T, s *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHarness(t)) })
}

// propose handles the requests that end the sessions of closed connections.
func (s *harness) propose(body []byte, _ int) error {
	var r protocol.Request
	if _, err := protocol.NextRequest(string(body), &r); err != nil {
		return err
	}
	return s.record(len(r.Args)-1, "closed ["+strings.Join(r.Args[1:], " ")+"]")
}

// record records a request about a number of closed connections, or fails it.
func (s *harness) record(closed int, what string) error {
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRequest = time.Now()
	if s.maxClosed > 0 && closed > s.maxClosed {
		return errors.New("too much work")
	}
	if s.noLeader {
		return protocol.ErrNoLeader
	}
	s.lines = append(s.lines, fmt.Sprintf("%v: %s", time.Since(s.started), what))
	return nil
}

// takeLines returns the lines that were recorded since the last call.
func (s *harness) takeLines() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *harness) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// attachSession applies an entry that attaches a session to a connection, and detachSession one that detaches it.
func (s *harness) attachSession(conn int64, id uint64, lease time.Duration) {
	s.Events([]event.Event{{Kind: event.SessionKept, Lock: &event.LockNews{
		Conn: conn, Session: id,
		LeaseMillis: lease.Milliseconds(),
	}}})
}

func (s *harness) detachSession(conn int64, id uint64) {
	s.Events([]event.Event{{Kind: event.SessionLeft, Lock: &event.LockNews{Conn: conn, Session: id}}})
}

// conn is a connection that records the calls of its methods.
type conn struct {
	s      *harness
	id     int64
	cut    bool
	leases []time.Duration
	heard  time.Time
}

func (c *conn) Heard() (at time.Time) {
	c.s.set(func() { at = c.heard })
	return at
}

// send has the client send something.
func (c *conn) send() { c.s.set(func() { c.heard = time.Now() }) }

func (c *conn) SetLease(shortest time.Duration) {
	c.s.set(func() { c.leases = append(c.leases, shortest) })
}

func (s *harness) open(id int64) *conn {
	c := &conn{s: s, id: id, heard: time.Now()}
	s.Enter(id, c)
	return c
}

func (c *conn) record(what string) {
	c.s.set(func() {
		c.s.lines = append(c.s.lines, fmt.Sprintf("%v: connection %d: %s", time.Since(c.s.started), c.id, what))
	})
}

func (c *conn) Post(m *push.Message) {
	c.record(string(m.AppendFrom(nil, protocol.RESP3, 0, 100)))
}

func (c *conn) Cut(why string) {
	c.record("cut, " + why)
	c.s.set(func() { c.cut = true })
}

func (c *conn) isCut() (yes bool) {
	c.s.set(func() { yes = c.cut })
	return yes
}

// TestRenewals: one request renews all sessions, three times in the shortest lease. Without a session none is made.
func TestRenewals(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		time.Sleep(time.Hour)
		require.Empty(t, s.takeLines())
		s.started = time.Now()
		s.open(1)
		s.open(2)
		s.attachSession(1, 11, 30*time.Second)
		s.attachSession(2, 12, 60*time.Second)
		time.Sleep(21 * time.Second)
		require.Equal(t, []string{"0s: renew", "10s: renew", "20s: renew"}, s.takeLines())
		s.attachSession(2, 13, 3*time.Second)
		s.attachSession(2, 14, 3*time.Second)
		time.Sleep(time.Second)
		require.Equal(t, []string{"21s: renew", "22s: renew"}, s.takeLines())
		require.Equal(t, 4, s.Len())
		require.Zero(t, s.silent.Len(), "no client has promised to send")
		s.detachSession(2, 14)
		s.detachSession(2, 13)
		s.detachSession(1, 11)
		s.detachSession(1, 11)
		s.detachSession(9, 9)
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"42s: renew"}, s.takeLines())
		s.detachSession(2, 12)
		time.Sleep(time.Hour)
		require.Empty(t, s.takeLines())
		require.Zero(t, s.Len())
	})
}

// TestCloses: the sessions of a closed connection end, even if there is no leader for a while. A node that stops leaves
// its sessions attached.
func TestCloses(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		s.set(func() { s.noLeader = true })
		for id := range int64(4) {
			s.open(id)
			s.attachSession(id, uint64(id), time.Minute)
		}
		s.open(4)
		s.Leave(4, true) // it has no sessions
		s.Leave(1, true)
		s.Leave(1, true)
		s.Leave(2, true)
		time.Sleep(10*time.Second + renewRetryInterval/2)
		s.set(func() { s.noLeader = false })
		time.Sleep(time.Second - renewRetryInterval/2)
		require.ElementsMatch(t, []string{"10.1s: closed [1 2]", "10.1s: renew"}, s.takeLines())
		require.Equal(t, 1, s.Sessions(0))
		require.Zero(t, s.Sessions(1))

		// A command of a connection is applied after the connection has closed.
		s.attachSession(1, 5, time.Minute)
		require.Equal(t, []string{"11s: closed [1]"}, s.takeLines())

		s.Leave(0, false)
		s.attachSession(3, 8, time.Minute)
		require.Equal(t, 2, s.Sessions(3))
		s.Leave(3, false)
		s.open(5)
		s.Leave(5, true) // it closes while the node stops
		s.attachSession(3, 9, time.Minute)
		time.Sleep(time.Hour)
		require.Empty(t, s.takeLines())
	})
}

// TestCut: a node that is cut off closes connections before their sessions may have expired, the shortest lease first.
// The sessions end only later, so that the clients can attach them through another node.
func TestCut(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		short, long := s.open(1), s.open(2)
		s.attachSession(1, 1, 8*time.Second)
		s.attachSession(1, 6, 8*time.Second)
		s.attachSession(1, 2, 16*time.Second)
		s.attachSession(2, 3, 24*time.Second)
		time.Sleep(6 * time.Second)
		require.Len(t, s.takeLines(), 3)
		s.set(func() { s.noLeader = true })
		s.open(3)
		time.Sleep(4 * time.Second)
		s.attachSession(3, 4, 8*time.Second) // this node applies the entry late
		time.Sleep(2 * time.Second)
		require.Len(t, s.takeLines(), 0)
		time.Sleep(time.Second) // 13 s; the last renewal was at 5.33 s
		require.Equal(t, []string{"12.333333332s: connection 1: cut, its session could not be renewed in time"},
			s.takeLines())
		require.False(t, long.isCut())
		require.True(t, short.isCut())
		require.EqualValues(t, 1, s.Cuts())
		s.attachSession(1, 5, 20*time.Second) // after the connection was cut
		s.Expect(1, 30*time.Second, 7, time.Now())
		require.Zero(t, s.Sessions(1))
		s.Leave(1, true)
		time.Sleep(4*time.Second + 500*time.Millisecond)
		require.Equal(t, []string{"17s: connection 3: cut, its session could not be renewed in time"}, s.takeLines())
		s.Leave(3, false)
		s.set(func() { s.noLeader = false })
		time.Sleep(14 * time.Second)
		require.Equal(t, []string{"17.599999998s: renew", "25.599999998s: renew"}, s.takeLines())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"33s: closed [1]"}, s.takeLines())
		require.Nil(t, s.endLater, "a crowd's memory is given back")
		require.False(t, long.isCut())
	})
}

// TestSlowRenewal: the lease counts from the start of a renewal, however late its reply is.
func TestSlowRenewal(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		s.set(func() { s.delay = 3 * time.Second })
		c := s.open(1)
		s.attachSession(1, 1, 8*time.Second)
		time.Sleep(11 * time.Second) // the last acknowledged renewal took from 6 s to 9 s
		require.False(t, c.isCut())
		s.set(func() { s.noLeader = true })
		time.Sleep(1990 * time.Millisecond)
		require.False(t, c.isCut())
		time.Sleep(20 * time.Millisecond)
		require.True(t, c.isCut())
	})
}

// TestExpected: a session whose command is not in this node's log yet is renewed, too, until the log has its batch.
func TestExpected(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		s.open(1)
		s.Expect(1, 30*time.Second, 7, time.Now())
		s.Expect(1, 30*time.Second, 7, time.Now())
		require.Equal(t, 1, s.Sessions(1))
		s.Expect(1, 30*time.Second, 6, time.Now())
		require.Equal(t, 2, s.Sessions(1))
		require.Equal(t, 2, s.Len())
		s.Expect(2, time.Second, 8, time.Now()) // there is no connection 2
		time.Sleep(11 * time.Second)
		require.Equal(t, []string{"0s: renew", "10s: renew"}, s.takeLines())
		s.attachSession(1, 1, 60*time.Second)
		s.set(func() { s.applied = 7 })
		time.Sleep(39 * time.Second)
		require.Equal(t, []string{"30s: renew", "50s: renew"}, s.takeLines())
		require.Equal(t, 1, s.Len())
		require.Equal(t, 1, s.Sessions(1))
		require.Empty(t, s.expected)
		s.Expect(1, time.Second, 6, time.Now()) // the log has the batch already
		require.Equal(t, 1, s.Len())

		// The lease of an attached session is unknown.
		s.Expect(1, 0, 9, time.Now())
		time.Sleep(time.Second)
		require.Len(t, s.takeLines(), 3)
		s.Leave(1, true)
		require.Equal(t, []string{"51s: closed [1]"}, s.takeLines())
		require.Zero(t, s.Len())
		require.Empty(t, s.expected)

		// A connection closes while the renewer checks whether the log has its batch.
		s.open(3)
		s.open(4)
		s.Expect(3, 30*time.Second, 10, time.Now())
		s.Expect(4, 30*time.Second, 10, time.Now())
		require.Equal(t, 2, s.Len())
		s.set(func() { s.applied, s.onApplied = 10, func() { s.Leave(3, true) } })
		time.Sleep(time.Minute)
		require.Zero(t, s.Len())
	})
}

// TestEnds: Run ends between two attempts, and leaves no request in flight.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, slow := range []time.Duration{0, time.Second} {
			s := newHarness(t)
			s.set(func() { s.noLeader, s.delay = true, slow })
			s.open(1)
			s.open(2)
			s.attachSession(1, 1, time.Minute)
			s.attachSession(2, 2, time.Minute)
			time.Sleep(time.Second / 2)
			s.Leave(2, true)
			time.Sleep(time.Second + 3*renewRetryInterval/2) // the slow request for the closed connection ends last
			stopped := time.Now()
			s.stop()
			require.LessOrEqual(t, time.Since(stopped), slow)
			ended := time.Now()
			time.Sleep(time.Hour)
			s.set(func() { require.False(t, s.lastRequest.After(ended), "a try after the end") })
		}
	})
}

// TestSlowAttach: a session's lease counts from the start of its command, even if this node's log has the command late,
// or a snapshot has the session again. So the connection is closed before the lease has expired.
func TestSlowAttach(t *testing.T) {
	cut := func(at string) []string {
		return []string{at + ": connection 1: cut, its session could not be renewed in time"}
	}
	// unrenewed runs a test of a session of connection 1 that is never renewed. The connection must be cut at the time
	// at.
	unrenewed := func(name, at string, attach func(t *testing.T, s *harness)) {
		t.Run(name, func(t *testing.T) {
			withHarness(t, func(t *testing.T, s *harness) {
				s.open(1)
				s.set(func() { s.noLeader = true })
				attach(t, s)
				time.Sleep(20 * time.Second)
				require.Equal(t, cut(at), s.takeLines())
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
		unrenewed(c.name, c.cut, func(_ *testing.T, s *harness) {
			s.Ask(1, time.Now())
			s.Ask(2, time.Now()) // there is no connection 2
			time.Sleep(c.slow)
			s.attachSession(1, 1, 8*time.Second)
		})
	}
	unrenewed("behind other commands", "7s", func(_ *testing.T, s *harness) {
		for number := range uint64(2) {
			s.Expect(1, 20*time.Second, 7+number, time.Now())
			time.Sleep(2 * time.Second)
		}
		s.Ask(1, time.Now())
		s.attachSession(1, 1, 8*time.Second)
	})
	unrenewed("told of again, with another lease", "14s", func(t *testing.T, s *harness) {
		s.attachSession(1, 1, 8*time.Second)
		time.Sleep(4 * time.Second)
		s.attachSession(1, 1, 16*time.Second)
		require.Equal(t, 1, s.Len())
	})
	unrenewed("a snapshot", "7s", func(_ *testing.T, s *harness) {
		s.attachSession(1, 1, 8*time.Second)
		time.Sleep(4 * time.Second)
		s.Ask(1, time.Now()) // for another session
		s.restored(func(each func(int64, uint64, int64)) {
			each(1, 2, 8000)
			each(1, 1, 8000)
		})
	})
	t.Run("later than the lease, and renewed meanwhile", func(t *testing.T) {
		withHarness(t, func(t *testing.T, s *harness) {
			renewed := s.open(1)
			s.open(2)
			s.attachSession(2, 2, 6*time.Second)
			s.Ask(1, time.Now())
			time.Sleep(9 * time.Second)
			s.attachSession(1, 1, 8*time.Second)
			time.Sleep(9 * time.Second)
			require.False(t, renewed.isCut())
		})
	})
	t.Run("later than the lease, and the log goes on", func(t *testing.T) {
		withHarness(t, func(t *testing.T, s *harness) {
			synctest.Wait()
			s.Renewer = New(*s.cluster).Renewer // it does not run: a renewal could come first
			s.open(1)
			s.Ask(1, time.Now())
			time.Sleep(9 * time.Second)
			s.attachSession(1, 1, 8*time.Second)
			require.Equal(t, cut("9s"), s.takeLines())
		})
	})
}

// TestExpectedWhenCut: a session whose command is not in this node's log may exist. After a cut it keeps its lease.
func TestExpectedWhenCut(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		c := s.open(1)
		s.set(func() { s.noLeader = true })
		s.Expect(1, 12*time.Second, 7, time.Now())
		time.Sleep(11 * time.Second)
		require.True(t, c.isCut())
		s.takeLines()
		s.Leave(1, true)
		s.set(func() { s.noLeader = false })
		time.Sleep(11 * time.Second)
		require.Empty(t, s.takeLines())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"23s: closed [1]"}, s.takeLines())
	})
}

// TestVanished: a connection is told the shortest lease of its sessions. If its client was silent for that long, the
// sessions keep the rest of their longest lease.
func TestVanished(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		twoLeases, short, none, expecting := s.open(1), s.open(2), s.open(3), s.open(5)
		s.Expect(1, 30*time.Second, 7, time.Now())
		s.Expect(5, 40*time.Second, 9, time.Now())
		require.Equal(t, []time.Duration{40 * time.Second}, expecting.leases)
		s.attachSession(1, 1, 30*time.Second)
		s.Expect(1, 0, 8, time.Now()) // the lease is unknown
		s.set(func() { s.applied = 8 })
		s.attachSession(1, 2, 8*time.Second)
		s.attachSession(1, 3, 20*time.Second)
		s.attachSession(2, 4, 8*time.Second)
		require.Equal(t, []time.Duration{30 * time.Second, 8 * time.Second}, twoLeases.leases)
		require.Equal(t, []time.Duration{8 * time.Second}, short.leases)
		require.Empty(t, none.leases)
		time.Sleep(time.Second)
		s.takeLines()
		for id := range int64(6) {
			s.Vanished(id)
			require.Zero(t, s.Sessions(id))
			s.Leave(id, true)
			synctest.Wait() // one request for each
		}
		require.Zero(t, s.Len())
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"1s: closed [2]", "1s: closed [5]", "23s: closed [1]"}, s.takeLines())
	})
}

// silenceLines returns the recorded cuts of silent connections, and the requests that end sessions.
func (s *harness) silenceLines() (cuts []string) {
	for _, line := range s.takeLines() {
		if strings.HasSuffix(line, whySilent) || strings.Contains(line, "closed") {
			cuts = append(cuts, strings.TrimSuffix(strings.TrimSuffix(line, whySilent), " renew"))
		}
	}
	return cuts
}

// TestSilence: if a client must send something, its connection is closed when it was silent for the shortest lease of
// its sessions. A session with a longer lease keeps the rest of it. Clients that send in time, and those that need not,
// stay.
func TestSilence(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		active, silent, notDemanded, twoSessions := s.open(1), s.open(2), s.open(3), s.open(4)
		for id := range int64(5) {
			s.Demand(id, true) // there is no connection 0, and there are no sessions yet
		}
		s.Demand(3, false)
		time.Sleep(time.Hour)
		require.Empty(t, s.silenceLines())
		s.started = time.Now()
		for _, c := range []*conn{active, silent, notDemanded, twoSessions} {
			c.send()
			s.attachSession(c.id, uint64(c.id), 8*time.Second)
		}
		s.attachSession(4, 5, 20*time.Second)
		for i := range 22 {
			time.Sleep(time.Second)
			active.send()
			for _, c := range []*conn{silent, twoSessions} {
				if i == 8 {
					require.True(t, c.isCut())
					s.Leave(c.id, true)
				}
			}
		}
		require.Equal(t, []string{
			"8s: connection 2: cut, ", "8s: connection 4: cut, ", "9s: closed [2]", "21s: closed [4]",
		}, s.silenceLines())
		s.Demand(4, true) // it has closed
		time.Sleep(7900 * time.Millisecond)
		require.False(t, active.isCut())
		s.detachSession(1, 1)
		time.Sleep(time.Hour)
		require.False(t, active.isCut(), "no session, nothing is demanded")
		active.send()
		s.attachSession(1, 6, 30*time.Second)
		s.attachSession(1, 7, 4*time.Second)
		time.Sleep(3900 * time.Millisecond)
		require.False(t, active.isCut())
		s.Demand(1, false)
		time.Sleep(time.Hour)
		require.False(t, active.isCut(), "no longer demanded")
		active.send()
		time.Sleep(time.Second)
		s.Demand(1, true)
		time.Sleep(3100 * time.Millisecond)
		require.True(t, active.isCut())
		require.False(t, notDemanded.isCut())
		require.Zero(t, s.Cuts(), "renewals were in time")
		s.Leave(1, true)
		time.Sleep(25800 * time.Millisecond)
		cuts := s.silenceLines()
		require.Empty(t, slices.DeleteFunc(cuts, func(line string) bool { return !strings.Contains(line, "closed") }))
		time.Sleep(200 * time.Millisecond)
		require.Len(t, s.silenceLines(), 1, "the longer session had its lease")
		require.Zero(t, s.silent.Len())
	})
}

// TestSilenceCountsFromTheLastCommand: silence counts from the client's last message, whenever the renewer checks.
func TestSilenceCountsFromTheLastCommand(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		c := s.open(1)
		c.send()
		s.attachSession(1, 1, 8*time.Second)
		s.Demand(1, true)
		time.Sleep(3 * time.Second)
		c.send()
		time.Sleep(7900 * time.Millisecond)
		require.False(t, c.isCut(), "the renewer checked 5 s after the last command")
		time.Sleep(200 * time.Millisecond)
		require.True(t, c.isCut())
	})
}

// TestSilenceOfTheShortest: silent clients are cut in the order in which their shortest leases end, in whatever order
// they connected and opened their sessions.
func TestSilenceOfTheShortest(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		for id, leases := range map[int64][]time.Duration{1: {30}, 2: {20, 8}, 3: {20}, 4: {12}} {
			s.open(id)
			s.Demand(id, true)
			for i, lease := range leases {
				s.attachSession(id, uint64(i+1), lease*time.Second)
			}
		}
		s.open(5)
		s.attachSession(5, 1, 10*time.Second)
		time.Sleep(9900 * time.Millisecond)
		s.Demand(5, true)
		time.Sleep(25 * time.Second)
		require.Equal(t, []string{
			"8s: connection 2: cut, ", "10s: connection 5: cut, ", "12s: connection 4: cut, ", "20s: connection 3: cut, ",
			"30s: connection 1: cut, ",
		}, s.silenceLines())
		s.open(6)
		s.Demand(6, true)
		s.attachSession(6, 1, time.Hour)
		synctest.Wait()
		require.Equal(t, 1, s.silent.Len())
		s.Leave(6, true)
		require.Zero(t, s.silent.Len(), "who has left is not checked")
	})
}

// TestSilenceOfANodeThatSlept: after a node was suspended, its clients' messages may be unread. The clients get more
// time.
func TestSilenceOfANodeThatSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &harness{started: time.Now()}
		s.Renewer = New(Cluster{Applied: func(uint64) bool { return true }, SubscribeSessions: func(bool) {}}).Renewer
		c := s.open(1)
		s.attachSession(1, 1, 8*time.Second)
		s.Demand(1, true)
		require.Equal(t, time.Second, s.cutSilent(s.started.Add(7*time.Second)))
		require.Equal(t, time.Second, s.cutSilent(s.started.Add(9100*time.Millisecond)), "late by more than an eighth")
		require.False(t, c.isCut())
		s.cutSilent(s.started.Add(10100 * time.Millisecond))
		require.True(t, c.isCut())
		require.Equal(t, time.Duration(noDeadline), s.cutSilent(s.started.Add(time.Hour)))
	})
}

// TestRestored: after a snapshot, the renewer has the sessions of the snapshot.
func TestRestored(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		s.open(1)
		s.open(2)
		s.attachSession(1, 1, 30*time.Second)
		s.attachSession(1, 2, 3*time.Second)
		require.Equal(t, []string{"0s: renew"}, s.takeLines())
		s.clients.Restored(func(each func(int64, uint64, int64)) {
			each(1, 1, 30_000)
			each(2, 3, 60_000)
			each(7, 4, 1000)
		})
		require.Equal(t, 2, s.Len())
		require.Equal(t, 1, s.Sessions(1))
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"0s: closed [7]", "10s: renew", "20s: renew"}, s.takeLines())
	})
}

// TestTold: the notice of a lost hold goes to the connection that it is for.
func TestTold(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		s.open(1)
		for conn := range int64(2) {
			s.Events([]event.Event{{Kind: event.LockLost, Key: "k", Lock: &event.LockNews{
				Owner: "me", Fence: 7,
				Reason: "broken", Conn: conn,
			}}})
		}
		require.Equal(t,
			[]string{"0s: connection 1: >6\r\n$4\r\nlock\r\n$4\r\nlost\r\n$1\r\nk\r\n$2\r\nme\r\n:7\r\n$6\r\nbroken\r\n"},
			s.takeLines())
		for text, by := range map[string]string{"": "admin", "why": "", "for repair": "admin"} {
			s.Events([]event.Event{{Kind: event.LockLost, Key: "k", Lock: &event.LockNews{
				Owner: "me", Reason: "broken", Conn: 1, Text: text, By: by,
			}}})
			lines := s.takeLines()
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], fmt.Sprintf("broken\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(text), text, len(by), by))
		}
	})
}

// TestSubscribes: the node subscribes while it has connections, with or without sessions.
func TestSubscribes(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
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

// TestRefusedDepartures: sessions are renewed even if the requests about closed connections are refused.
func TestRefusedDepartures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renewals := 0
		s := &harness{started: time.Now(), clients: New(Cluster{
			Propose:           func([]byte, int) error { return errors.New("refused") },
			Renew:             func() error { renewals++; return nil },
			SubscribeSessions: func(bool) {},
		})}
		s.Renewer = s.clients.Renewer
		go s.clients.Run(t.Context())
		closed, open := s.open(1), s.open(2)
		s.attachSession(1, 1, 3*time.Second)
		s.attachSession(2, 2, 3*time.Second)
		s.Leave(closed.id, true)
		time.Sleep(time.Minute + renewRetryInterval)
		synctest.Wait()
		require.Equal(t, 61, renewals, "three times in the lease")
		require.False(t, open.isCut())
	})
}

// TestManyClose: connections that close while a request is in flight get into the next request.
func TestManyClose(t *testing.T) {
	withHarness(t, func(t *testing.T, s *harness) {
		const many = 2*maxLeaving + 1
		for id := range int64(many) {
			s.open(id)
			s.attachSession(id, 1, time.Hour)
		}
		require.NotEmpty(t, s.takeLines())
		s.set(func() { s.noLeader = true })
		for id := range int64(many) {
			s.Leave(id, true)
		}
		time.Sleep(time.Second + renewRetryInterval/2)
		s.set(func() { s.noLeader = false })
		time.Sleep(time.Second)
		require.Equal(t, 3, len(s.takeLines()))
		require.Empty(t, s.departures.conns)
		s.set(func() { s.maxClosed, s.noLeader = 300, true }) // until all have closed: otherwise the requests are small
		for id := range int64(many) {
			s.open(id)
			s.attachSession(id, 1, time.Hour)
			s.Leave(id, true)
		}
		s.set(func() { s.noLeader = false })
		time.Sleep(time.Minute)
		require.NotEmpty(t, s.takeLines())
		require.Empty(t, s.departures.conns)

		// A refusal for the size of a request does not reduce the size of later ones.
		s.set(func() { s.maxClosed, s.noLeader = 0, true })
		for id := range int64(many) {
			s.attachSession(id, 1, time.Hour) // the connection has closed
		}
		time.Sleep(time.Second + renewRetryInterval/2)
		s.set(func() { s.noLeader = false })
		time.Sleep(time.Second)
		require.Len(t, s.takeLines(), 3)
	})
}

// quietConn is a connection that records nothing, and so takes no lock.
type quietConn struct{}

func (quietConn) SetLease(time.Duration) {}
func (quietConn) Heard() time.Time       { return time.Now() }
func (quietConn) Post(*push.Message)     {}
func (quietConn) Cut(string)             {}

// TestEachTwo: any two methods may be called at the same time. The race detector finds missing locks, since no other
// lock orders the two calls.
func TestEachTwo(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	calls := []func(c *Clients){
		func(c *Clients) { c.Renewer.Enter(4, quietConn{}) },
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
			c.Renewer.Enter(1, quietConn{})
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
