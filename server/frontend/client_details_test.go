package frontend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/replica"
)

// takenAt applies a log entry in which clients of the incarnation o take stock locks, each client one of the keys.
// Their connections are numbered from 1.
func (cl *cluster) takenAt(t *testing.T, o protocol.Incarnation, keys ...string) {
	var body []byte
	for i, key := range keys {
		body = protocol.AppendRequest(body, protocol.Head{Conn: int64(i + 1)}, "set", [][]byte{
			[]byte(key), []byte("t"), []byte("nx"),
			[]byte("px"), []byte("900000"),
		})
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now := time.Since(cl.started).Milliseconds()
	entry := protocol.NewEntry(nil, protocol.EntryVersion, now, time.Now().UnixMilli()-now, protocol.EntryLimits{})
	entry.Add(o, 0, 1, body)
	require.NoError(t, cl.machine.Apply(entry.Bytes(), &sink{cl: cl}))
}

// detailOf returns what LOCK.INFO says about the client of the lock's only holder: state, address, name and idle time,
// each as the string and the number of its value.
func detailOf(c asker, key string) string {
	v := c.do("LOCK.INFO", key)
	holder := v.Elems[11].Elems[0].Elems
	var b strings.Builder
	for i := len(holder) - 8; i < len(holder); i += 2 {
		fmt.Fprintf(&b, "%s%d ", holder[i+1].Str, holder[i+1].Num)
	}
	return b.String()
}

// TestClientsOfOtherNodes shows that CLIENT UNBLOCK and CLIENT KILL reach the client with the given ID on any node, and
// no other client. If no node has the client and some nodes do not answer, the reply is UNCERTAIN and names those
// nodes, since one of them may have the client. At most maxRemoteCommands such commands run at a time.
func TestClientsOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		var failing sync.Map // IDs of nodes that do not answer
		cl.status = replica.Status{ID: "n1@1", Members: []replica.Member{
			{ID: "n1@1", Name: "n1"}, {ID: "n3@3", Name: "n3"}, {ID: "n2@2", Name: "n2"}, {ID: "n4@4", Name: "n4"},
		}}
		other := start(t, Config{}, newCluster())
		other.ids.begin(protocol.Incarnation{Node: "n2@2", Epoch: 7})
		var asking, most atomic.Int32
		ask := func(_ context.Context, node string, q ClientsQuestion) (ClientsAnswer, error) {
			require.NotEqual(t, "n1@1", node)
			if node == "n2@2" {
				now := asking.Add(1)
				defer asking.Add(-1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
			}
			time.Sleep(time.Millisecond)
			if _, fails := failing.Load(node); fails {
				return ClientsAnswer{}, errors.New("no")
			}
			if node != "n2@2" {
				return ClientsAnswer{}, nil
			}
			return other.Clients(q), nil
		}
		s := start(t, Config{AskClients: ask}, cl)
		a := asker{t, s}
		waiter := other.dial()
		text := answer(waiter, "CLIENT", "ID")
		id := strings.Trim(text, ":\r\n")
		number, err := strconv.ParseInt(id, 10, 64)
		require.NoError(t, err)
		require.Less(t, number, int64(1<<53))
		require.Equal(t, number-1, other.ids.before)
		beside := other.dial()
		require.Equal(t, fmt.Sprintf(":%d\r\n", number+1), answer(beside, "CLIENT", "ID"), "ids rise")

		require.Equal(t, protocol.Integer(0), a.do("CLIENT", "UNBLOCK", id), "it does not wait")
		waiter.send(command("BLPOP", "q", "0"))
		synctest.Wait()
		for _, nobody := range []int64{1, 0, -1, math.MaxInt64, number - 1, number + 2} {
			require.Equal(t, protocol.Integer(0), a.do("CLIENT", "UNBLOCK", fmt.Sprint(nobody)), nobody)
		}
		failing.Store("n3@3", true)
		require.Equal(t, protocol.Integer(1), a.do("CLIENT", "UNBLOCK", id, "ERROR"), "another node need not answer")
		require.Equal(t, "-"+protocol.ErrUnblocked.Error()+"\r\n", reply(waiter))
		failing.Store("n4@4", true)
		require.Equal(t, protocol.Err("x").Kind, a.do("CLIENT", "UNBLOCK", fmt.Sprint(number+2)).Kind)
		require.Equal(t, "UNCERTAIN n3, n4 did not answer, and may have the client",
			a.do("CLIENT", "KILL", "ID", fmt.Sprint(number+2)).Str)
		require.Equal(t, protocol.Integer(0), a.do("CLIENT", "UNBLOCK", id), "n2 has the client")
		failing.Clear()

		require.Equal(t, protocol.Integer(0), a.do("CLIENT", "KILL", "ID", id, "TYPE", "pubsub"))
		require.Equal(t, protocol.Integer(1), a.do("CLIENT", "KILL", "ID", id, "SKIPME", "yes"))
		require.True(t, closed(waiter))
		require.False(t, closed(beside))
		failing.Store("n4@4", true)
		require.Equal(t, protocol.Integer(0), a.do("CLIENT", "KILL", "ID", id), "n2 had the client")

		var all sync.WaitGroup
		for range 3 * maxRemoteCommands {
			all.Go(func() { require.Equal(t, protocol.Integer(0), a.do("CLIENT", "KILL", "ID", id)) })
		}
		all.Wait()
		require.EqualValues(t, maxRemoteCommands, most.Load(), "concurrent commands on other nodes")
	})
}

// TestRightsToClientsOfOtherNodes shows that no other node is asked for a user without the right to the subcommand,
// whether the command is sent alone, in a transaction or from a script.
func TestRightsToClientsOfOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		cl.status = replica.Status{ID: "n1@1", Members: []replica.Member{{ID: "n1@1"}, {ID: "n2@2"}}}
		users := &fileUsers{file: "testdata/users.acl"}
		require.NoError(t, users.Load(""))
		var questions atomic.Int32
		s := start(t, Config{
			Users: users,
			AskClients: func(context.Context, string, ClientsQuestion) (ClientsAnswer, error) {
				questions.Add(1)
				return ClientsAnswer{Reply: protocol.AppendValue(nil, protocol.Integer(1))}, nil
			},
		}, cl)
		c := s.dial()
		for user, subcommand := range map[string]string{"alice": "kill", "bob": "unblock"} {
			require.Equal(t, "+OK\r\n", answer(c, "AUTH", user, "p"))
			for _, words := range [][]string{{"UNBLOCK", "77"}, {"UNBLOCK", "77", "ERROR"}, {"KILL", "ID", "77"}} {
				require.Contains(t, answer(c, append([]string{"CLIENT"}, words...)...), "-NOPERM")
				require.Equal(t, "+OK\r\n", answer(c, "MULTI"))
				require.Contains(t, answer(c, append([]string{"CLIENT"}, words...)...), "-NOPERM")
				require.Contains(t, answer(c, "EXEC"), "-EXECABORT")
			}
			script := "return redis.call('client', '" + subcommand + "', 'id', '77')"
			require.Contains(t, answer(c, "EVAL", script, "0"), "-ERR")
		}
		require.Zero(t, questions.Load())
		require.Equal(t, "+OK\r\n", answer(c, "AUTH", "root", "p"))
		require.Equal(t, ":1\r\n", answer(c, "CLIENT", "UNBLOCK", "77"))
		require.EqualValues(t, 1, questions.Load())
	})
}

// TestIDsOfIncarnations shows that the connection IDs of different nodes, and of different incarnations of a node,
// begin far apart, so that an ID names one client of the whole cluster.
func TestIDsOfIncarnations(t *testing.T) {
	begun := map[int64]bool{}
	for node := range 20 {
		for epoch := range uint64(50) {
			var i ids
			i.begin(protocol.Incarnation{Node: fmt.Sprintf("n%d@25a5", node), Epoch: epoch << 32})
			require.Positive(t, i.next())
			begun[i.before>>20] = true
		}
	}
	require.Len(t, begun, 1000, "a million connections lie between each two")
}

// reply waits until the server is idle, and returns what the client has received since the last call.
func reply(c *testClient) string {
	synctest.Wait()
	got, _ := c.take()
	return got
}

func closed(c *testClient) bool {
	synctest.Wait()
	_, closed := c.take()
	return closed
}

// asker sends each command on a connection of its own, and parses the reply.
type asker struct {
	t *testing.T
	s *testServer
}

func (a asker) do(words ...string) protocol.Value {
	nc, err := a.s.ln.dial()
	require.NoError(a.t, err)
	defer nc.Close()
	go func() { _, _ = nc.Write(command(words...)) }()
	v, err := protocol.ReadValue(bufio.NewReader(nc))
	require.NoError(a.t, err)
	return v
}

// TestClientDetails shows that LOCK.INFO gets the details of a holder's client from the node of its connection. If that
// node fails, returns too few clients, or does not answer within detailsWithin, the client's state is unknown, and the
// node is not asked again for silentFor.
func TestClientDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		var mu sync.Mutex
		questions := map[string]int{}
		var tell func(ctx context.Context, q ClientsQuestion) (ClientsAnswer, error)
		cfg := Config{AskClients: func(ctx context.Context, node string, q ClientsQuestion) (ClientsAnswer, error) {
			mu.Lock()
			questions[node]++
			mu.Unlock()
			require.EqualValues(t, 4, q.Incarnation)
			require.LessOrEqual(t, len(q.Conns), perQuestion)
			return tell(ctx, q)
		}}
		s := start(t, cfg, cl)
		a := asker{t, s}

		holder := s.dial()
		require.Equal(t, "+OK\r\n", answer(holder, "CLIENT", "SETNAME", "nightly"))
		require.Equal(t, "+OK\r\n", answer(holder, "SET", "own", "t", "NX", "PX", "900000"))
		time.Sleep(7 * time.Second)
		require.Equal(t, "connected0 pipe0 nightly0 7010 ", detailOf(a, "own"))
		holder.nc.Close()
		synctest.Wait()
		require.Equal(t, "gone0 0 0 -1 ", detailOf(a, "own"))
		cl.takenAt(t, protocol.Incarnation{Node: here.Node, Epoch: here.Epoch + 1}, "former")
		require.Equal(t, "gone0 0 0 -1 ", detailOf(a, "former"), "another incarnation of this node")

		other := protocol.Incarnation{Node: "n2@25a5", Epoch: 4}
		cl.takenAt(t, other, "theirs", "gone")
		tell = func(_ context.Context, q ClientsQuestion) (ClientsAnswer, error) {
			all := make([]ClientDetail, len(q.Conns))
			for i, conn := range q.Conns {
				if conn != 2 {
					all[i] = ClientDetail{Addr: "10.0.0.7:5", Name: "job", IdleMillis: 2000}
				}
			}
			return ClientsAnswer{Clients: all}, nil
		}
		require.Equal(t, "connected0 10.0.0.7:50 job0 2000 ", detailOf(a, "theirs"))
		require.Equal(t, "gone0 0 0 -1 ", detailOf(a, "gone"))
		require.Equal(t, 2, questions["n2@25a5"])

		tell = func(ctx context.Context, _ ClientsQuestion) (ClientsAnswer, error) {
			<-ctx.Done()
			return ClientsAnswer{}, ctx.Err()
		}
		began := time.Now()
		require.Equal(t, "unknown0 0 0 -1 ", detailOf(a, "theirs"))
		require.Equal(t, detailsWithin, time.Since(began))
		require.Equal(t, "unknown0 0 0 -1 ", detailOf(a, "theirs"))
		require.Equal(t, detailsWithin, time.Since(began), "a silent node gets no second question at once")
		require.Equal(t, 3, questions["n2@25a5"])
		time.Sleep(silentFor)
		tell = func(context.Context, ClientsQuestion) (ClientsAnswer, error) {
			return ClientsAnswer{}, errors.New("no")
		}
		require.Equal(t, "unknown0 0 0 -1 ", detailOf(a, "theirs"))
		require.Equal(t, 4, questions["n2@25a5"])
		time.Sleep(silentFor)
		tell = func(context.Context, ClientsQuestion) (ClientsAnswer, error) { return ClientsAnswer{}, nil } // too few clients
		require.Equal(t, "unknown0 0 0 -1 ", detailOf(a, "theirs"))
	})
}

// TestClientDetailsAreBounded shows that a question to a node has at most perQuestion clients, and a reply the details
// of at most maxDetailedClients. A page of LOCK.LIST has no more holders than that, so each of them has its details.
func TestClientDetailsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newCluster()
		conns := 0
		s := start(t, Config{
			AskClients: func(_ context.Context, _ string, q ClientsQuestion) (ClientsAnswer, error) {
				conns += len(q.Conns)
				require.LessOrEqual(t, len(q.Conns), perQuestion)
				all := make([]ClientDetail, len(q.Conns))
				for i := range all {
					all[i].Addr = "a"
				}
				return ClientsAnswer{Clients: all}, nil
			},
		}, cl)
		keys := make([]string, maxDetailedClients+50)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		cl.takenAt(t, protocol.Incarnation{Node: "n2", Epoch: 4}, keys...)
		a := asker{t, s}
		states := map[string]int{}
		for cursor := ""; cursor != "0"; {
			v := a.do("LOCK.LIST", "COUNT", "1000", "CURSOR", max(cursor, "0"))
			cursor = v.Elems[0].Str
			for _, row := range v.Elems[1].Elems {
				holder := row.Elems[15].Elems[0].Elems
				states[holder[len(holder)-7].Str]++
			}
		}
		require.Equal(t, map[string]int{"connected": len(keys)}, states, "no page exceeds one question")
		require.Equal(t, len(keys), conns)
		names := make([]*protocol.Value, len(keys))
		for i := range names {
			v := protocol.Map(protocol.Bulk("client"), protocol.Bulk(fmt.Sprintf("n2/%d", i+1)), protocol.Bulk("incarnation"),
				protocol.Integer(4))
			names[i] = &v
		}
		require.Len(t, s.detailsOf(t.Context(), names).of, maxDetailedClients)
	})
}

// TestClientsAnswersAreBounded shows that an answer has at most perQuestion clients, that names are cut to
// maxNameBytes, and that the answer to a question about another incarnation of the node has no details.
func TestClientsAnswersAreBounded(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		answer(c, "CLIENT", "SETNAME", strings.Repeat("x", 100))
		q := ClientsQuestion{Incarnation: here.Epoch, Conns: make([]int64, 2*perQuestion)}
		q.Conns[0] = 1
		a := s.Clients(q)
		require.Len(t, a.Clients, perQuestion)
		require.Equal(t, strings.Repeat("x", maxNameBytes), a.Clients[0].Name)
		require.Empty(t, a.Clients[1].Addr)
		q.Incarnation++
		require.Empty(t, s.Clients(q).Clients[0].Addr)
	})
}

// TestPollsAreShown shows that LOCK.INFO and LOCK.LIST list a client that polls for a stock lock as a waiter, with the
// details of the client. The lock with the same key in another database has no such waiter. LOCKS.md must name each
// field of the replies.
func TestPollsAreShown(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		holder, poller := s.dial(), s.dial()
		require.Equal(t, "+OK\r\n", answer(holder, "SET", "k", "holder", "NX", "PX", "900000"))
		answer(poller, "CLIENT", "SETNAME", "next")
		for range 2 {
			require.Equal(t, "$-1\r\n", answer(poller, "SET", "k", "poller", "PX", "900000", "NX"))
			time.Sleep(time.Second)
		}
		answer(holder, "SELECT", "3")
		require.Equal(t, "+OK\r\n", answer(holder, "SET", "k", "other", "NX", "PX", "900000"))
		a := asker{t, s}
		list := a.do("LOCK.LIST").Elems[1].Elems
		require.Len(t, list, 2)
		require.Equal(t, "waiters-count", list[0].Elems[8].Str)
		require.EqualValues(t, 1, list[0].Elems[9].Num)
		require.Zero(t, list[1].Elems[9].Num, "the key of another database")
		info := a.do("LOCK.INFO", "k")
		require.EqualValues(t, 1, info.Elems[5].Num)
		require.Equal(t, list[0].Elems[17].Elems, info.Elems[13].Elems)
		waiter := info.Elems[13].Elems[0].Elems
		require.Equal(t, "poller", waiter[1].Str)
		require.Equal(t, "n1/2", waiter[23].Str)
		require.Equal(t, "polls", waiter[26].Str)
		require.EqualValues(t, 2, waiter[27].Num)
		require.Equal(t, "connected", waiter[29].Str)
		require.Equal(t, "next", waiter[33].Str)

		page := protocoltest.ReadFile(t, "../LOCKS.md")
		for _, fields := range [][]protocol.Value{list[0].Elems, list[0].Elems[15].Elems[0].Elems, waiter} {
			for i := 0; i < len(fields); i += 2 {
				require.Contains(t, page, "`"+fields[i].Str+"`")
			}
		}
	})
}

// TestStrangersMakeRoom shows that once MaxClients connections are open, a new connection replaces the oldest one that
// has not authenticated. Such connections therefore cannot shut out other clients. If all have authenticated, the new
// connection is refused. After RESET a client counts as not authenticated.
func TestStrangersMakeRoom(t *testing.T) {
	inBubble(t, Config{Users: asks("sesame"), Limits: Limits{MaxClients: 3}}, func(t *testing.T, s *testServer) {
		dial := func(commands ...string) *testClient {
			c := s.dial()
			if len(commands) > 0 {
				c.send(command(commands...))
			}
			settle()
			return c
		}
		open := func(clients ...*testClient) (yes []bool) {
			for _, c := range clients {
				_, closed := c.take()
				yes = append(yes, !closed)
			}
			return yes
		}
		a, b, c := dial(), dial("PING"), dial()
		honest := dial("AUTH", "sesame")
		require.Equal(t, []bool{false, true, true, true}, open(a, b, c, honest), "the oldest makes room")
		d, e := dial(), dial()
		require.Equal(t, []bool{false, false, true, true, true}, open(b, c, d, e, honest), "who is known stays")
		d.send(command("AUTH", "sesame"))
		e.deliver(command("HELLO", "3", "AUTH", "default", "sesame"))
		d.take()
		refused := dial()
		got, closed := refused.take()
		require.Equal(t, "-ERR max number of clients reached\r\n", got, "no client can be closed to make room")
		require.True(t, closed)
		d.deliver(command("RESET"))
		f := dial()
		require.Equal(t, []bool{false, true, true, true}, open(d, e, f, honest), "RESET makes a stranger again")
		require.Equal(t, uint64(5), s.metrics.Rejected.Load())
		for _, c := range []*testClient{e, f, honest} {
			c.nc.Close()
		}
		settle()
		require.Zero(t, s.clientCount())
		require.Zero(t, s.strangers.Len())
		require.Zero(t, s.memory.total.Load())
	})
}

// TestRefusalsAreBounded shows that at most Refusals refused connections stay open while their clients do not
// read the reply. Further connections are closed without a reply.
func TestRefusalsAreBounded(t *testing.T) {
	inBubble(t, Config{Limits: Limits{MaxClients: 1}}, func(t *testing.T, s *testServer) {
		s.dial()
		settle()
		var all []net.Conn
		for range 3 * Refusals {
			all = append(all, s.silent())
		}
		synctest.Wait()
		closed := 0
		for _, nc := range all {
			// A write to a pipe without a reader times out, unless the other end is closed.
			nc.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if _, err := nc.Write([]byte("x")); errors.Is(err, io.ErrClosedPipe) {
				closed++
			}
		}
		require.Equal(t, 2*Refusals, closed)
		time.Sleep(time.Minute)
		require.Zero(t, s.refusals.Load())
		require.Equal(t, uint64(3*Refusals), s.metrics.Rejected.Load())
	})
}

// TestRoomIsMadeForAFew shows that at most Refusals connections that were closed to make room have not ended yet, since
// each still has its file descriptor. Until one of them ends, new connections are refused.
func TestRoomIsMadeForAFew(t *testing.T) {
	s := New(Config{Users: asks("sesame"), Limits: Limits{MaxClients: 1}}, newCluster())
	admit := func() (*conn, error) {
		_, theirs := net.Pipe()
		c := newConn(s, theirs, protocol.Redis())
		return c, s.register(c)
	}
	first, err := admit()
	require.NoError(t, err)
	last := first
	for range Refusals {
		next, err := admit()
		require.NoError(t, err)
		require.True(t, last.admission.dismissed, "each makes room once")
		last = next
	}
	_, err = admit()
	require.ErrorIs(t, err, errFull)
	s.unregister(first)
	_, err = admit()
	require.NoError(t, err)
}
