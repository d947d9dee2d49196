package server_test

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/servertest"
)

// client is one user of the cluster. It sends nothing twice. After an error it
// goes to another node, mostly.
type client struct {
	t       *testing.T
	id      int
	rng     *rand.Rand
	cluster *servertest.Cluster
	conn    *servertest.Client
	history *history
	seen    map[string]string // of each register, the last value it read
	made    int               // values so far
}

func newClient(t *testing.T, id int, seed uint64, c *servertest.Cluster, h *history) *client {
	cl := &client{
		t: t, id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))), cluster: c, history: h,
		seen: make(map[string]string),
	}
	cl.move()
	return cl
}

// move goes to any node.
func (c *client) move() {
	if c.conn != nil {
		c.conn.Close()
	}
	nodes := c.cluster.Nodes()
	c.conn = c.cluster.Client(nodes[c.rng.IntN(len(nodes))], 2+c.rng.IntN(2))
}

// value makes one that nobody else makes.
func (c *client) value() string {
	c.made++
	return fmt.Sprintf("%d.%d ", c.id, c.made)
}

// mix is what a client does, each as often as it stands there.
type mix []func(*client)

// run does what is in the mix until left is used up or stop is closed.
func (c *client) run(m mix, pause time.Duration, left *atomic.Int64, stop <-chan struct{}) {
	defer c.conn.Close()
	for left.Add(-1) >= 0 {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(c.rng.Int64N(int64(pause)))):
		}
		m[c.rng.IntN(len(m))](c)
		if c.rng.IntN(20) == 0 {
			c.move()
		}
	}
}

// ask sends commands in one write and returns the replies, or how much is known of the outcome.
func (c *client) ask(commands ...[]string) ([]protocol.Value, told) {
	node := c.conn.Node
	life := node.Life()
	replies, err := c.conn.Pipeline(commands...)
	switch {
	case errors.Is(err, servertest.ErrRefused):
		c.move()
		return nil, refused
	case errors.Is(err, servertest.ErrLost):
		if node.Life() == life {
			c.t.Errorf("%s runs and has closed the connection of client %d, which sent %q", node.Name, c.id, commands)
		}
		c.move()
		return nil, unknown
	case err != nil:
		c.t.Errorf("%s: client %d sent %q: %v", node.Name, c.id, commands, err)
		c.move()
		return nil, unknown
	}
	for i, v := range replies {
		if v.IsError() {
			return nil, c.failed(commands[i], v.Str)
		}
	}
	return replies, answered
}

// failed says what is known after an error.
func (c *client) failed(command []string, text string) told {
	if c.rng.IntN(4) != 0 {
		defer c.move()
	}
	prefix, _, _ := strings.Cut(text, " ")
	switch prefix {
	case "CLUSTERDOWN", "TRYAGAIN":
		return refused
	case "UNCERTAIN":
		return unknown
	}
	c.t.Errorf("%s: client %d sent %q: %s", c.conn.Node.Name, c.id, command, text)
	return unknown
}

// do runs one command and enters it into the history; read makes the output of the reply.
func (c *client) do(in input, read func(protocol.Value) output, words ...string) (output, bool) {
	op := operation{client: c.id, input: in, call: c.history.now()}
	replies, told := c.ask(words)
	op.ret = c.history.now()
	if told == answered {
		op.output = read(replies[0])
	}
	op.told = told
	if told == unknown && strings.HasSuffix(string(in.what), "read") {
		return op.output, false // a read without an answer says nothing
	}
	c.history.add(op)
	return op.output, told == answered
}

func text(v protocol.Value) output   { return output{text: v.Str, done: !v.IsNull()} }
func number(v protocol.Value) output { return output{num: v.Num, done: v.Num != 0} }

// pick is one of a few keys of a kind.
func (c *client) pick(kind string) string { return fmt.Sprintf("%s%d", kind, c.rng.IntN(2)) }

// What clients do.

func getRegister(c *client) { c.read(c.pick("register")) }
func getCounter(c *client)  { c.read(c.pick("counter")) }
func getLog(c *client)      { c.read(c.pick("log")) }
func getLock(c *client)     { c.read(c.pick("lock")) }

// read reads a key of any kind.
func (c *client) read(key string) {
	switch key[:len(key)-1] {
	case "register":
		if o, ok := c.do(input{key: key, what: readRegister}, text, "GET", key); ok {
			c.seen[key] = o.text
		}
	case "counter":
		c.do(input{key: key, what: readCounter}, textNumber, "GET", key)
	case "log":
		c.do(input{key: key, what: readLog}, text, "GET", key)
	case "lock":
		c.do(input{key: key, what: readLock}, text, "GET", key)
	}
}

func textNumber(v protocol.Value) output {
	n, _ := protocol.ParseInt(v.Str)
	return output{num: n}
}

func setRegister(c *client) {
	key, v := c.pick("register"), c.value()
	if c.rng.IntN(50) == 0 {
		v += strings.Repeat("-", c.rng.IntN(400_000)) // more than fits into a socket
	}
	c.do(input{key: key, what: writeReg, text: v}, text, "SET", key, v)
}

func getsetRegister(c *client) {
	key, v := c.pick("register"), c.value()
	c.do(input{key: key, what: swapRegister, text: v}, text, "GETSET", key, v)
}

func compareAndSet(c *client) {
	key, v := c.pick("register"), c.value()
	if was := c.seen[key]; was != "" {
		c.do(input{key: key, what: casRegister, text: v, was: was}, text, "SET", key, v, "IFEQ", was)
	}
}

// setAndGet is a pipeline in which the read must see the write.
func setAndGet(c *client) {
	key, v := c.pick("register"), c.value()
	op := operation{client: c.id, input: input{key: key, what: writeReg, text: v}, call: c.history.now()}
	replies, told := c.ask([]string{"SET", key, v}, []string{"GET", key})
	op.ret, op.told = c.history.now(), told
	if told == answered && replies[1].Str != v {
		c.t.Errorf("client %d: a pipeline sets %s to %q and reads %q", c.id, key, v, replies[1].Str)
	}
	c.history.add(op)
}

// watchAndSet is compareAndSet by WATCH, over as much time as a client may take.
func watchAndSet(c *client) {
	key, v := c.pick("register"), c.value()
	watched := c.history.now()
	if _, told := c.ask([]string{"WATCH", key}); told != answered {
		c.move() // here the next EXEC would be declined: what to watch for is not known
		return
	}
	node := c.conn.Node
	o, ok := c.do(input{key: key, what: readRegister}, text, "GET", key)
	if !ok || c.conn.Node != node || o.text == "" {
		c.move()
		return
	}
	time.Sleep(time.Duration(c.rng.IntN(100)) * time.Millisecond)
	op := operation{client: c.id, input: input{key: key, what: casRegister, text: v, was: o.text}, call: c.history.now()}
	if !c.conn.Connected() {
		c.move() // the watch is forgotten with the connection
		return
	}
	replies, told := c.ask([]string{"MULTI"}, []string{"SET", key, v}, []string{"EXEC"})
	op.ret, op.told = c.history.now(), told
	if told == answered {
		op.done = !replies[2].IsNull()
	}
	if told == answered && !op.done {
		op.call = watched // it may have changed before it was read
	}
	c.history.add(op)
}

func incr(c *client) {
	key := c.pick("counter")
	c.do(input{key: key, what: increment}, number, "INCR", key)
}

// incrBoth increments two counters in one transaction: they are always equal.
func incrBoth(c *client) {
	op := operation{client: c.id, input: input{key: "both", what: increment}, call: c.history.now()}
	replies, told := c.ask([]string{"MULTI"}, []string{"INCR", "both:a"}, []string{"INCR", "both:b"}, []string{"EXEC"})
	op.ret, op.told = c.history.now(), told
	if told == answered {
		both := replies[3].Elems
		if len(both) != 2 || both[0].Num != both[1].Num {
			c.t.Errorf("client %d: a transaction answers %v", c.id, both)
			return
		}
		op.num = both[0].Num
	}
	c.history.add(op)
}

func getBoth(c *client) {
	op := operation{client: c.id, input: input{key: "both", what: readCounter}, call: c.history.now()}
	replies, told := c.ask([]string{"MGET", "both:a", "both:b"})
	op.ret = c.history.now()
	if told != answered {
		return
	}
	both := replies[0].Elems
	if both[0].Str != both[1].Str {
		c.t.Errorf("client %d sees half of a transaction: %v", c.id, both)
	}
	op.output = textNumber(both[0])
	c.history.add(op)
}

func addToLog(c *client) {
	key, v := c.pick("log"), c.value()
	c.do(input{key: key, what: appendLog, text: v}, number, "APPEND", key, v)
}

// The scripts that everybody sends.
const (
	releaseScript = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
	extendScript  = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else " +
		"return 0 end"
)

// useLock takes a lock for a while, perhaps for longer. Then it gives it back, or lets it end.
func useLock(c *client) {
	key, token := c.pick("lock"), c.value()
	ttl := time.Duration(100+c.rng.IntN(1500)) * time.Millisecond
	millis := fmt.Sprint(ttl.Milliseconds())
	o, ok := c.do(input{key: key, what: acquire, text: token, ttl: ttl}, text, "SET", key, token, "NX", "PX", millis)
	if ok && !o.done {
		return
	}
	time.Sleep(time.Duration(c.rng.Int64N(int64(ttl))))
	if c.rng.IntN(3) == 0 {
		c.do(input{key: key, what: extend, text: token, ttl: ttl}, number, "EVAL", extendScript, "1", key, token, millis)
		time.Sleep(time.Duration(c.rng.Int64N(int64(ttl))))
	}
	switch c.rng.IntN(4) {
	case 0:
		c.do(input{key: key, what: release, text: token}, number, "DELEX", key, "IFEQ", token)
	case 1:
		c.do(input{key: key, what: release, text: token}, number, "EVAL", releaseScript, "1", key, token)
	case 2:
		c.releaseBySHA(key, token)
	}
}

// releaseBySHA releases a lock as libraries do: by the hash of the script, and
// with the script only if that is not known.
func (c *client) releaseBySHA(key, token string) {
	op := operation{client: c.id, input: input{key: key, what: release, text: token}, call: c.history.now()}
	sha := fmt.Sprintf("%x", sha1.Sum([]byte(releaseScript)))
	replies, told := c.ask([]string{"SCRIPT", "LOAD", releaseScript}, []string{"EVALSHA", sha, "1", key, token})
	op.ret, op.told = c.history.now(), told
	if told == answered {
		op.output = number(replies[1])
	}
	c.history.add(op)
}

var everything = mix{
	getRegister, getRegister, setRegister, setAndGet, getsetRegister, compareAndSet, compareAndSet, watchAndSet,
	getCounter, incr, incr, incrBoth, getBoth, getLog, addToLog, addToLog, getLock, useLock, useLock,
}
