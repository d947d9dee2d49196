package waits

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestScripts runs testdata/waits.txt: one call a line, with the answer indented below.
//
//	wait n1/1#7 list a b [until 50]   the client with ticket 7 of node n1's first life waits for lists a, b
//	leave n1/1#7                      it leaves
//	queue list a                      who waits for a list in a
//	due                               whose deadline is the earliest
//	wake a | wake all                 a may serve waiters | all keys may
//	ready                             the keys that are ready, in turn
//	tried 4 | served | spread         what the owner of the table does with the first of them
//	drop n1/2#0                       the waiters of n1 before this name are gone
//	drop n1 until 1                   all waiters of n1 in its lives up to the first are gone
//	sweep                             remove one that is gone
//	copy | original                   what follows is done to a copy | to the table that was copied
func TestScripts(t *testing.T) { protocoltest.Transcripts(t, "testdata/waits.txt", play) }

func play(t *testing.T, script []byte) []byte {
	table := New()
	var original *Table
	return protocoltest.Lines(t, script, func(words []string) []string {
		switch words[0] {
		case "copy":
			original, table = table, table.Copy()
		case "original":
			table = original
		default:
			return step(t, table, words)
		}
		return nil
	})
}

// step does a line of a script, and returns the answer.
func step(t *testing.T, table *Table, words []string) []string {
	switch words[0] {
	case "wait":
		w := waiterOf(t, words[1:])
		if !table.Add(w) {
			return []string{"refused"}
		}
		return []string{fmt.Sprint("order ", w.Order)}
	case "leave":
		w := table.Find(nameOf(t, words[1]))
		if w == nil {
			return []string{"nobody"}
		}
		table.Remove(w)
	case "queue":
		return queueOf(table, 0, words[2], kinds[words[1]])
	case "due":
		return []string{show(table.First())}
	case "wake":
		if words[1] == "all" {
			table.WakeAll(0)
		} else {
			table.Wake(0, words[1])
		}
	case "ready":
		return readyOf(table)
	case "tried":
		table.Tried(number(t, words[1]))
	case "served":
		table.Served()
	case "spread":
		table.Spread()
	case "drop":
		if len(words) > 2 {
			table.EndNodeWaits(words[1], number(t, words[3]))
		} else {
			table.EndNodeWaitsBefore(nameOf(t, words[1]))
		}
	case "sweep":
		return []string{show(table.Sweep())}
	default:
		t.Fatalf("unknown line %q", words)
	}
	return nil
}

var kinds = map[string]keyspace.Kind{"list": keyspace.KindList, "zset": keyspace.KindSortedSet}

func number(t *testing.T, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	require.NoError(t, err)
	return n
}

// nameOf reads node/epoch#ticket.
func nameOf(t *testing.T, s string) (n Name) {
	node, rest, _ := strings.Cut(s, "/")
	epoch, ticket, _ := strings.Cut(rest, "#")
	n.Origin.Node, n.Origin.Epoch, n.Ticket = node, number(t, epoch), number(t, ticket)
	return n
}

// waiterOf reads "name kind key… [until deadline]".
func waiterOf(t *testing.T, words []string) *Waiter {
	w := &Waiter{Name: nameOf(t, words[0]), Kind: kinds[words[1]]}
	keys := words[2:]
	if n := len(keys); n > 2 && keys[n-2] == "until" {
		w.DeadlineMillis = int64(number(t, keys[n-1]))
		keys = keys[:n-2]
	}
	w.Words, w.KeyFrom, w.KeyCount = append([]string{"pop"}, keys...), 1, len(keys)
	w.Own()
	return w
}

func show(w *Waiter) string {
	if w == nil {
		return "nobody"
	}
	return fmt.Sprintf("%s/%d#%d", w.Origin.Node, w.Origin.Epoch, w.Ticket)
}

func queueOf(table *Table, db int, key string, kind keyspace.Kind) (names []string) {
	for from := uint64(0); ; {
		w := table.Next(db, key, kind, from)
		if w == nil {
			return names
		}
		name := show(w)
		if table.HasNodeEnded(w) {
			name += " (gone)"
		}
		names, from = append(names, name), w.Order+1
	}
}

func readyOf(table *Table) (all []string) {
	table.ScanReady(func(r Ready) bool {
		text := r.Key
		if r.Whole {
			text = fmt.Sprintf("all from %q", r.Key)
		}
		if r.From > 0 {
			text += fmt.Sprint(" from order ", r.From)
		}
		all = append(all, text)
		return true
	})
	return all
}
