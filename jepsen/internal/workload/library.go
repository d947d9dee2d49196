package workload

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// libraries are the shell commands that build and run each client library's driver (server/clients/CONTRACT.md) from
// the root of the tree; $OUT is the folder of build results.
var libraries = map[string]struct{ build, run string }{
	"go":      {"go -C server/clients/go/holdfast build -o $OUT/driver-go ./driver", "$OUT/driver-go"},
	"python":  {run: "python3 server/clients/python/holdfast-client/driver.py"},
	"asyncio": {run: "python3 server/clients/python/holdfast-client/driver.py --asyncio"},
	"java": {
		"javac --release 17 -d $OUT/driver-java $(find server/clients/java/holdfast-client/src/main -name '*.java') " +
			"server/clients/java/holdfast-client/Driver.java",
		"java -Xmx64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp $OUT/driver-java Driver",
	},
	"typescript": {
		"cp -r server/clients/node/holdfast-client $OUT/driver-typescript && cd $OUT/driver-typescript && " +
			"npm install --silent --no-package-lock --no-audit --no-fund && npm run --silent build",
		"node $OUT/driver-typescript/driver.mjs",
	},
}

// Drivers builds the drivers of the named libraries into dir, and returns the commands that run them.
func Drivers(ctx context.Context, list, dir string) ([]string, error) {
	out, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var commands []string
	for language := range strings.SplitSeq(list, ",") {
		l, known := libraries[language]
		if !known {
			return nil, fmt.Errorf("libraries: none for %q: there are %s", language,
				strings.Join(slices.Sorted(maps.Keys(libraries)), ", "))
		}
		build := exec.CommandContext(ctx, "sh", "-c", l.build)
		build.Env = append(os.Environ(), "OUT="+out)
		if said, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the driver of %s: %w: %s", language, err, said)
		}
		commands = append(commands, strings.ReplaceAll("exec "+l.run, "$OUT", out))
	}
	return commands, nil
}

// libraryTTL is the TTL of the libraries' clients. They report a loss when a third of it remains.
const libraryTTL = 6 * time.Second

// lossLimit bounds the time until a holder learns that its lock was broken, under any fault: after the TTL the client
// detects the loss without the cluster.
const lossLimit = 2*libraryTTL + noticeLimit

// library has clients that use the client libraries for native locks, each in its own process. They wait, cancel, hold
// locks for short and long times, and are broken by operators. The checkers judge what the clients report.
type library struct {
	o      *Options
	keys   *Rotation
	owners atomic.Int64
}

func newLibrary(o *Options) Workload {
	return &library{o: o, keys: NewRotation(o.name, max(1, o.Concurrency/4), 200, 50)}
}

func (w *library) Checkers() []checker.Func {
	return []checker.Func{checker.Held, checker.Fences, checker.Leftovers}
}

func (w *library) Step(ctx context.Context, c *Client) {
	if c.driver == nil || c.driver.ended() {
		d, err := startDriver(c)
		if err != nil {
			Sleep(ctx, time.Second)
			return
		}
		c.driver = d
	}
	d := c.driver
	_, key := w.keys.Pick(c.rng)
	h := &libraryHold{d: d, c: c, key: key, owner: w.owners.Add(1)}
	if !h.acquire(ctx) {
		return
	}
	long := c.between(0, 300*time.Millisecond)
	if c.chance(0.06) {
		long = c.between(0, 2*libraryTTL)
	}
	if _, lost := d.await(ctx, long, h.event("lost")); lost {
		h.record(h.end(d.c.o.Recorder.Now()))
		return
	}
	if c.chance(0.1) {
		h.breakIt(ctx)
		return
	}
	h.unlock(ctx)
}

// libraryHold is one acquisition by a library.
type libraryHold struct {
	d     *driver
	c     *Client
	key   string
	owner int64
	fence int64
	from  int64 // by the recorder's clock
}

// event returns the prefix of one of the hold's events.
func (h *libraryHold) event(kind string) string { return fmt.Sprintf("%s %d ", kind, h.owner) }

// acquire waits a random time for the lock. After a failed wait the lock may still be granted; the library then
// releases it.
func (h *libraryHold) acquire(ctx context.Context) bool {
	p := h.c.invoke(0, history.Op{F: "acquire", Key: h.key, Input: []int64{h.owner}})
	kind, wait := "lock", h.c.between(0, 2*time.Second)
	if h.c.chance(0.2) {
		kind, wait = "try", time.Minute
	}
	h.d.say("%s %d %s", kind, h.owner, h.key)
	granted, refused := h.event("granted"), h.event("refused")
	e, told := h.d.await(ctx, wait, granted, refused)
	if !told {
		h.d.say("cancel %d", h.owner)
		if e, told = h.d.await(ctx, driverLimit, granted, refused); !told {
			h.d.kill()
		}
	}
	text, ok := strings.CutPrefix(e, granted)
	if h.fence, _ = strconv.ParseInt(text, 10, 64); !ok {
		p.Complete(history.Info, e)
		return false
	}
	h.from = p.OK(1, h.fence).Return
	return true
}

// unlock releases the lock. The client has held it until then, or until its connection ended if it reports an earlier
// or a possible loss.
func (h *libraryHold) unlock(ctx context.Context) {
	until := h.c.o.Recorder.Now()
	h.d.say("unlock %d", h.owner)
	e, told := h.d.await(ctx, driverLimit, fmt.Sprintf("released %d", h.owner))
	if !told {
		h.d.kill()
	}
	if e != fmt.Sprintf("released %d", h.owner) || h.d.cutSince(until) {
		until = h.end(until)
	}
	h.record(until)
}

// end is when a lost hold ended, given the time of the report: a session ends with its connection at the latest.
func (h *libraryHold) end(told int64) int64 { return min(told, h.d.firstCut(h.from)) }

func (h *libraryHold) record(until int64) {
	if until > h.from {
		h.c.o.Recorder.Held(h.c.worker*maxPipe+noticeSlot,
			history.Op{F: "held", Key: h.key, Input: []int64{h.owner, h.fence}}, h.from, until)
	}
}

// breakIt breaks this hold as an operator; the client must learn of it.
func (h *libraryHold) breakIt(ctx context.Context) {
	h.c.hop()
	until := h.c.o.Recorder.Now()
	conn, err := h.c.conn(ctx)
	if err != nil {
		h.unlock(ctx)
		return
	}
	r := conn.Do("LOCK.BREAK", h.key, "FENCE", decimal(h.fence), "REASON", "jepsen")
	h.record(h.end(until))
	if r.Outcome != history.OK || r.Value.Num != 1 {
		h.d.say("unlock %d", h.owner)
		h.d.await(ctx, driverLimit, fmt.Sprintf("released %d", h.owner))
		return
	}
	if _, told := h.d.await(ctx, lossLimit, h.event("lost")); !told && ctx.Err() == nil {
		h.c.invoke(noticeSlot, history.Op{F: "untold", Key: h.key, Input: []int64{h.owner, h.fence}}).OK()
	}
}

// Final checks that no lock is left after all clients have closed.
func (w *library) Final(ctx context.Context, c *Client) {
	until := time.Now().Add(leftLimit)
	for {
		c.hop()
		p := c.invoke(0, history.Op{F: "left", Key: w.o.name + ":left"})
		left, err := w.left(ctx, c)
		switch {
		case err != nil && (ctx.Err() != nil || time.Now().After(until)):
			p.Complete(history.Fail, err.Error())
			return
		case err == nil && (left == 0 || time.Now().After(until)):
			p.OK(left)
			return
		}
		p.Complete(history.Fail, "not yet")
		c.moved = true
		Sleep(ctx, 500*time.Millisecond)
	}
}

// left returns the number of remaining keys.
func (w *library) left(ctx context.Context, c *Client) (int64, error) {
	conn, err := c.conn(ctx)
	if err != nil {
		return 0, err
	}
	r := conn.Do(append([]string{"EXISTS"}, append(w.keys.All(), w.o.name)...)...)
	if r.Outcome != history.OK {
		return 0, fmt.Errorf("EXISTS: %s", r.Why)
	}
	return r.Value.Num, nil
}

// driverLimit bounds an operation of a library that must end without a reachable node, and a release, which waits for a
// node.
const driverLimit = 30 * time.Second

// driver is a process with a client of a library. The client reaches the nodes through proxies, which are cut off
// together with the client's side.
type driver struct {
	c      *Client
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan string
	doors  []*fleet.Relay

	mu   sync.Mutex
	cuts []int64 // times at which its connections ended, by the recorder's clock
}

func startDriver(c *Client) (*driver, error) {
	d := &driver{
		c: c, cmd: exec.Command("sh", "-c", c.o.Drivers[c.worker%len(c.o.Drivers)]), events: make(chan string, 256),
	}
	var addrs []string
	for _, node := range c.o.Service.Nodes() {
		door, err := d.open(node)
		if err != nil {
			d.shut()
			return nil, err
		}
		d.doors = append(d.doors, door)
		addrs = append(addrs, door.Addr())
	}
	c.rng.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	d.cmd.Env = append(os.Environ(), "HOLDFAST_NODES="+strings.Join(addrs, ","), "HOLDFAST_TTL="+libraryTTL.String(),
		"HOLDFAST_PASSWORD_FILE="+os.DevNull)
	d.cmd.Stderr = os.Stderr
	in, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	d.in = in
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		d.shut()
		return nil, err
	}
	go func() {
		defer close(d.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			d.events <- lines.Text()
		}
	}()
	return d, nil
}

// open starts a relay that forwards each connection to the node.
func (d *driver) open(node string) (*fleet.Relay, error) {
	return fleet.NewRelay(func(ctx context.Context) (net.Conn, fleet.Carry, error) {
		ctx, cancel := context.WithTimeout(ctx, d.c.o.Timeout)
		defer cancel()
		server, err := d.c.o.Service.Dial(ctx, d.c.worker%d.c.o.Service.Sides(), node)
		var once sync.Once
		return server, func(to, from net.Conn) error {
			_, _ = io.Copy(to, from)
			once.Do(func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.cuts = append(d.cuts, d.c.o.Recorder.Now())
			})
			return io.EOF
		}, err
	})
}

// firstCut returns when a connection first ended at or after from, or the largest instant.
func (d *driver) firstCut(from int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := int64(1<<63 - 1)
	for _, at := range d.cuts {
		if at >= from {
			first = min(first, at)
		}
	}
	return first
}

func (d *driver) cutSince(from int64) bool { return d.firstCut(from) < d.c.o.Recorder.Now() }

func (d *driver) say(format string, args ...any) { _, _ = fmt.Fprintf(d.in, format+"\n", args...) }

// await waits for an event that begins with one of the words. It drops events of earlier calls.
func (d *driver) await(ctx context.Context, limit time.Duration, words ...string) (event string, told bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case e, open := <-d.events:
			if !open {
				return "the driver ended", false
			}
			if slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(e, w) }) {
				return e, true
			}
		case <-timer.C:
			return "no event", false
		case <-ctx.Done():
			return "the run ended", false
		}
	}
}

func (d *driver) ended() bool { return d.cmd.ProcessState != nil }

// kill kills the process; its session ends with its connections.
func (d *driver) kill() {
	_ = d.cmd.Process.Kill()
	d.shut()
	for range d.events { // until the process has ended
	}
	_ = d.cmd.Wait()
}

// close closes the client gracefully, which releases its locks.
func (d *driver) close() {
	if d.ended() {
		return
	}
	_ = d.in.Close()
	d.await(context.Background(), driverLimit, "closed")
	d.kill()
}

func (d *driver) shut() {
	for _, door := range d.doors {
		door.Close()
	}
}
