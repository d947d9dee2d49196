package nemesis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

const (
	// witnesses is the number of clients that write beside the workloads, since the lost entry may have no write of a
	// workload.
	witnesses = 8
	// witnessTimeout bounds a witness's wait for a reply.
	witnessTimeout = 5 * time.Second
)

// witness records keys whose writes were acknowledged.
type witness struct {
	n    *Nemesis
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	acked []string
}

// witness starts clients that write new keys through a member until [witness.end].
func (n *Nemesis) witness(member string) *witness {
	ctx, stop := context.WithCancel(context.Background())
	w := &witness{n: n, stop: stop}
	prefix := fmt.Sprintf("jepsen-witness-%d", n.Recorder.Now())
	for i := range witnesses {
		w.wg.Go(func() { w.write(ctx, member, i, prefix) })
	}
	return w
}

func (w *witness) write(ctx context.Context, member string, i int, prefix string) {
	nc, err := w.n.Target.Dial(ctx, i%w.n.Target.Sides(), member)
	for err != nil { // the member is starting or cut off
		if !workload.Sleep(ctx, 5*time.Millisecond) {
			return
		}
		nc, err = w.n.Target.Dial(ctx, i%w.n.Target.Sides(), member)
	}
	conn := wire.New(nc, witnessTimeout)
	defer conn.Close()
	for k := 0; ctx.Err() == nil && !conn.Broken(); k++ {
		key := fmt.Sprintf("%s-%d-%d", prefix, i, k)
		if conn.Do("SET", key, "v").Outcome == history.OK {
			w.mu.Lock()
			w.acked = append(w.acked, key)
			w.mu.Unlock()
		}
		workload.Sleep(ctx, 5*time.Millisecond)
	}
}

// end stops the clients. Requires: their member has ended or answers.
func (w *witness) end() {
	w.stop()
	w.wg.Wait()
}

// count returns the number of writes acknowledged so far.
func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// atATime is the number of keys that a witness reads with one command.
const atATime = 200

// judge checks that all acknowledged keys exist, then deletes them.
func (w *witness) judge(ctx context.Context) {
	for keys := range slices.Chunk(w.acked, atATime) {
		var missing []string
		if err := w.n.until(ctx, stepLimit, "there is a leader", func() bool {
			leader, known := w.n.Target.Leader(ctx)
			if !known {
				return false
			}
			v, err := w.n.Target.Debug(ctx, leader, append([]string{"MGET"}, keys...)...)
			if err != nil || len(v.Elems) != len(keys) {
				return false
			}
			for i, key := range keys {
				if v.Elems[i].IsNull() {
					missing = append(missing, key)
				}
			}
			return true
		}); err != nil {
			return // an unavailable service is reported elsewhere
		}
		for _, key := range missing {
			w.n.find("lost: SET %s was answered with OK before the fault, and is not there", key)
		}
		w.n.forget(ctx, keys)
	}
}

// forget deletes keys if that succeeds within stepLimit.
func (n *Nemesis) forget(ctx context.Context, keys []string) {
	_ = n.until(ctx, stepLimit, "the keys are deleted", func() bool {
		leader, known := n.Target.Leader(ctx)
		if !known {
			return false
		}
		_, err := n.Target.Debug(ctx, leader, append([]string{"DEL"}, keys...)...)
		return err == nil
	})
}
