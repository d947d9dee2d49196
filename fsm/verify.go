package fsm

import (
	"errors"
	"fmt"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol/invariant"
)

// verifier verifies the whole state, but not after each entry: the cost per entry is about constant. It also checks
// that counters do not decrease.
type verifier struct {
	paid int    // the records that the entries since the last verification have paid for
	of   *state // the state that has the last counters
	last counters
}

// counters has numbers that never fall.
type counters struct {
	version                        byte
	clockMillis                    int64
	versions, fences, turns, swaps uint64
}

// paidByEntry is the number of records whose verification an entry pays for.
const paidByEntry = 16

// verify panics if an invariant of the state is violated. Apply calls it after each entry, if [invariant.On].
func (m *machine) verify() {
	st, v := m.st, &m.verifier
	now := counters{
		version: st.version, clockMillis: st.ClockMillis, versions: st.Versions,
		fences: st.Locks.Stats().Fences, turns: st.scripts.turns,
	}
	for _, at := range st.Swaps {
		now.swaps = max(now.swaps, at)
	}
	if v.of != st {
		v.of, v.last = st, now
	}
	if was := v.last; now.version < was.version || now.clockMillis < was.clockMillis ||
		now.versions < was.versions || now.fences < was.fences || now.turns < was.turns || now.swaps < was.swaps ||
		now.swaps > now.versions {
		invariant.Broken("the counters %+v have decreased to %+v", was, now)
	}
	v.last = now
	st.published()
	if v.paid += paidByEntry; v.paid >= st.recordCount() {
		v.paid = 0
		invariant.Require(errors.Join(st.verify(), m.call.watch.polls.verify()))
	}
}

// published panics if the lock table has events that no call has published.
func (st *state) published() {
	if events := st.Locks.Events(); len(events) > 0 {
		invariant.Broken("%d events of the lock table are not published, of %q first", len(events), events[0].Key)
	}
}

// recordCount returns the number of records that [state.verify] checks.
func (st *state) recordCount() int {
	n := st.Waits.Len() + st.scripts.bySHA.Len()
	for _, d := range st.Databases {
		n += d.Stored()
	}
	s := st.Locks.Stats()
	return n + s.Locks + s.Holds + s.Waiters + s.Sessions
}

// verify returns an error if an invariant of the state is violated.
func (st *state) verify() error {
	bytes := int64(0)
	errs := []error{st.Waits.Verify(), st.Locks.Verify(), st.scripts.verify(), st.history.verify()}
	for db, d := range st.Databases {
		bytes += d.Bytes()
		if err := d.Verify(); err != nil {
			errs = append(errs, fmt.Errorf("database %d: %w", db, err))
		}
	}
	if bytes != st.ItemBytes {
		errs = append(errs, fmt.Errorf("databases of %d bytes are counted as %d", bytes, st.ItemBytes))
	}
	if n := len(st.accounts.users); n != len(st.accounts.numbers) || n > keyspace.MaxAccount {
		errs = append(errs, fmt.Errorf("%d accounts have %d users", n, len(st.accounts.numbers)))
	}
	for i, s := range st.sessions {
		if i > 0 && st.sessions[i-1].node >= s.node {
			errs = append(errs, fmt.Errorf("session of %q is out of order", s.node))
		}
		errs = append(errs, s.verify())
	}
	return errors.Join(append(errs, st.incarnations.verify())...)
}

func (is *incarnations) verify() error {
	last := uint64(0)
	for _, l := range is.known {
		if l.number <= last || l.number > is.issued {
			return fmt.Errorf("incarnation %d follows %d, of %d", l.number, last, is.issued)
		}
		last = l.number
	}
	if n := len(is.known); n > maxIncarnations {
		return fmt.Errorf("%d incarnations are known", n)
	}
	return nil
}

func (s *session) verify() error {
	end := s.low // of the last range
	for i, applied := range s.applied {
		if applied.from < end || i > 0 && applied.from == end || applied.until <= applied.from {
			return fmt.Errorf("session of %q: range %d to %d follows %d", s.node, applied.from, applied.until, end)
		}
		end = applied.until
	}
	return nil
}

func (sc *scriptCache) verify() (err error) {
	loaded, remembered, inTurns := 0, 0, 0
	sc.bySHA.Scan(func(sha string, s *script) bool {
		if s.sha != sha {
			err = fmt.Errorf("script %s is cached as %s", s.sha, sha)
		}
		if s.turn == 0 {
			loaded += len(s.source)
			return err == nil
		}
		remembered += len(s.source)
		inTurns++
		if at, _ := sc.byTurn.Get(s.turn); at != s || s.turn > sc.turns {
			err = fmt.Errorf("script %s is not at turn %d of %d", sha, s.turn, sc.turns)
		}
		return err == nil
	})
	if err == nil && (loaded != sc.loadedBytes || remembered != sc.rememberedBytes || inTurns != sc.byTurn.Len()) {
		err = fmt.Errorf("scripts of %d and %d bytes are counted as %d and %d, %d of %d in turn", loaded, remembered,
			sc.loadedBytes, sc.rememberedBytes, inTurns, sc.byTurn.Len())
	}
	return err
}

func (h *lockHistory) verify() error {
	for i := range h.kinds {
		k := &h.kinds[i]
		last, bytes := uint64(0), int64(0)
		for _, c := range k.causes {
			if c.id <= last || c.id > k.causeIDs {
				return fmt.Errorf("cause %d follows %d, of %d", c.id, last, k.causeIDs)
			}
			last, bytes = c.id, bytes+c.bytes()
		}
		if bytes != k.causeBytes || len(k.causes) > keptCauses || bytes > keptCauseBytes {
			return fmt.Errorf("%d causes of %d bytes are counted as %d", len(k.causes), bytes, k.causeBytes)
		}
		if err := errors.Join(k.byTime.verify(h.lossIDs), k.byForce.verify(h.lossIDs)); err != nil {
			return err
		}
	}
	return nil
}

// verify returns an error if the list is wrong. issued is the last id that was issued to a loss.
func (list *lossList) verify(issued uint64) error {
	last, bytes := uint64(0), int64(0)
	for _, l := range list.rows {
		if l.id <= last || l.id > issued {
			return fmt.Errorf("loss %d follows %d, of %d", l.id, last, issued)
		}
		last, bytes = l.id, bytes+l.bytes()
	}
	if bytes != list.bytes || len(list.rows) > keptLosses || bytes > keptLossBytes {
		return fmt.Errorf("%d losses of %d bytes are counted as %d", len(list.rows), bytes, list.bytes)
	}
	return nil
}
