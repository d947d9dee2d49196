package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
)

// answers starts a server that answers commands by their words, and returns its address.
func answers(t *testing.T, answer func(words []string) protocol.Value) (addr string) {
	t.Helper()
	return clienttest.Listen(t, func(nc net.Conn) {
		defer nc.Close()
		for r := protocol.NewConn(nc); ; {
			v, err := r.Receive()
			if err != nil {
				return
			}
			var words []string
			for _, e := range v.Elems {
				words = append(words, e.Str)
			}
			reply := answer(words)
			if _, err := nc.Write(reply.AppendTo(nil, protocol.RESP3)); err != nil {
				return
			}
		}
	})
}

// answering is a connection to a node that answers commands by their words.
func answering(t *testing.T, answer func(words []string) protocol.Value) *operator.Conn {
	t.Helper()
	c, err := new(operator.Servers).Dial(t.Context(), answers(t, answer), askLimit)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// mapOf makes a map of names and values.
func mapOf(words ...any) protocol.Value {
	var elems []protocol.Value
	for _, w := range words {
		switch w := w.(type) {
		case string:
			elems = append(elems, protocol.Bulk(w))
		case int:
			elems = append(elems, protocol.Integer(int64(w)))
		case protocol.Value:
			elems = append(elems, w)
		}
	}
	return protocol.Map(elems...)
}

// TestLockTable: all pages of the list, those held longest first, with what is known of clients, and the sums.
func TestLockTable(t *testing.T) {
	young := mapOf("key", "young", "db", 3, "mode", "stock", "holders-count", 1, "waiters-count", 8, "holders",
		protocol.Array(
			mapOf("owner", "token", "fence", 0, "mode", "stock", "lease-left", 500, "since", 99_000, "client", "n2/7",
				"client-state", "gone")), "waiters", protocol.Array(
			mapOf("owner", "poller", "mode", "stock", "since", 90_000, "wait-left", -1, "polls", 500)))
	old := mapOf("key", "old", "db", 0, "mode", "exclusive", "holders-count", 1, "waiters-count", 2, "holders",
		protocol.Array(
			mapOf("owner", "me", "fence", 4, "mode", "exclusive", "lease-left", -1, "session", 9, "since", 10_000, "note",
				"nightly", "client", "n1/2",
				"client-state", "connected", "client-addr", "10.0.0.7:1", "client-name", "job", "client-idle", 1500)), "waiters",
		protocol.Array(
			mapOf("owner", "you", "mode", "exclusive", "since", 40_000, "wait-left", -1, "client", "n1/3", "client-state",
				"unknown")))
	waited := mapOf("key", "free", "db", 0, "mode", "free", "holders-count", 0, "waiters-count", 0, "delay-left", 2000,
		"holders", protocol.Array(), "waiters", protocol.Array())
	conn := answering(t, func(words []string) protocol.Value {
		switch line := strings.Join(words, " "); line {
		case "TIME":
			return protocol.Strings("100", "0")
		case "LOCK.LIST COUNT 1000 MATCH *":
			return protocol.Array(protocol.Bulk("5"), protocol.Array(waited, young))
		case "LOCK.LIST COUNT 1000 MATCH * CURSOR 5", "LOCK.LIST COUNT 1000":
			return protocol.Array(protocol.Bulk("0"), protocol.Array(old))
		}
		return protocol.OK
	})
	got, err := lockQuery{pattern: "*", db: -1}.frame(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, `LOCK       STATE    OWNER       FENCE  MODE       FOR    LEFT            CLIENT          HEARD     NOTE
old (0)    held     me          4      exclusive  1m30s  its session, 9  10.0.0.7:1 job  1.5s ago  nightly
old (0)    waits    you         -      exclusive  1m0s   -               n1/3            -         -
old (0)    waits    and 1 more
young (3)  held     token       -      stock      1s     500ms           n2/7            gone      -
young (3)  waits    poller      -      stock      10s    -               -               -         -
young (3)  waits    and 7 more
free (0)   delayed  -           -      -          -      2s
3 locks, 1 of them stock: 2 holders, 10 waiters, held longest: 1m30s
young (3): 8 clients poll for it, about 400 times a second: clients of native locks wait in a queue instead
`, got)
	long, err := lockQuery{pattern: "*", db: -1, heldFor: time.Minute}.look(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, "old", long.Locks[0].Key)
	require.Equal(t, int64(1), long.Sums.Locks)
	long, err = lockQuery{pattern: "*", db: -1, heldFor: 90 * time.Second}.look(t.Context(), conn)
	require.NoError(t, err)
	require.Len(t, long.Locks, 1, "90 s are long enough")
	none, err := lockQuery{pattern: "*", db: -1, heldFor: time.Hour}.frame(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, "no such lock is held for 1h0m0s; 1 lock in all\n", none)
	_, err = lockQuery{pattern: "other", db: -1}.look(t.Context(), conn)
	require.ErrorContains(t, err, "LOCK.LIST")
}

// TestLossTable: who lost what, and who broke it.
func TestLossTable(t *testing.T) {
	by := &api.Client{Node: "n2", Number: 7, Address: "10.0.0.9:1", Name: "ops"}
	require.Equal(t, `ENDED                 LOCK  WHY      OWNER               FENCE  HELD  CLIENT  NOTE     BY                         REASON
1970-01-01T00:00:05Z  k     broken   vm                  41     3s    n1/12   nightly  lock.break 10.0.0.9:1 ops  "it\nhangs"
1970-01-01T00:00:04Z  l     expired  me                  40     1s    -       -        -                          -
-                     -     -        and 2 more at once
1970-01-01T00:00:03Z  m     broken   me                  39     0s    -       -        del n1                     -
l: expired ×3, 3 in the last minute, held for 1s at most
`, lossTable([]api.Loss{
		{
			EndedUnixMillis: 5000, Key: "k", Reason: "broken", Owner: "vm", Fence: 41, HeldMillis: 3000, Note: "nightly",
			Client: &api.Client{Node: "n1", Number: 12}, Cause: &api.Cause{Command: "lock.break", Text: "it\nhangs", By: by},
		},
		{EndedUnixMillis: 4000, Key: "l", Reason: "expired", Owner: "me", Fence: 40, HeldMillis: 1000, More: 2},
		{EndedUnixMillis: 3000, Key: "m", Reason: "broken", Owner: "me", Fence: 39, Cause: &api.Cause{
			Command: "del",
			By:      &api.Client{Node: "n1"},
		}},
	}, 5000))
	often := []api.Loss{{Key: "k", Kind: "native", Reason: "expired", EndedUnixMillis: 1, More: 9}}
	require.Contains(t, lossTable(often, 2),
		"\nk: expired ×10, 10 in the last minute, held for 0s at most: lost 10 times in the last minute: the work outlasts "+
			"the lease, and no client renews it\n")
}

// TestInLine: the place of the owner, and what the lock waits for.
func TestInLine(t *testing.T) {
	l := &api.Lock{HoldersCount: 2, Holders: []api.Hold{{
		Owner: "vm", Fence: 3, HeldMillis: 11_520_000,
		Client: &api.Client{Node: "n1", Number: 4, Gone: true},
	}}}
	for i := range 23 {
		l.Waiters = append(l.Waiters, api.Wait{Owner: strings.Repeat("w", i+1)})
	}
	for place, want := range map[int]string{
		1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th",
		21: "21st", 23: "23rd",
	} {
		require.Equal(t, want+" in line, held 3h12m0s by vm (n1/4, which is gone), fence 3, and 1 more",
			inLine(l, strings.Repeat("w", place)))
	}
	require.Empty(t, inLine(l, "nobody"))
	require.Equal(t, "1st in line, nobody gets it for 2s after a loss",
		inLine(&api.Lock{Waiters: l.Waiters, DelayLeftMillis: 2000}, "w"))
}

// TestShellWord: what a command line shows can be given back to a shell.
func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"": "''", "a-B_1:2": "a-B_1:2", "it's": `'it'\''s'`, "a b": "'a b'",
		"$x": "'$x'", "a;b": "'a;b'", "*": "'*'",
	} {
		require.Equal(t, want, shellWord(word))
	}
}

// TestVersionDocument: one document with a format.
func TestVersionDocument(t *testing.T) {
	var stdout, stderr strings.Builder
	require.Zero(t, run(t.Context(), []string{"version", "--json"}, &stdout, &stderr), stderr.String())
	var doc versionDocument
	require.NoError(t, json.Unmarshal([]byte(stdout.String()), &doc))
	require.Equal(t, []any{api.Format, protocol.HoldfastVersion, protocol.EntryVersion}, []any{
		doc.Format, doc.Release,
		doc.LogFormat,
	})
	require.Equal(t, 2, run(t.Context(), []string{"version", "--json", "x"}, &stdout, &stderr))
}
