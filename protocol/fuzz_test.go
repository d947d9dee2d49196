package protocol

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/redcon"
)

func FuzzReader(f *testing.F) {
	for i, c := range readerCases {
		f.Add([]byte(c.input), uint16(i), uint16(i/2))
	}
	f.Add([]byte("*65536\r\n$8388608\r\n"), uint16(3), uint16(1))
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n"), uint16(9), uint16(4))
	f.Fuzz(func(t *testing.T, input []byte, a, b uint16) {
		limits := smallLimits()
		whole := parseInPieces(limits, input)
		first := int(a) % (len(input) + 1)
		second := first + int(b)%(len(input)-first+1)
		require.Equal(t, whole, parseInPieces(limits, input, first, second))

		r := NewReader(DefaultLimits())
		rest := bytes.Clone(input)
		for {
			words, n, err := r.Next(rest)
			require.LessOrEqual(t, 16*cap(r.spans)+24*cap(r.words), 40*len(input)+4096)
			if err != nil {
				return
			}
			requireRedconAgrees(t, rest[:n], words)
			rest = rest[n:]
		}
	})
}

// requireRedconAgrees compares a line's words with those that redcon reads, if it reads any. It must read what a client
// library would send.
func requireRedconAgrees(t *testing.T, line []byte, words [][]byte) {
	t.Helper()
	var canonical Value
	canonical.Kind = KindArray
	for _, w := range words {
		canonical.Elems = append(canonical.Elems, Bulk(string(w)))
	}
	theirs, ok := redconWords(bytes.Clone(line))
	if ok {
		require.Equal(t, words, theirs, "%q", line)
	}
	require.True(t, ok || !bytes.Equal(canonical.AppendTo(nil, RESP2), line), "%q", line)
}

// redconWords returns the words of a line that is one array. Redcon reads inline commands by other rules, and panics at
// some arrays.
func redconWords(line []byte) (words [][]byte, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	if len(line) == 0 || line[0] != '*' {
		return nil, false
	}
	complete, words, _, left, err := redcon.ReadNextCommand(line, nil)
	return words, err == nil && complete && len(words) > 0 && len(left) == 0
}

func FuzzReply(f *testing.F) {
	for _, v := range everyKind() {
		f.Add(v.AppendTo(nil, RESP2))
		f.Add(v.AppendTo(nil, RESP3))
	}
	for _, s := range badReplies {
		f.Add([]byte(s))
	}
	limits := ReplyLimits{MaxBytes: 1 << 20, MaxDepth: 32}
	f.Fuzz(func(t *testing.T, input []byte) {
		v, err := limits.Read(bufio.NewReader(bytes.NewReader(input)))
		slow, slowErr := limits.Read(bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(input)), 16))
		require.Equal(t, err, slowErr)
		if err != nil {
			return
		}
		wire := v.AppendTo(nil, RESP3)
		require.Equal(t, string(wire), string(slow.AppendTo(nil, RESP3)))
		again, err := ReadValue(bufio.NewReader(bytes.NewReader(wire)))
		require.NoError(t, err)
		require.Equal(t, string(wire), string(again.AppendTo(nil, RESP3)))
		older, err := ReadValue(bufio.NewReader(io.MultiReader(bytes.NewReader(v.AppendTo(nil, RESP2)),
			strings.NewReader("+end\r\n"))))
		require.NoError(t, err, "what RESP2 makes of %q", wire)
		require.Equal(t, v.AppendTo(nil, RESP2), older.AppendTo(nil, RESP2))
	})
}

func FuzzEntry(f *testing.F) {
	f.Add(string(someEntry()))
	f.Add(string([]byte{EntryVersion, 0, 0, 0}))
	f.Add(string([]byte{EntryVersion + 1}))
	f.Fuzz(func(t *testing.T, data string) {
		e, batches, err := decodeAll(data)
		if err != nil {
			return
		}
		w := NewEntry(nil, EntryVersion, e.StampMillis, e.WallOffsetMillis, e.Limits)
		for _, b := range batches {
			w.Add(b.Origin, b.Low, b.Seq, []byte(b.Body))
			requireRequestsRoundTrip(t, b.Body)
		}
		e2, batches2, err := decodeAll(string(w.Bytes()))
		require.NoError(t, err)
		require.Equal(t, e.StampMillis, e2.StampMillis)
		require.Equal(t, e.WallOffsetMillis, e2.WallOffsetMillis)
		require.Equal(t, e.Limits, e2.Limits)
		require.Equal(t, batches, batches2)
	})
}

// requireRequestsRoundTrip decodes what it can of a body, and what EXEC holds.
func requireRequestsRoundTrip(t *testing.T, body string) {
	t.Helper()
	var r Request
	for body != "" {
		rest, err := NextRequest(body, &r)
		if err != nil {
			require.ErrorIs(t, err, ErrCorruptEntry)
			return
		}
		var again Request
		var quota []byte
		if r.Quota.User != "" {
			quota = AppendQuota(nil, &r.Quota)
		}
		empty, err := NextRequest(string(appendRequest(quota, r.DB, r.Args...)), &again)
		require.NoError(t, err)
		require.Empty(t, empty)
		again.Conn = r.Conn
		require.Equal(t, r, again)
		for blob := r.Args[len(r.Args)-1]; blob != ""; {
			var w Watch
			if blob, err = NextWatch(blob, &w); err != nil {
				require.ErrorIs(t, err, ErrCorruptEntry)
				break
			}
		}
		body = rest
	}
}
