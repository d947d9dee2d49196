package waits

import "fmt"

// Verify returns an error if the trees of the table contradict each other, or if a count is wrong.
func (t *Table) Verify() (err error) {
	failed := func(format string, args ...any) bool { // records the first failure
		if err == nil {
			err = fmt.Errorf("waits: "+format, args...)
		}
		return false
	}
	places, deadlines, bytes := 0, 0, int64(0)
	var counts Counts
	t.names.Scan(func(w *Waiter) bool {
		bytes += w.Bytes()
		counts.Add(w.Account, 1)
		if w.Order == 0 || w.Order > t.orders {
			return failed("%v has order %d of %d", w.Name, w.Order, t.orders)
		}
		once := map[string]bool{}
		for _, key := range w.Keys() {
			if p, _ := t.places.Get(place{w.DB, key, w.Kind, w.Order, nil}); p.waiter != w {
				return failed("%v does not stand in the queue of key %q", w.Name, key)
			}
			once[key] = true
		}
		places += len(once)
		if w.DeadlineMillis == Never {
			return true
		}
		deadlines++
		if at, _ := t.deadlines.Get(w); at != w {
			return failed("%v does not stand among the deadlines", w.Name)
		}
		return true
	})
	if places != t.places.Len() || deadlines != t.deadlines.Len() || bytes != t.bytes {
		failed("%d places of %d, %d deadlines of %d, %d bytes of %d", t.places.Len(), places, t.deadlines.Len(), deadlines,
			t.bytes, bytes)
	}
	if !counts.Equal(t.counts) {
		failed("accounts with %d waiters are counted as %d", counts, t.counts)
	}
	coming, last := 0, uint64(0)
	t.queue.Scan(func(turn uint64, r Ready) bool {
		if r.From == 0 && !r.Whole {
			coming++
			if _, known := t.known.Get(r); !known {
				return failed("key %q is ready and not known", r.Key)
			}
		}
		last = turn
		return true
	})
	if coming != t.known.Len() || last > t.turn || (t.turn != 0) != (t.queue.Len() > 0) {
		failed("%d keys are ready, %d known; turn %d of %d", coming, t.known.Len(), last, t.turn)
	}
	for i := 1; i < len(t.ended); i++ {
		if t.ended[i-1].Origin.Node >= t.ended[i].Origin.Node {
			failed("the end of node %q is out of order", t.ended[i].Origin.Node)
		}
	}
	return err
}
