package nemesis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/network"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
	"github.com/holdfast/holdfast/protocol"
)

// hostileFaults are malicious clients with a bounded load, which stop when the fault ends. Package checker judges the
// other clients' histories and the nodes' usage.
var hostileFaults = []fault{
	hostile("hostile-scripts", "pipelines of scripts that run for as long as they may", known(scripts("EVAL"))),
	hostile("hostile-reads", "the same, of scripts that only read", known(scripts("EVAL_RO"))),
	hostile("hostile-replies", "requests of some kilobytes for replies of gigabytes, through any node", known(replies)),
	hostile("hostile-large", "several large replies at once through one follower", known(large)),
	hostile("hostile-entries", "the largest values there may be, written to one key again and again", known(bulk)),
	patiently(hostile("hostile-unread", "connections to one node that send and do not read", known(unread))),
	hostile("hostile-drip", "connections that read large replies a byte a second", known(drip)),
	hostile("hostile-churn", "connections that come and go by the thousand", strange(churn)),
	hostile("hostile-silent", "connections that say nothing, more than a node has descriptors for", strange(silent)),
	patiently(hostile("hostile-stranger", "connections to one node that do not authenticate, send and do not read",
		strange(unread))),
	hostile("hostile-handshakes", "half-open handshakes on all peer ports, and the leader is killed under them",
		(*Nemesis).handshakes),
}

func hostile(name, summary string, do inject) fault {
	return fault{kind(name, schedule.Clients, 5*second, 8*second, nil, summary), drawn, do}
}

// patiently gives a fault the duration in which a node without limits would exceed its configured memory.
func patiently(f fault) fault {
	f.Min, f.Max = 12*second, 15*second
	return f
}

// The limits of hostile clients' load.
const (
	hostileScripts = 1000    // in one pipeline
	hostileWords   = 1500    // of an MGET
	hostileValue   = 8 << 20 // bytes
	hostileRead    = 32 << 20
	hostileConns   = 100
	silentConns    = 1100 // to each node; nodes have [cluster.MaxFiles] descriptors
	churnPause     = 20 * time.Millisecond
	handshakeConns = 33 // from each address to each node
	patience       = 30 * time.Second
)

// attacker is a running attack.
type attacker struct {
	n    *Nemesis
	rng  *rand.Rand // for one goroutine
	dial func(ctx context.Context, node string) (net.Conn, error)
	wg   *sync.WaitGroup
	done *atomic.Int64 // number of actions begun
}

type attack func(a attacker, ctx context.Context)

// known is an attack by authenticated clients, strange one by unauthenticated clients.
func known(do attack) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		side := s.Rand().IntN(n.Target.Sides())
		return n.attack(s, do, func(ctx context.Context, node string) (net.Conn, error) {
			return n.Target.Dial(ctx, side, node)
		})
	}
}

func strange(do attack) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		return n.attack(s, do, func(ctx context.Context, node string) (net.Conn, error) {
			return n.Net.Dial(ctx, network.ClientsOf(node), node, "client")
		})
	}
}

// attack runs until the effect is mended.
func (n *Nemesis) attack(s step, do attack, dial func(context.Context, string) (net.Conn, error)) (effect, error) {
	ctx, stop := context.WithCancel(context.Background())
	a := attacker{n: n, rng: s.Rand(), dial: dial, wg: &sync.WaitGroup{}, done: &atomic.Int64{}}
	a.wg.Go(func() { do(a, ctx) })
	return effect{
		mend: func() error {
			stop()
			a.wg.Wait()
			return nil
		},
		details: func() string { return fmt.Sprintf("%d times", a.done.Load()) },
	}, nil
}

// open dials a node; the connection closes when ctx ends.
func (a attacker) open(ctx context.Context, node string) (net.Conn, error) {
	d, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	nc, err := a.dial(d, node)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { nc.Close() })
	return nc, nil
}

// each opens count connections to each of some nodes, and calls do with each.
func (a attacker) each(ctx context.Context, nodes []string, count int, do func(ctx context.Context, nc net.Conn)) {
	for _, node := range nodes {
		for range count {
			a.wg.Go(func() {
				nc, err := a.open(ctx, node)
				if err != nil {
					return
				}
				defer nc.Close()
				a.done.Add(1)
				do(ctx, nc)
			})
		}
	}
}

// again calls do in a loop with a connection to a node, and dials anew after an error.
func (a attacker) again(ctx context.Context, node string, do func(nc net.Conn) error) {
	a.wg.Go(func() {
		var nc net.Conn
		for ctx.Err() == nil {
			if nc == nil {
				var err error
				if nc, err = a.open(ctx, node); err != nil {
					workload.Sleep(ctx, 100*time.Millisecond)
					continue
				}
			}
			a.done.Add(1)
			if do(nc) != nil {
				nc.Close()
				nc = nil
			}
		}
		if nc != nil {
			nc.Close()
		}
	})
}

func request(words ...string) string {
	return string(protocol.AppendCommand(nil, words...))
}

// exchange sends commands and reads all replies.
func exchange(nc net.Conn, text string, replies int) error {
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(nc, text); err != nil {
		return err
	}
	c := protocol.NewConn(nc)
	for range replies {
		if _, err := c.Receive(); err != nil {
			return err
		}
	}
	return nil
}

// scripts sends pipelines of endless scripts through all nodes.
func scripts(command string) attack {
	pipeline := strings.Repeat(request(command, "while true do end", "0"), hostileScripts)
	return func(a attacker, ctx context.Context) {
		for _, node := range a.n.Target.Members() {
			a.again(ctx, node, func(nc net.Conn) error { return exchange(nc, pipeline, hostileScripts) })
		}
	}
}

// hostileKey is the prefix of hostile clients' keys.
const hostileKey = "jepsen-hostile"

// prepare writes a large value to some keys; remove deletes them.
func (a attacker) prepare(ctx context.Context, keys ...string) (remove func()) {
	for _, key := range keys {
		a.write(ctx, "SET", key, strings.Repeat("x", hostileValue))
	}
	return func() { a.write(context.WithoutCancel(ctx), append([]string{"DEL"}, keys...)...) }
}

// write sends a command through some node, with retries for a while.
func (a attacker) write(ctx context.Context, words ...string) {
	_ = a.n.until(ctx, stepLimit, words[0], func() bool {
		nodes := a.n.Target.Members()
		nc, err := a.open(ctx, nodes[rand.IntN(len(nodes))])
		if err != nil {
			return false
		}
		c := wire.New(nc, stepLimit)
		defer c.Close()
		return c.Do(words...).Outcome == history.OK
	})
}

// replies requests far more than it reads.
func replies(a attacker, ctx context.Context) {
	remove := a.prepare(ctx, hostileKey)
	keys := make([]string, hostileWords)
	for i := range keys {
		keys[i] = hostileKey
	}
	requests := []string{
		request(append([]string{"MGET"}, keys...)...),
		request("EVAL", "local s=string.rep('x',3e7) local t={} for i=1,900 do t[i]=s end return t", "0"),
		request("EVAL_RO", "local s=redis.call('GET',KEYS[1]) local t={} for i=1,900 do t[i]={s,s} end return t", "1",
			hostileKey),
	}
	var wg sync.WaitGroup
	inner := a
	inner.wg = &wg
	for i, node := range a.n.Target.Members() {
		inner.again(ctx, node, func(nc net.Conn) error { return ask(nc, requests[(i+int(a.done.Load()))%len(requests)]) })
	}
	wg.Wait()
	remove()
}

// ask sends a request and reads only the beginning of the reply.
func ask(nc net.Conn, text string) error {
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(nc, text); err != nil {
		return err
	}
	r := bufio.NewReader(nc)
	kind, err := r.ReadByte()
	if err != nil {
		return err
	}
	if kind == '-' {
		_, err = r.ReadString('\n')
		return err
	}
	_, _ = io.CopyN(io.Discard, r, hostileRead)
	return errors.New("there is more to come")
}

// large reads 48 MiB with each of six clients of one node, in a loop.
func large(a attacker, ctx context.Context) {
	var keys []string
	for i := range 6 {
		keys = append(keys, fmt.Sprintf("%s-%d", hostileKey, i))
	}
	remove := a.prepare(ctx, keys...)
	text := request(append([]string{"MGET"}, keys...)...)
	members := a.n.Target.Members()
	node := members[a.rng.IntN(len(members))]
	var wg sync.WaitGroup
	inner := a
	inner.wg = &wg
	for range keys {
		inner.again(ctx, node, func(nc net.Conn) error { return exchange(nc, text, 1) })
	}
	wg.Wait()
	remove()
}

// bulk writes the largest value in a loop.
func bulk(a attacker, ctx context.Context) {
	text := request("SET", hostileKey, strings.Repeat("x", hostileValue))
	var wg sync.WaitGroup
	inner := a
	inner.wg = &wg
	members := a.n.Target.Members()
	inner.again(ctx, members[a.rng.IntN(len(members))], func(nc net.Conn) error { return exchange(nc, text, 1) })
	wg.Wait()
	a.write(context.WithoutCancel(ctx), "DEL", hostileKey)
}

// unread sends requests to a node as fast as it can, and reads no reply.
func unread(a attacker, ctx context.Context) {
	pings := strings.Repeat("PING\r\n", 20000)
	members := a.n.Target.Members()
	victim := a.rng.IntN(len(members))
	a.each(ctx, members[victim:victim+1], hostileConns, func(ctx context.Context, nc net.Conn) {
		if c, ok := nc.(*net.TCPConn); ok {
			_ = c.SetReadBuffer(4096)
		}
		for {
			if _, err := io.WriteString(nc, pings); err != nil {
				return
			}
		}
	})
}

// drip requests a large reply and reads one byte a second.
func drip(a attacker, ctx context.Context) {
	remove := a.prepare(ctx, hostileKey)
	var wg sync.WaitGroup
	inner := a
	inner.wg = &wg
	members := a.n.Target.Members()
	inner.each(ctx, members, hostileConns/len(members), func(ctx context.Context, nc net.Conn) {
		if c, ok := nc.(*net.TCPConn); ok {
			_ = c.SetReadBuffer(4096)
		}
		if _, err := io.WriteString(nc, strings.Repeat(request("GET", hostileKey), 10)); err != nil {
			return
		}
		for workload.Sleep(ctx, time.Second) {
			if _, err := nc.Read(make([]byte, 1)); err != nil {
				return
			}
		}
	})
	wg.Wait()
	remove()
}

// churn connects, sends at most one command, and disconnects.
func churn(a attacker, ctx context.Context) {
	for _, node := range a.n.Target.Members() {
		for i := range 5 {
			a.again(ctx, node, func(nc net.Conn) error {
				if i%2 == 0 {
					_, _ = io.WriteString(nc, "PING\r\n")
				}
				workload.Sleep(ctx, churnPause/4)
				return errors.New("gone")
			})
		}
	}
}

// silent connects and sends nothing.
func silent(a attacker, ctx context.Context) {
	for _, node := range a.n.Target.Members() {
		a.wg.Go(func() {
			for range silentConns {
				if _, err := a.open(ctx, node); err != nil {
					workload.Sleep(ctx, churnPause)
					continue
				}
				a.done.Add(1)
			}
			<-ctx.Done()
		})
	}
}

// handshakes keeps unfinished handshakes open on every peer port, from every address, and kills the leader.
func (n *Nemesis) handshakes(ctx context.Context, s step) (effect, error) {
	e, err := n.attack(s, func(a attacker, ctx context.Context) {
		for _, from := range n.Target.Members() {
			for _, to := range n.Target.Members() {
				for range handshakeConns {
					b := a
					b.dial = func(ctx context.Context, node string) (net.Conn, error) {
						return n.Net.Dial(ctx, network.ClientsOf(from), node, "peer")
					}
					b.again(ctx, to, func(nc net.Conn) error {
						if _, err := io.WriteString(nc, "HOLDFAST"); err != nil {
							return err
						}
						_, err := nc.Read(make([]byte, 1))
						workload.Sleep(ctx, churnPause)
						return errors.Join(err, errors.New("closed"))
					})
				}
			}
		}
	}, nil)
	if err != nil {
		return e, err
	}
	workload.Sleep(ctx, time.Second)
	leader, known := n.Target.Leader(ctx)
	if !known {
		return e, nil
	}
	fleet, stop := n.Target.Fleet(), e.mend
	e.detail = role(leader, leader) + " killed,"
	e.mend = func() error { return errors.Join(stop(), fleet.Start(leader)) }
	return e, fleet.Kill(leader)
}
