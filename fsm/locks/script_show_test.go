package locks

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a script says, in words.

func fenceOrNot(fence uint64) []string {
	if fence == 0 {
		return []string{"no"}
	}
	return []string{fmt.Sprint("fence ", fence)}
}

func yesNo(ok bool) []string {
	if ok {
		return []string{"yes"}
	}
	return []string{"no"}
}

func count(n int) []string { return []string{fmt.Sprint(n, " holds end")} }

func failure(err error) []string {
	if err == nil {
		return nil
	}
	return []string{"error: " + err.Error()}
}

func millis(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

// clientName is the owner whose connection it is.
func (s *stage) clientName(c Client) string {
	if c == (Client{}) {
		return "nobody"
	}
	for name, conn := range s.conns {
		if conn == c.Conn && s.nodes[name] == c.Origin.Node {
			return name
		}
	}
	return fmt.Sprint(c)
}

// show is an effect in words, with the time at which it took place.
func (s *stage) show(e Effect) []string {
	at := fmt.Sprintf("%s: ", millis(s.now-1000))
	told := s.clientName(e.Client)
	if e.Attached != (Client{}) && e.Attached != e.Client {
		told += " and " + s.clientName(e.Attached)
	}
	switch e.Kind {
	case Came, Went:
		return nil // empty tells what is left
	case Granted:
		return []string{fmt.Sprintf("%s%s gets %s, fence %d", at, e.Owner, e.Key, e.Fence)}
	case Released:
		return []string{fmt.Sprintf("%s%s gives back %s", at, e.Owner, e.Key)}
	case Lost:
		return []string{fmt.Sprintf("%s%s loses %s, fence %d: %s; told %s", at, e.Owner, e.Key, e.Fence, e.Reason, told)}
	case TimedOut:
		return []string{fmt.Sprintf("%s%s waits for %s no more", at, e.Owner, e.Key)}
	case Waiting:
		return []string{fmt.Sprintf("%s%d in line for %s", at, e.Waiters, e.Key)}
	case Left:
		return []string{fmt.Sprintf("%s%s leaves the line for %s (%s), %d in line", at, e.Owner, e.Key, e.How, e.Waiters)}
	case Late:
		return []string{fmt.Sprintf("%s%s is late with %s: %s of %s", at, e.Owner, e.Key, millis(e.SinceRenewedMillis),
			millis(e.LeaseMillis))}
	case SessionEnded:
		return []string{fmt.Sprintf("%ssession %d ends", at, e.Session)}
	}
	outcome := fmt.Sprint("fence ", e.Fence)
	switch {
	case e.Err != nil:
		outcome = e.Err.Error()
	case e.Fence == 0:
		outcome = "not in time"
	}
	return []string{fmt.Sprintf("%s%s is told: %s", at, s.names[e.Name], outcome)}
}

func (s *stage) info(key string) (lines []string) {
	i := s.table.Info(0, key, s.now, enough)
	if i == nil {
		return []string{"nothing"}
	}
	for _, h := range i.Holds {
		line := fmt.Sprintf("%s holds it %s, fence %d", h.Owner, modeNames[h.Mode], h.Fence)
		if h.Count > 1 {
			line += fmt.Sprintf(", %d times", h.Count)
		}
		if h.Permits > 0 {
			line += fmt.Sprintf(", %d permits", h.Permits)
		}
		if h.Session > 0 {
			line += fmt.Sprint(", session ", h.Session)
		} else {
			line += ", " + millis(h.LeftMillis) + " left"
		}
		if h.Note != "" {
			line += ", note " + h.Note
		}
		lines = append(lines, line)
	}
	for _, w := range i.Waits {
		line := fmt.Sprintf("%s waits %s", w.Owner, modeNames[w.Mode])
		if w.LeftMillis >= 0 {
			line += ", " + millis(w.LeftMillis) + " left"
		}
		if w.Absent {
			line += ", absent"
		}
		lines = append(lines, line)
	}
	if i.DelayLeftMillis > 0 {
		lines = append(lines, "nobody gets it for "+millis(i.DelayLeftMillis))
	}
	return lines
}

var modeNames = [...]string{Exclusive: "alone", Shared: "shared", Permits: "in part"}

func (s *stage) sessions([]string) (lines []string) {
	rows, _ := s.table.Sessions(0, enough, s.now)
	for _, r := range rows {
		line := fmt.Sprintf("session %d: %s left, %d holds, %d waits", r.ID, millis(r.LeftMillis), r.Holds, r.Waiters)
		if r.Connection {
			line += ", lives with " + s.clientName(r.Client)
		}
		lines = append(lines, line)
	}
	return lines
}

// tape is a snapshot in memory.
type tape struct {
	words []any
	next  int
}

func (s *tape) Uint(n uint64)   { s.words = append(s.words, n) }
func (s *tape) Int(n int64)     { s.words = append(s.words, n) }
func (s *tape) String(v string) { s.words = append(s.words, v) }

// head reads a tape from its beginning.
type head struct {
	tape *tape
	err  error
}

func read[T any](h *head) (v T) {
	if h.err != nil {
		return v
	}
	if h.tape.next == len(h.tape.words) {
		h.err = fmt.Errorf("the tape ended")
		return v
	}
	v, ok := h.tape.words[h.tape.next].(T)
	h.tape.next++
	if !ok {
		h.err = fmt.Errorf("word %d is a %T", h.tape.next-1, h.tape.words[h.tape.next-1])
	}
	return v
}

func (h *head) Uint() uint64   { return read[uint64](h) }
func (h *head) Int() int64     { return read[int64](h) }
func (h *head) String() string { return read[string](h) }
func (h *head) Err() error     { return h.err }

// reloaded is a table that went through a snapshot.
func reloaded(t *testing.T, table *Table) *Table {
	t.Helper()
	var out tape
	table.Save(&out, table.sliced)
	loaded, err := Load(&head{tape: &out}, table.sliced)
	require.NoError(t, err)
	require.Equal(t, len(out.words), out.next, "what was written is read")
	var again tape
	loaded.Save(&again, table.sliced)
	require.Equal(t, out.words, again.words, "a table and its like write the same")
	return loaded
}
