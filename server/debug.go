package server

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// faults implements the subcommands of DEBUG that jepsen/HOOKS.md specifies. Without --debug it is nil, and its methods
// return the machine's clock and an undisturbed disk.
type faults struct {
	skew  *skewedClock
	store *store.Faults
	node  *replica.Replica // set before clients are served

	mu sync.Mutex // one DEBUG DISK at a time
}

func newFaults(c DebugConfig) *faults {
	if !c.Debug {
		return nil
	}
	return &faults{skew: newSkewedClock(replica.SystemClock()), store: store.NewFaults()}
}

func (f *faults) clock() replica.Clock {
	if f == nil {
		return replica.SystemClock()
	}
	return f.skew
}

func (f *faults) disk() *store.Faults {
	if f == nil {
		return nil
	}
	return f.store
}

// handler answers subcommands of DEBUG for package frontend; nil without --debug.
func (f *faults) handler() func([]string) (protocol.Value, bool) {
	if f == nil {
		return nil
	}
	return f.answer
}

// answer runs a subcommand of DEBUG. known is false if faults has no such subcommand.
func (f *faults) answer(words []string) (reply protocol.Value, known bool) {
	fold := func(i int) string {
		if i >= len(words) {
			return ""
		}
		return strings.ToLower(words[i])
	}
	switch fold(0) {
	case "clock":
		return answered(f.setClock(fold(1), words[min(2, len(words)):])), true
	case "disk":
		return answered(f.setDisk(fold(1), words[min(2, len(words)):])), true
	case "transfer":
		return answered(f.transfer()), true
	case "snapshot":
		return answered(f.node.TakeSnapshot()), true
	case "corrupt":
		return answered(f.node.Corrupt(nil)), true
	case "digest":
		index, hash := f.node.Digest()
		return protocol.Array(protocol.Integer(int64(index)), protocol.Bulk(hash)), true
	}
	return protocol.Value{}, false
}

func answered(err error) protocol.Value {
	if err != nil {
		return protocol.Err(err.Error())
	}
	return protocol.OK
}

var errWords = errors.New("wrong words: see jepsen/HOOKS.md")

// integers reads exactly n numbers.
func integers(words []string, n int) ([]int64, error) {
	if len(words) != n {
		return nil, errWords
	}
	var numbers []int64
	for _, w := range words {
		number, ok := protocol.ParseInt(w)
		if !ok {
			return nil, errWords
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

func (f *faults) setClock(what string, words []string) error {
	count := map[string]int{"jump": 1, "strobe": 2, "rate": 1, "ok": 0}
	n, known := count[what]
	if !known {
		return errWords
	}
	numbers, err := integers(words, n)
	if err != nil {
		return err
	}
	switch what {
	case "jump":
		f.skew.setJump(time.Duration(numbers[0])*time.Millisecond, 0)
	case "strobe":
		if numbers[1] <= 0 {
			return errWords
		}
		f.skew.setJump(time.Duration(numbers[0])*time.Millisecond, time.Duration(numbers[1])*time.Millisecond)
	case "rate":
		if numbers[0] < 500 || numbers[0] > 2000 {
			return errWords
		}
		f.skew.setRate(numbers[0])
	case "ok":
		f.skew.setJump(0, 0)
		f.skew.setRate(1000)
	}
	return nil
}

// writes are the calls that DEBUG DISK disturbs. Reads are undisturbed.
var writes = []store.Op{store.OpStoreLogs, store.OpDeleteRange, store.OpSet, store.OpSnapshot}

func (f *faults) setDisk(what string, words []string) error {
	n := 0
	if what == "delay" {
		n = 1
	}
	numbers, err := integers(words, n)
	if err != nil {
		return err
	}
	var fault store.Fault
	switch what {
	case "ok":
		f.store.Clear()
		return nil
	case "delay":
		if numbers[0] < 0 {
			return errWords
		}
		fault.Delay = time.Duration(numbers[0]) * time.Millisecond
	case "hang":
		fault.Hang = true
	case "error":
		fault.Err = syscall.EIO
	case "enospc":
		fault.Err = syscall.ENOSPC
	case "torn":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.store.Clear()
		f.store.Inject(store.Fault{Torn: powerCut})
		return nil
	default:
		return errWords
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Clear() // a DEBUG DISK replaces the one before
	for _, op := range writes {
		fault.Op = op
		f.store.Inject(fault)
	}
	return nil
}

// powerCut ends the process as a power cut does: nothing is closed.
func powerCut() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
}

// transferLimit bounds DEBUG TRANSFER, which cannot succeed without a majority.
const transferLimit = 5 * time.Second

func (f *faults) transfer() error {
	if !f.node.Status().Leading {
		return errors.New("not leading")
	}
	ctx, cancel := context.WithTimeout(context.Background(), transferLimit)
	defer cancel()
	return f.node.TransferLeadership(ctx, "")
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// rewriteDial wraps dial to replace the addresses in table, "original=replacement,…", so that partition tests can put a
// proxy between any two nodes.
func rewriteDial(table string, dial dialFunc) dialFunc {
	if table == "" {
		return dial
	}
	rewritten := make(map[string]string)
	for item := range strings.SplitSeq(table, ",") {
		if from, to, ok := strings.Cut(strings.TrimSpace(item), "="); ok {
			rewritten[from] = to
		}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if to, ok := rewritten[addr]; ok {
			addr = to
		}
		return dial(ctx, network, addr)
	}
}

// skewedClock is the machine's clock with the errors that DEBUG CLOCK asks for; only --debug
// uses it. Holdfast claims that errors of wall clocks do not matter, and that a rate error of the
// monotonic clock stretches leases by just that factor. The partition tests try both.
type skewedClock struct {
	real replica.Clock

	mu sync.Mutex
	// Monotonic time reads base + (real - since) * permille / 1000.
	base, since time.Duration
	permille    int64
	// The wall clock is ahead by jump, or, if period is set, in every second period only.
	jump, period time.Duration
	strobeSince  time.Duration
}

func newSkewedClock(real replica.Clock) *skewedClock {
	return &skewedClock{real: real, permille: 1000}
}

// Monotonic implements replica.Clock.
func (c *skewedClock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.monotonicLocked(c.real.Monotonic())
}

func (c *skewedClock) monotonicLocked(now time.Duration) time.Duration {
	return c.base + (now-c.since)*time.Duration(c.permille)/1000
}

// Wall implements replica.Clock.
func (c *skewedClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	jump := c.jump
	if c.period > 0 && ((c.real.Monotonic()-c.strobeSince)/c.period)%2 == 1 {
		jump = 0
	}
	return c.real.Wall().Add(jump)
}

// setJump moves the wall clock. With a period above 0 the clock flips between moved and true.
func (c *skewedClock) setJump(jump, period time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump, c.period, c.strobeSince = jump, period, c.real.Monotonic()
}

// setRate changes the speed of monotonic time from now on, without a step.
func (c *skewedClock) setRate(permille int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.real.Monotonic()
	c.base, c.since, c.permille = c.monotonicLocked(now), now, permille
}
