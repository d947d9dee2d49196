package importer

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server"
)

// scripted is a source that answers each command as its row says, or by what an old Redis with one string, "k", would.
// Within a transaction time goes on, as in Redis before 6.
type scripted map[string]func(words []protocol.Value) protocol.Value

func (s scripted) answer(words []protocol.Value) protocol.Value {
	name := strings.ToUpper(words[0].Str)
	if row := s[name]; row != nil {
		return row(words)
	}
	switch name {
	case "SCAN":
		return page(firstCursor, "k")
	case "TYPE":
		return protocol.Simple("string")
	case "STRLEN":
		return protocol.Integer(5)
	case "GET":
		return protocol.Bulk("value")
	case "PTTL":
		return protocol.Integer(noEnd)
	case "WATCH", "UNWATCH", "CLIENT":
		return protocol.Simple("OK")
	}
	return protocol.Err("unknown command")
}

// page is a page of a scan.
func page(cursor string, words ...string) protocol.Value {
	v := protocol.Array()
	for _, word := range words {
		v.Elems = append(v.Elems, protocol.Bulk(word))
	}
	return protocol.Array(protocol.Bulk(cursor), v)
}

func (s scripted) start(t *testing.T) (addr string) {
	t.Helper()
	return clienttest.Listen(t, s.serve)
}

func (s scripted) serve(conn net.Conn) {
	defer conn.Close()
	var queued *protocol.Value
	for r := bufio.NewReader(conn); ; {
		command, err := protocol.ReadValue(r)
		if err != nil {
			return
		}
		reply := protocol.Simple("OK")
		switch name := strings.ToUpper(command.Elems[0].Str); {
		case name == "MULTI":
			array := protocol.Array()
			queued = &array
		case name == "EXEC":
			reply, queued = *queued, nil
		case queued != nil:
			queued.Elems = append(queued.Elems, s.answer(command.Elems))
			reply = protocol.Simple("QUEUED")
		default:
			reply = s.answer(command.Elems)
		}
		if _, err := conn.Write(reply.AppendTo(nil, 2)); err != nil {
			return
		}
	}
}

func always(v protocol.Value) func([]protocol.Value) protocol.Value {
	return func([]protocol.Value) protocol.Value { return v }
}

// largeList has 600 elements.
func largeList(s scripted) scripted {
	s["TYPE"], s["LLEN"] = always(protocol.Simple("list")), always(protocol.Integer(600))
	s["LRANGE"] = func(words []protocol.Value) protocol.Value {
		from, _ := protocol.ParseInt(words[2].Str)
		to, _ := protocol.ParseInt(words[3].Str)
		return page("", make([]string, max(0, min(to, 599)-from+1))...).Elems[1]
	}
	return s
}

// TestKeyEndsWhileItIsRead: a key that ends between the read of its value and the read of its life, and a large one
// that ends while WATCH does not notice, are not copied as keys without an end.
func TestKeyEndsWhileItIsRead(t *testing.T) {
	t.Parallel()
	to := clienttest.StartNode(t)
	target := dial(t, &redis.Options{Addr: to})
	for _, source := range []scripted{{}, largeList(scripted{})} {
		source["PTTL"] = always(protocol.Integer(ended))
		r := run(t, jobOf(t, "redis://"+source.start(t), to))
		require.Equal(t, []any{Tally{}, int64(1)}, []any{r.Leases, r.Gone})
		require.Empty(t, state(t, target))
		source["PTTL"] = always(protocol.Integer(noEnd))
		require.Equal(t, Tally{Copied: 1}, run(t, jobOf(t, "redis://"+source.start(t), to)).Leases)
		require.NoError(t, target.FlushAll(t.Context()).Err())
	}
	counter := scripted{
		"SCAN": always(page(firstCursor, "fence:k")), "GET": always(protocol.Bulk("12345")),
		"PTTL": always(protocol.Integer(ended)),
	}
	j := jobOf(t, "redis://"+counter.start(t), to)
	j.Leases = nil
	r := run(t, j)
	require.Empty(t, r.Skipped)
	require.EqualValues(t, 1, r.Gone)
}

// TestLifeBeyondADuration: a key that ends in more than 292 years has the same life in the copy.
func TestLifeBeyondADuration(t *testing.T) {
	t.Parallel()
	to := clienttest.StartNode(t)
	target := dial(t, &redis.Options{Addr: to})
	for _, source := range []scripted{{}, largeList(scripted{})} {
		for _, left := range []int64{9_223_372_036_855, 18_446_744_077_709, 1e16} {
			source["PTTL"] = always(protocol.Integer(left))
			require.Equal(t, Tally{Copied: 1}, run(t, jobOf(t, "redis://"+source.start(t), to)).Leases)
			life, err := target.Do(t.Context(), "PTTL", "k").Int64()
			require.NoError(t, err)
			require.InDelta(t, left, life, 60_000)
			require.NoError(t, target.FlushAll(t.Context()).Err())
		}
	}
	source := scripted{"PTTL": always(protocol.Integer(math.MaxInt64))}
	r := run(t, jobOf(t, "redis://"+source.start(t), to))
	require.Len(t, r.Skipped, 1, "no life that the target can hold")
	require.Contains(t, r.Skipped[0].Reason, "invalid expire time")
}

// TestScanWithoutEnd: a source whose scans do not end fills neither the target nor anybody's time.
func TestScanWithoutEnd(t *testing.T) {
	t.Parallel()
	to := clienttest.StartNode(t)
	target := dial(t, &redis.Options{Addr: to})
	still := scripted{"SCAN": always(page("5", "k"))}
	_, err := jobOf(t, "redis://"+still.start(t), to).Run(t.Context())
	require.ErrorContains(t, err, "its cursor stands still")
	require.NoError(t, target.FlushAll(t.Context()).Err())

	pages := 0
	for moves, most := range map[bool]int{true: maxTries * 6, false: maxTries * 2} {
		pages = 0
		source := scripted{
			"TYPE": always(protocol.Simple("hash")), "HLEN": always(protocol.Integer(600)),
			"HSCAN": func([]protocol.Value) protocol.Value {
				pages++
				var words []string
				for i := range 500 {
					words = append(words, fmt.Sprint(pages, " ", i), "v")
				}
				if moves {
					return page(fmt.Sprint(pages), words...)
				}
				return page("7", words...)
			},
		}
		r := run(t, jobOf(t, "redis://"+source.start(t), to))
		require.Len(t, r.Skipped, 1)
		require.Equal(t, errChanged.Error(), r.Skipped[0].Reason)
		require.LessOrEqual(t, pages, most)
		require.Empty(t, state(t, target), "nothing is left behind")
	}
}

// TestImportByAUserOfSomeKeys: large keys of the user's pattern are copied; a key that is not the user's is skipped,
// and those behind it are copied.
func TestImportByAUserOfSomeKeys(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(users,
		[]byte("user default on nopass ~* &* +@all\nuser orders on >orders ~orders:* &* +@all -@admin\n"), 0o600))
	from, to := clienttest.StartNode(t), clienttest.StartNode(t, func(c *server.Config) { c.ACLFile = users })
	source := dial(t, &redis.Options{Addr: from})
	for _, key := range []string{"orders:large", "billing:large"} {
		var members []any
		for i := range 3 * partElements {
			members = append(members, i)
		}
		require.NoError(t, source.SAdd(t.Context(), key, members...).Err())
	}
	for i := range 300 {
		require.NoError(t, source.Set(t.Context(), fmt.Sprint("billing:", i), "b", 0).Err())
		require.NoError(t, source.Set(t.Context(), fmt.Sprint("orders:", i), "o", 0).Err())
	}
	j := jobOf(t, "redis://"+from, to)
	j.To.User, j.To.Password = "orders", "orders"
	r := run(t, j)
	require.Equal(t, Tally{Copied: 301}, r.Leases)
	total := int64(0)
	for _, s := range r.Skipped {
		require.Contains(t, s.Reason, "NOPERM")
		total += s.Count
	}
	require.EqualValues(t, 301, total)
}
