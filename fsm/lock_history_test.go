package fsm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// history returns at most count rows of LOCK.HISTORY, each with its fields.
func (d *driver) history(count int, options ...string) (rows []map[string]string) {
	d.t.Helper()
	v := d.do(append([]string{"lock.history", "count", strconv.Itoa(count)}, options...)...)
	require.Len(d.t, v.Elems, 2, v.Str)
	for _, row := range v.Elems[1].Elems {
		fields := map[string]string{}
		for i := 0; i < len(row.Elems); i += 2 {
			fields[row.Elems[i].Str] = row.Elems[i+1].Str
			if row.Elems[i+1].Kind == protocol.KindInteger {
				fields[row.Elems[i].Str] = fmt.Sprint(row.Elems[i+1].Num)
			}
		}
		rows = append(rows, fields)
	}
	return rows
}

// TestHistoryOfMassEnds: any number of simultaneous losses takes ten rows, and expiries do not evict forced breaks.
func TestHistoryOfMassEnds(t *testing.T) {
	d := newDriver(t)
	d.do("lock.acquire", "k", "me", "px", "1000")
	d.do("lock.break", "k", "reason", "first")
	const holds = 2000
	for i := range holds {
		d.do("lock.acquire", fmt.Sprint("k", i), "me", "px", "1000")
		d.do("lock.acquire", "shared", fmt.Sprint(i), "px", "100000", "shared")
	}
	d.do("lock.break", "shared", "reason", "second")
	d.advance(1001)
	for d.m.LockStats().Locks > 0 { // entries remove ended locks in slices
		d.advance(0)
	}
	rows := d.history(1000)
	require.Len(t, rows, 1+10+10)
	sums := map[string]int{}
	for _, row := range rows {
		more, err := strconv.Atoi(row["more"])
		require.NoError(t, err)
		sums[row["reason"]+row["text"]] += 1 + more
	}
	require.Equal(t, map[string]int{"brokenfirst": 1, "brokensecond": holds, "expired": holds}, sums)
	require.Equal(t, "first", rows[len(rows)-1]["text"])

	for i := range 700 {
		d.do("lock.acquire", "k", "me", "px", "1", "note", strings.Repeat("n", i))
		d.advance(2)
	}
	rows = d.history(1000)
	require.Len(t, rows, 500+11)
	require.Equal(t, "0", rows[0]["more"], "what was left out counts for the row before it alone")
	require.Equal(t, "first", rows[len(rows)-1]["text"])
	ids := map[string]bool{}
	for cursor := "0"; ; {
		v := d.do("lock.history", "count", "7", "cursor", cursor)
		require.LessOrEqual(t, len(v.Elems[1].Elems), 7)
		for _, row := range v.Elems[1].Elems {
			ids[fmt.Sprint(row.Elems[1].Num)] = true
		}
		if cursor = v.Elems[0].Str; cursor == "0" {
			break
		}
	}
	require.Len(t, ids, len(rows))
	m := restored(t, d.m)
	require.Equal(t, d.m.Hash(), m.Hash())
	require.Equal(t, d.m.Stats().UsedBytes, m.Stats().UsedBytes)
}

// TestAlike: losses of one event share ten rows, and losses of another event have their own.
func TestAlike(t *testing.T) {
	one := lockLoss{atMillis: 1, reason: locks.Broken, causeID: 1, session: 1, fence: 1, key: "k"}
	differs := map[string]func(l *lockLoss){
		"instant": func(l *lockLoss) { l.atMillis++ },
		"reason":  func(l *lockLoss) { l.reason = locks.Flushed }, // a script may do both, which is one cause
		"cause":   func(l *lockLoss) { l.causeID++ },
		"session": func(l *lockLoss) { l.session++ },
	}
	for name, change := range differs {
		var h lockHistory
		list := &h.kinds[nativeLocks].byForce
		record := func(l lockLoss) {
			if !h.leavesOut(&l) {
				h.add(l)
			}
		}
		for range maxSimilarLosses + 3 {
			record(one)
		}
		require.Equal(t, []uint64{maxSimilarLosses, 3}, []uint64{uint64(len(list.rows)), list.left})
		another := one
		change(&another)
		record(another)
		require.Len(t, list.rows, maxSimilarLosses+1, name)
		record(one)
		require.Len(t, list.rows, maxSimilarLosses+2, "%s: of ten rows in a row", name)
	}
}

// TestHistoryIsBounded: its bytes are limited and count as memory; commands without losses cost nothing.
func TestHistoryIsBounded(t *testing.T) {
	d := newDriver(t)
	d.do("del", "k")
	empty := d.m.Stats().UsedBytes
	long := strings.Repeat("x", 1024)
	for i := range 600 {
		key := long + long + fmt.Sprint(i)
		d.do("lock.acquire", key, long, "px", "1000", "note", long)
		require.EqualValues(t, 1, d.do("lock.break", key, "reason", long).Num)
		require.LessOrEqual(t, d.m.Stats().UsedBytes-empty, int64(768<<10))
	}
	require.Greater(t, d.m.Stats().UsedBytes-empty, int64(700<<10))
	h := &d.m.st.history.kinds[nativeLocks]
	require.Less(t, len(h.byForce.rows), 200)
	require.Less(t, len(h.causes), 230)
	require.Greater(t, len(h.causes), len(h.byForce.rows), "the rows that are kept have their causes")
	rows := d.history(1000)
	require.Equal(t, []string{long, long, long, long}, []string{
		rows[0]["key"], rows[0]["owner"], rows[0]["note"],
		rows[0]["text"],
	})

	hash := d.m.st.history
	for range 1000 {
		d.do("lock.break", "nothing", "reason", long)
		d.do("del", "nothing")
		d.do("lock.acquire", "k", "me", "px", "1000")
		d.do("lock.break", "k", "owner", "nobody", "reason", "no such hold")
	}
	require.Equal(t, hash, d.m.st.history)
	d.m.st.history = lockHistory{}
	d.do("lock.release", "k", "me")
	require.Equal(t, empty, d.m.Stats().UsedBytes)
	for range 600 {
		d.do("lock.acquire", "k", "me", "px", "1000")
		d.do("lock.break", "k")
	}
	require.Equal(t, []int{500, 500}, []int{
		len(d.m.st.history.kinds[nativeLocks].byForce.rows),
		len(d.m.st.history.kinds[nativeLocks].causes),
	})
}

// TestHistoryTellsAll: the history of a random log contains each loss that was reported.
func TestHistoryTellsAll(t *testing.T) {
	for seed := range int64(10) {
		log := newLog(seed)
		m := newMachine()
		log.machine = m
		told := map[string]bool{}
		losses := 0
		for range 60 {
			var heard listener
			m.Listen(event.InMessages)
			require.NoError(t, m.Apply(log.next(), &heard))
			for _, e := range heard.events {
				if words := strings.Fields(e.Payload); e.Kind == event.LockMessage && words[0] == "lost" {
					losses++
					told[fmt.Sprintf("%d %s %s", e.DB, e.Key, strings.Join(words[1:], " "))] = true
				}
			}
		}
		h := &m.st.history
		native := &h.kinds[nativeLocks]
		if len(native.byTime.rows) == keptLosses || len(native.byForce.rows) == keptLosses {
			t.Skip("a log of so few entries should not end so many")
		}
		rows := 0
		h.descend(0, func(l *lockLoss, more uint64) bool {
			if l.kind == stockLocks {
				return true
			}
			rows += 1 + int(more)
			text := ""
			if c := native.cause(l.causeID); c != nil {
				text = c.text
			}
			line := strings.TrimSpace(fmt.Sprintf("%d %s %s %d %s %s", l.db, l.key, l.owner, l.fence, l.reason, text))
			require.True(t, told[line], line)
			return true
		})
		require.Equal(t, losses, rows)
	}
}

// TestRestoredHistory: a history that no log can produce is refused.
func TestRestoredHistory(t *testing.T) {
	make2 := func() *driver {
		d := newDriver(t)
		for _, reason := range []string{"a", "b"} {
			for _, take := range [][]string{{"lock.acquire", "k", "me", "px"}, {"set", "stock", "me", "nx", "px"}} {
				d.do(append(take, "1000")...)
				d.do("lock.break", take[1], "reason", reason)
				d.do(append(take, "1")...)
				d.advance(2)
			}
		}
		return d
	}
	require.NoError(t, newMachine().Restore(bytes.NewReader(dump(t, make2().m))))
	for what, spoil := range map[string]func(h *lockHistory, k *kindHistory){
		"ids of losses":   func(h *lockHistory, _ *kindHistory) { h.lossIDs -= 2 },
		"ids of causes":   func(_ *lockHistory, k *kindHistory) { k.causeIDs-- },
		"order of causes": func(_ *lockHistory, k *kindHistory) { k.causes[1].id = k.causes[0].id },
		"order of losses": func(_ *lockHistory, k *kindHistory) { k.byForce.rows[1].id = k.byForce.rows[0].id },
		"the other list":  func(_ *lockHistory, k *kindHistory) { k.byForce, k.byTime = k.byTime, k.byForce },
		"the other kind":  func(h *lockHistory, _ *kindHistory) { h.kinds[0], h.kinds[1] = h.kinds[1], h.kinds[0] },
		"no reason":       func(_ *lockHistory, k *kindHistory) { k.byTime.rows[0].reason = 0 },
		"another reason":  func(_ *lockHistory, k *kindHistory) { k.byTime.rows[0].reason = 9 },
		"bytes of a loss": func(_ *lockHistory, k *kindHistory) {
			k.byTime.rows[1].note = strings.Repeat("x", keptLossBytes)
		},
		"bytes of a cause": func(_ *lockHistory, k *kindHistory) { k.causes[1].text = strings.Repeat("x", keptCauseBytes) },
		"too many losses": func(h *lockHistory, k *kindHistory) {
			k.byTime.rows = grown(k.byTime.rows, func(l *lockLoss, id uint64) { l.id = id })
			h.lossIDs = 1 << 20
		},
		"too many causes": func(_ *lockHistory, k *kindHistory) {
			k.causes = grown(k.causes, func(l *lossCause, id uint64) { l.id = id })
			k.causeIDs = 1 << 20
		},
		"an unknown number": func(_ *lockHistory, k *kindHistory) { k.byTime.rows[0].db = 99 },
	} {
		for kind := range lockKinds {
			d := make2()
			spoil(&d.m.st.history, &d.m.st.history.kinds[kind])
			require.ErrorIs(t, newMachine().Restore(bytes.NewReader(dump(t, d.m))), ErrCorruptSnapshot, what)
		}
	}
}

// grown returns 501 rows with increasing ids.
func grown[T any](rows []*T, number func(row *T, id uint64)) (all []*T) {
	for id := range uint64(501) {
		row := *rows[0]
		number(&row, id+1)
		all = append(all, &row)
	}
	return all
}

// TestUndoneEndsLeaveNoHistory: an undone script records no ended lock.
func TestUndoneEndsLeaveNoHistory(t *testing.T) {
	var dumps [][]byte
	for _, script := range []string{
		endless, "redis.call('set','native',1) " + endless, "redis.call('set','stock',1) " + endless,
		"redis.call('hset','stock','f',1) redis.call('del','native') " + endless,
	} {
		d := newDriver(t)
		d.endFirst(900)
		d.native(5, 0, "lock.acquire", "native", "me", "px", "1000")
		d.fill("dead", 2*sweepLimit, 900)
		d.do("set", "stock", "t", "nx", "px", "1000")
		d.nowMillis += 1001
		d.m.budgets.lockChanges = 0
		require.True(t, d.eval(script).IsError())
		require.True(t, d.m.st.Locks.HasOrFlushed(0, "native"))
		dumps = append(dumps, dump(t, d.m))
	}
	for i := range dumps {
		require.True(t, bytes.Equal(dumps[0], dumps[i]), "script %d", i)
	}
}
