package workload

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

// groupSize is the number of lists in a transaction.
const groupSize = 3

// txn has transactions on a few lists: MULTI … EXEC, and WATCH, GET, MULTI … EXEC, where EXEC proves that the earlier
// reads still hold.
type txn struct {
	groups *Rotation
	next   *atomic.Int64
}

func newTxn(o *Options) Workload {
	return &txn{NewRotation(o.name, max(1, o.Concurrency/5), 150, 6), new(atomic.Int64)}
}

func (w *txn) Checkers() []checker.Func {
	return []checker.Func{checker.Linear("strict serializable", checker.Transactions(), checker.TransactionFunctions)}
}

func (w *txn) Step(ctx context.Context, c *Client) {
	c.hop()
	n, group := w.groups.Pick(c.rng)
	steps := make([]history.Micro, 1+c.rng.IntN(4))
	for i := range steps {
		steps[i] = history.Micro{F: "r", Key: fmt.Sprintf("%s/%d", group, c.rng.IntN(groupSize))}
		if c.chance(0.5) {
			steps[i].F, steps[i].Value = "append", w.next.Add(1)
		}
	}
	do := multi
	if c.chance(0.4) {
		// In this form reads come first, so that none sees the transaction's own appends.
		slices.SortStableFunc(steps, func(a, b history.Micro) int { return -cmpString(a.F, b.F) })
		do = optimistic
	}
	r := c.op(ctx, history.Op{F: "txn", Key: group, Txn: steps}, func(x exchange) result { return do(x, steps) })
	if r.outcome == history.Info {
		w.groups.Unknown(n)
	}
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (w *txn) Final(ctx context.Context, c *Client) {
	for _, group := range w.groups.All() {
		c.hop()
		var steps []history.Micro
		for i := range groupSize {
			steps = append(steps, history.Micro{F: "r", Key: fmt.Sprintf("%s/%d", group, i)})
		}
		c.op(ctx, history.Op{F: "txn", Key: group, Txn: steps}, func(x exchange) result { return multi(x, steps) })
	}
}

func words(m history.Micro) []string {
	if m.F == "r" {
		return []string{"GET", m.Key}
	}
	return []string{"APPEND", m.Key, element(m.Value)}
}

// multi sends the whole transaction in one write, as go-redis does.
func multi(x exchange, steps []history.Micro) result {
	commands := [][]string{{"MULTI"}}
	for _, m := range steps {
		commands = append(commands, words(m))
	}
	replies := x.conn.Pipeline(append(commands, []string{"EXEC"}))
	return onExec(replies[len(replies)-1], steps, 0)
}

// optimistic watches, reads, and appends only if nothing has changed.
func optimistic(x exchange, steps []history.Micro) result {
	watch := []string{"WATCH"}
	reads := [][]string{nil}
	for _, m := range steps {
		watch = append(watch, m.Key)
		if m.F == "r" {
			reads = append(reads, words(m))
		}
	}
	reads[0] = watch
	replies := x.conn.Pipeline(reads)
	for _, r := range replies {
		if r.Outcome != history.OK {
			return failed(r.Why) // only reads so far
		}
	}
	seen := slices.Clone(steps)
	for i, r := range replies[1:] {
		if err := setList(&seen[i], r.Value); err != nil {
			return unexpected(r)
		}
	}
	commands := [][]string{{"MULTI"}}
	for _, m := range steps[len(replies)-1:] {
		commands = append(commands, words(m))
	}
	replies2 := x.conn.Pipeline(append(commands, []string{"EXEC"}))
	return onExec(replies2[len(replies2)-1], seen, len(replies)-1)
}

// onExec reads EXEC's reply; the first done steps were read before.
func onExec(exec wire.Reply, steps []history.Micro, done int) result {
	switch {
	case exec.Outcome != history.OK:
		return not(exec)
	case exec.Value.IsNull():
		return failed("conflict")
	case len(exec.Value.Elems) != len(steps)-done:
		return unexpected(exec)
	}
	seen := slices.Clone(steps)
	for i, v := range exec.Value.Elems {
		if err := setList(&seen[done+i], v); err != nil {
			return unexpected(exec)
		}
	}
	return result{outcome: history.OK, txn: seen}
}

// setList sets the list of a read from its reply. Of an append's reply it only checks the type.
func setList(m *history.Micro, v protocol.Value) error {
	if m.F != "r" {
		if v.Kind != protocol.KindInteger {
			return fmt.Errorf("append answered %+v", v)
		}
		return nil
	}
	if v.Kind != protocol.KindBulk && !v.IsNull() {
		return fmt.Errorf("read answered %+v", v)
	}
	list, err := parseList(v.Str)
	m.List = list
	return err
}
