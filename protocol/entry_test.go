package protocol

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decodeAll decodes an entry with all its batches.
func decodeAll(data string) (Entry, []Batch, error) {
	e, err := DecodeEntry(data)
	if err != nil {
		return e, nil, err
	}
	var batches []Batch
	for {
		var b Batch
		more, err := e.Next(&b)
		if err != nil || !more {
			return e, batches, err
		}
		batches = append(batches, b)
	}
}

// decodeBody decodes all requests of a body.
func decodeBody(t *testing.T, body string) []Request {
	t.Helper()
	var requests []Request
	for body != "" {
		var r Request
		var err error
		body, err = NextRequest(body, &r)
		require.NoError(t, err)
		requests = append(requests, r)
	}
	return requests
}

func someBody() []byte {
	body := AppendRequest(nil, Head{DB: 3}, "set", [][]byte{[]byte("k"), []byte("v\r\n\x00"), nil})
	body = appendRequest(body, 15, "script|load", "return 1")
	queued := appendRequest(nil, 0, "get", "k")
	body = AppendQuota(body, &Quota{User: "alice", Keys: 1})
	return AppendTransaction(body, 1, []Watch{{DB: 2, Key: "a", Mark: 7}, {Key: "", Mark: math.MaxUint64}}, queued)
}

func someEntry() []byte {
	w := NewEntry(nil, EntryVersion, 1<<40, -5, EntryLimits{})
	w.Add(Incarnation{Node: "n1", Epoch: 1}, 0, 1, someBody())
	w.Add(Incarnation{Node: "", Epoch: math.MaxUint64}, math.MaxUint64, math.MaxUint64, nil)
	return w.Bytes()
}

func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	for _, millis := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		limits := EntryLimits{
			MemoryBytes: uint64(millis) & maxMemoryBytes, DiskFull: millis < 0, ScriptSteps: uint64(-millis),
		}
		w := NewEntry([]byte("leftovers"), EntryVersion, millis, -millis, limits)
		require.Equal(t, len(w.Bytes()), w.Len())
		e, batches, err := decodeAll(string(w.Bytes()))
		require.NoError(t, err)
		require.Empty(t, batches)
		require.Equal(t, millis, e.StampMillis)
		require.Equal(t, -millis, e.WallOffsetMillis)
		require.Equal(t, limits, e.Limits)
	}
	_, batches, err := decodeAll(string(someEntry()))
	require.NoError(t, err)
	require.Equal(t, []Batch{
		{Origin: Incarnation{Node: "n1", Epoch: 1}, Seq: 1, Body: string(someBody())},
		{Origin: Incarnation{Epoch: math.MaxUint64}, Low: math.MaxUint64, Seq: math.MaxUint64},
	}, batches)
}

func TestRequestsAndTransactionsRoundTrip(t *testing.T) {
	t.Parallel()
	requests := decodeBody(t, string(someBody()))
	require.Len(t, requests, 3)
	require.Equal(t, Request{DB: 3, Args: []string{"set", "k", "v\r\n\x00", ""}}, requests[0])
	require.Equal(t, Request{DB: 15, Args: []string{"script|load", "return 1"}}, requests[1])
	exec := requests[2]
	require.Equal(t, 1, exec.DB)
	require.Equal(t, "exec", exec.Args[0])
	require.Len(t, exec.Args, 3)

	var watches []Watch
	for blob := exec.Args[1]; blob != ""; {
		var w Watch
		var err error
		blob, err = NextWatch(blob, &w)
		require.NoError(t, err)
		watches = append(watches, w)
	}
	require.Equal(t, []Watch{{DB: 2, Key: "a", Mark: 7}, {Key: "", Mark: math.MaxUint64}}, watches)
	require.Equal(t, []Request{{Args: []string{"get", "k"}}}, decodeBody(t, exec.Args[2]))

	empty := decodeBody(t, string(AppendTransaction(nil, 0, nil, nil)))
	require.Equal(t, []Request{{Args: []string{"exec", "", ""}}}, empty)
}

// TestRequestsWithRights: what stands before the words of a request comes back, and does not change from release to
// release. Who looks for one thing in a body steps over it.
func TestRequestsWithRights(t *testing.T) {
	t.Parallel()
	args := [][]byte{[]byte("return 1"), []byte("0")}
	for want, request := range map[string]Request{
		"\x03\x03\x04eval\x08return 1\x010":                    {DB: 3},
		"\x13\x07\x03\x04eval\x08return 1\x010":                {DB: 3, Conn: 7},
		"\x23\x02me\x07~a +get\x03\x04eval\x08return 1\x010":   {DB: 3, User: "me", Rights: "~a +get"},
		"\x33\x07\x02me\x00\x03\x04eval\x08return 1\x010":      {DB: 3, Conn: 7, User: "me"},
		"\x3f\x07\x00\x07~a +get\x03\x04eval\x08return 1\x010": {DB: 15, Conn: 7, Rights: "~a +get"},
	} {
		body := AppendRequest(nil, Head{
			DB: request.DB, Conn: int64(request.Conn), User: request.User, Rights: request.Rights,
		}, "eval", args)
		require.Equal(t, want, string(body))
		request.Args = []string{"eval", "return 1", "0"}
		require.Equal(t, []Request{request, {Args: []string{"ping"}}}, decodeBody(t, string(appendRequest(body, 0, "ping"))))
		require.Equal(t, len(body), BodyLen(appendRequest(body, 0, "ping"), 1))
		for n := range body {
			_, err := NextRequest(string(body[:n]), new(Request))
			require.ErrorIs(t, err, ErrCorruptEntry)
		}
	}
	_, err := NextRequest("\x40\x01\x04ping", new(Request))
	require.ErrorIs(t, err, ErrCorruptEntry)
}

// TestJudged: the reply to a script with rights comes back, and anything else is no such reply.
func TestJudged(t *testing.T) {
	t.Parallel()
	refusals := []Refusal{{"key", "a"}, {"command", "get"}}
	for _, reply := range []Value{
		OK, Null, Array(), Array(Integer(1), Integer(2), Integer(3)), Err("x"),
		Map(Bulk("a"), Bulk("b")),
	} {
		for _, want := range [][]Refusal{nil, refusals[:1], refusals} {
			got, refused := Unwrap(Judged(reply, want))
			require.Equal(t, reply, got)
			require.Equal(t, want, refused)
		}
	}
	for _, other := range []Value{Err("x"), Null, Array()} {
		got, refused := Unwrap(other)
		require.Equal(t, other, got)
		require.Empty(t, refused)
	}
}

func TestRequestReusesItsSlots(t *testing.T) {
	body := string(someBody())
	var r Request
	_, err := NextRequest(body, &r)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if _, err := NextRequest(body, &r); err != nil {
			t.Fatal(err)
		}
	}))
}

// A cut entry is corrupt, unless the cut is where a batch ends.
func TestCutEntriesAreCorrupt(t *testing.T) {
	t.Parallel()
	data := string(someEntry())
	w := NewEntry(nil, EntryVersion, 1<<40, -5, EntryLimits{})
	whole := map[int]bool{w.Len(): true}
	w.Add(Incarnation{Node: "n1", Epoch: 1}, 0, 1, someBody())
	whole[w.Len()] = true
	for n := range data {
		_, _, err := decodeAll(data[:n])
		if whole[n] {
			require.NoError(t, err, "cut at %d", n)
		} else {
			require.ErrorIs(t, err, ErrCorruptEntry, "cut at %d", n)
		}
	}
}

func TestCorruptEntriesAreRefused(t *testing.T) {
	t.Parallel()
	varint11 := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
	overflow := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"
	for _, data := range []string{
		"", "\x00\x00\x00", "\x01", "\x01\x00", "\x01" + varint11 + "\x00", "\x01" + overflow + "\x00", "\x01\x00\x00\x05n1",
		"\x01\x00\x00" + varint11,
		"\x01\x00\x00", "\x01\x00\x00\x00\x05n1",
	} {
		_, _, err := decodeAll(data)
		require.ErrorIs(t, err, ErrCorruptEntry, "%q", data)
	}
	_, err := DecodeEntry(string([]byte{EntryVersion + 1, 0, 0, 0}))
	require.NotErrorIs(t, err, ErrCorruptEntry)
	require.ErrorContains(t, err, fmt.Sprintf("version %d, this node knows %d", EntryVersion+1, EntryVersion))
	require.ErrorContains(t, err, "newer release")

	var r Request
	for _, body := range []string{"", "\x00", "\x00\x00", "\x10\x01\x00", "\x00\x02\x00", "\x00\x01\x05abc", "\x00" +
		varint11, "\x00\xff\xff\xff\xff\x0f\x00"} {
		_, err := NextRequest(body, &r)
		require.ErrorIs(t, err, ErrCorruptEntry, "%q", body)
	}
	var watch Watch
	for _, blob := range []string{"", "\x10\x00\x00", "\x00", "\x00\x02a", "\x00\x01a", "\x00\x01a\xff"} {
		_, err := NextWatch(blob, &watch)
		require.ErrorIs(t, err, ErrCorruptEntry, "%q", blob)
	}
}

// appendRequest is [AppendRequest] for words that are strings.
func appendRequest(body []byte, db int, words ...string) []byte {
	args := make([][]byte, len(words)-1)
	for i, word := range words[1:] {
		args[i] = []byte(word)
	}
	return AppendRequest(body, Head{DB: db}, words[0], args)
}

func BenchmarkEntryEncode(b *testing.B) {
	args := [][]byte{[]byte("lock:1234567"), []byte("0123456789abcdef"), []byte("NX"), []byte("PX"), []byte("30000")}
	var body, entry []byte
	b.ReportAllocs()
	for b.Loop() {
		w := NewEntry(entry, EntryVersion, 1<<40, 1<<40, EntryLimits{})
		for i := range 100 {
			body = AppendRequest(body[:0], Head{}, "set", args)
			w.Add(Incarnation{Node: "node-1", Epoch: 7}, 1000, 1000+uint64(i), body)
		}
		entry = w.Bytes()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/command")
}

func BenchmarkEntryDecode(b *testing.B) {
	w := NewEntry(nil, EntryVersion, 1<<40, 1<<40, EntryLimits{})
	for i := range 100 {
		body := appendRequest(nil, 0, "set", fmt.Sprintf("lock:%d", 1000000+i), "0123456789abcdef", "NX", "PX", "30000")
		w.Add(Incarnation{Node: "node-1", Epoch: 7}, 1000, 1000+uint64(i), body)
	}
	data := string(w.Bytes())
	var batch Batch
	var r Request
	b.ReportAllocs()
	for b.Loop() {
		e, err := DecodeEntry(data)
		if err != nil {
			b.Fatal(err)
		}
		for {
			more, err := e.Next(&batch)
			if err != nil {
				b.Fatal(err)
			}
			if !more {
				break
			}
			for body := batch.Body; body != ""; {
				if body, err = NextRequest(body, &r); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/command")
}

// TestQuota: a request has the quota in front, and whoever looks for its words finds them behind it.
func TestQuota(t *testing.T) {
	quota := Quota{User: "alice", Keys: 5, Bytes: 1 << 40, Waiters: 7}
	with := func(request []byte) []byte { return append(AppendQuota(nil, &quota), request...) }
	set := appendRequest(nil, 3, "set", "k", "v", "nx")
	from := AppendRequest(nil, Head{DB: 15, Conn: 9}, "get", [][]byte{[]byte("k")})
	block := AppendRequest(nil, Head{Ticket: 4}, "blpop", [][]byte{[]byte("k"), []byte("0")})
	body := slices.Concat(with(set), set, with(from), with(block))
	requests := decodeBody(t, string(body))
	require.Equal(t, []Quota{quota, {}, quota, quota}, []Quota{
		requests[0].Quota, requests[1].Quota, requests[2].Quota,
		requests[3].Quota,
	})
	require.Equal(t, Request{DB: 15, Conn: 9, Quota: quota, Args: []string{"get", "k"}}, requests[2])
	require.Equal(t, len(with(set)), BodyLen(body, 1))
	require.Equal(t, len(with(set))+len(set), BodyLen(body, 2))
	var r Request
	for _, corrupt := range [][]byte{
		AppendQuota(nil, &Quota{}), with(with(set)), with(nil),
		append(AppendQuota(nil, &Quota{User: strings.Repeat("u", MaxUser+1)}), set...),
		AppendRequest(nil, Head{User: strings.Repeat("u", MaxUser+1)}, "get", nil),
		append([]byte{ofUser - 1}, set...), append(AppendQuota(nil, &Quota{}), set...),
	} {
		_, err := NextRequest(string(corrupt), &r)
		require.ErrorIs(t, err, ErrCorruptEntry, "%q", corrupt)
	}
	for n := range len(with(set)) {
		_, err := NextRequest(string(with(set)[:n]), &r)
		require.ErrorIs(t, err, ErrCorruptEntry)
		require.LessOrEqual(t, BodyLen(with(set)[:n], 1), n)
	}
}

func TestBodyLen(t *testing.T) {
	var body []byte
	ends := []int{0}
	for _, line := range []string{"set k v", "get k", "mget " + strings.Repeat("k ", 200), "set k " +
		strings.Repeat("x", 300), "ping"} {
		body = appendRequest(body, len(ends), strings.Fields(line)...)
		ends = append(ends, len(body))
	}
	for n, end := range ends {
		require.Equal(t, end, BodyLen(body, n))
		require.Equal(t, end-ends[min(1, n)], BodyLen(body[ends[1]:], n-1), "from the second on")
	}
	require.Equal(t, len(body), BodyLen(body, 100))
	for cut := range body { // what is no body is taken for one piece
		require.LessOrEqual(t, BodyLen(body[:cut], 3), cut)
	}
	require.Equal(t, 3, BodyLen([]byte{0, 255, 255}, 1))
}
