package protocol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// encodings is how every kind of value looks on the wire; compared with
// redis-server in wire_redis_test.go.
var encodings = []struct {
	value        Value
	resp2, resp3 string
}{
	{Value{}, "$-1\r\n", "_\r\n"},
	{Null, "$-1\r\n", "_\r\n"},
	{NullArray, "*-1\r\n", "_\r\n"},
	{None, "", ""},
	{OK, "+OK\r\n", "+OK\r\n"},
	{Simple(""), "+\r\n", "+\r\n"},
	{Err("syntax error"), "-ERR syntax error\r\n", "-ERR syntax error\r\n"},
	{
		ErrWrongType.Value(), "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
		"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
	},
	{Err("a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"},
	{ErrValue(""), "-\r\n", "-\r\n"},
	{Integer(0), ":0\r\n", ":0\r\n"},
	{Integer(math.MinInt64), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"},
	{Integer(10), ":10\r\n", ":10\r\n"},
	{Integer(-1), ":-1\r\n", ":-1\r\n"},
	{Bulk(""), "$0\r\n\r\n", "$0\r\n\r\n"},
	{Bulk("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"},
	{Bool(true), ":1\r\n", "#t\r\n"},
	{Bool(false), ":0\r\n", "#f\r\n"},
	{Bulk("0123456789"), "$10\r\n0123456789\r\n", "$10\r\n0123456789\r\n"},
	{Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"},
	{Double(0.1), "$3\r\n0.1\r\n", ",0.1\r\n"},
	{Double(math.Inf(1)), "$3\r\ninf\r\n", ",inf\r\n"},
	{Double(math.Inf(-1)), "$4\r\n-inf\r\n", ",-inf\r\n"},
	{BigNumber("-123456789012345678901"), "$22\r\n-123456789012345678901\r\n", "(-123456789012345678901\r\n"},
	{Verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"},
	{Array(), "*0\r\n", "*0\r\n"},
	{Array(Integer(1), Null, Array(Bool(true))), "*3\r\n:1\r\n$-1\r\n*1\r\n:1\r\n", "*3\r\n:1\r\n_\r\n*1\r\n#t\r\n"},
	{Strings("a", "b"), "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
	{
		Map(Bulk("a"), Integer(1), Bulk("b"), Null), "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$-1\r\n",
		"%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n_\r\n",
	},
	{Map(), "*0\r\n", "%0\r\n"},
	{Set(Bulk("a")), "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n"},
	{Pairs(), "*0\r\n", "*0\r\n"},
	{
		Pairs(Bulk("a"), Integer(1), Bulk("b"), Null), "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n$-1\r\n",
		"*2\r\n*2\r\n$1\r\na\r\n:1\r\n*2\r\n$1\r\nb\r\n_\r\n",
	},
	{Push(Bulk("message"), Bulk("c")), "*2\r\n$7\r\nmessage\r\n$1\r\nc\r\n", ">2\r\n$7\r\nmessage\r\n$1\r\nc\r\n"},
}

// everyKind are values of all kinds but None, which is no reply.
func everyKind() []Value {
	var all []Value
	for _, e := range encodings {
		if e.value.Kind != KindNone {
			all = append(all, e.value)
		}
	}
	return append(all, Array(all...))
}

func TestValueOnTheWire(t *testing.T) {
	t.Parallel()
	seen := make(map[Kind]bool)
	for _, e := range encodings {
		require.Equal(t, "before"+e.resp2, string(e.value.AppendTo([]byte("before"), RESP2)))
		require.Equal(t, e.resp3, string(e.value.AppendTo(nil, RESP3)))
		seen[e.value.Kind] = true
	}
	require.Len(t, seen, int(KindPairs)+1, "every kind is in the table")
}

// TestSizeWithinIsAnUpperBound: no encoding is larger than the size, and none is much smaller.
func TestSizeWithinIsAnUpperBound(t *testing.T) {
	t.Parallel()
	values := everyKind()
	values = append(values, None, Double(-math.SmallestNonzeroFloat64), Double(-2.2250738585072014e-308),
		Integer(math.MaxInt64), Integer(-10), Integer(9),
		Bulk(strings.Repeat("x", 99)), Bulk(strings.Repeat("x", 1000)), Verbatim(strings.Repeat("x", 127)),
		Array(make([]Value, 130)...))
	for _, v := range values {
		size, ok := v.SizeWithin(math.MaxInt)
		require.True(t, ok)
		largest := max(len(v.AppendTo(nil, RESP2)), len(v.AppendTo(nil, RESP3)), len(AppendValue(nil, v)))
		require.GreaterOrEqual(t, size, largest, "%+v", v)
		require.LessOrEqual(t, size, 2*largest+maxDouble, "%+v", v)

		again, ok := v.SizeWithin(size)
		require.True(t, ok, "%+v", v)
		require.Equal(t, size, again)
		_, ok = v.SizeWithin(size - 1)
		require.False(t, ok, "%+v", v)

		twice, ok := SizesWithin([]Value{v, v}, 2*size)
		require.True(t, ok)
		require.Equal(t, 2*size, twice)
		_, ok = SizesWithin([]Value{v, v}, 2*size-1)
		require.False(t, ok)
	}
	size, ok := SizesWithin(nil, 0)
	require.True(t, ok)
	require.Zero(t, size)
}

// TestSizeWithinGivesUpEarly: 10^30 elements in a few kilobytes; looking at all of them would never end.
func TestSizeWithinGivesUpEarly(t *testing.T) {
	t.Parallel()
	v := Bulk(strings.Repeat("x", 1000))
	for range 10 {
		elems := make([]Value, 1000)
		for i := range elems {
			elems[i] = v
		}
		v = Array(elems...)
	}
	_, ok := v.SizeWithin(1 << 20)
	require.False(t, ok)
	empty := Array()
	for range 10 {
		elems := make([]Value, 1000)
		for i := range elems {
			elems[i] = empty
		}
		empty = Array(elems...)
	}
	_, ok = empty.SizeWithin(1 << 20)
	require.False(t, ok, "elements without text count too")
}

// TestMemoryWithin: small elements take many times the memory of their size. Counting stops, too.
func TestMemoryWithin(t *testing.T) {
	t.Parallel()
	nulls := Array(make([]Value, 1000)...)
	require.Equal(t, 1001*valueBytes, MemoryWithin([]Value{nulls}, math.MaxInt))
	require.Equal(t, 2*valueBytes+3, MemoryWithin([]Value{Bulk("abc"), Null}, math.MaxInt))
	nested := Array(Bulk("ab"), Array(Bulk("c")))
	require.Equal(t, 4*valueBytes+3, MemoryWithin([]Value{nested}, math.MaxInt))
	for range 10 {
		elems := make([]Value, 1000)
		for i := range elems {
			elems[i] = nulls
		}
		nulls = Array(elems...)
	}
	require.InDelta(t, 1<<20, MemoryWithin([]Value{nulls}, 1<<20), 1000)
}

func TestValueQuestions(t *testing.T) {
	t.Parallel()
	require.True(t, Err("x").IsError())
	require.False(t, OK.IsError())
	require.True(t, Null.IsNull())
	require.True(t, NullArray.IsNull())
	require.False(t, Bulk("").IsNull())
	require.Equal(t, 1.5, Double(1.5).Float())
	require.Equal(t, "ERR x", NewError("x").Error())
}

func TestReadValueReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	for _, v := range everyKind() {
		wire := string(v.AppendTo(nil, RESP3))
		got, err := ReadValue(bufio.NewReaderSize(strings.NewReader(wire), 16))
		require.NoError(t, err)
		require.Equal(t, wire, string(got.AppendTo(nil, RESP3)))
		if !strings.Contains(wire, "_") && v.Kind != KindPairs { // the two nulls are one in RESP3, and pairs are arrays
			require.Equal(t, v.Kind, got.Kind)
		}
		old, err := ReadValue(bufio.NewReader(strings.NewReader(string(v.AppendTo(nil, RESP2)))))
		require.NoError(t, err)
		require.Equal(t, string(v.AppendTo(nil, RESP2)), string(old.AppendTo(nil, RESP2)))
		for n := range wire {
			_, err := ReadValue(bufio.NewReader(strings.NewReader(wire[:n])))
			if n == 0 {
				require.Equal(t, io.EOF, err)
			} else {
				require.Equal(t, io.ErrUnexpectedEOF, err, "%q cut at %d", wire, n)
			}
		}
	}
}

func TestReadValueReadsWhatOnlyOthersWrite(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	for wire, want := range map[string]Value{
		"!8\r\nERR a\r\nb\r\n":                      ErrValue("ERR a  b"),
		"|1\r\n+ttl\r\n:3600\r\n$1\r\nv\r\n":        Bulk("v"),
		"*2\r\n|1\r\n+a\r\n:1\r\n:1\r\n:2\r\n":      Array(Integer(1), Integer(2)),
		"=6\r\nmkd:hi\r\n":                          Verbatim("hi"),
		",-nan\r\n":                                 Double(math.NaN()),
		",1e3\r\n":                                  Double(1000),
		"-ERR " + long + "\r\n":                     Err(long),
		fmt.Sprintf("$%d\r\n%s\r\n", 200_000, long): Bulk(long),
	} {
		got, err := ReadValue(bufio.NewReader(strings.NewReader(wire)))
		require.NoError(t, err, "%.40q", wire)
		require.Equal(t, want.AppendTo(nil, RESP3), got.AppendTo(nil, RESP3))
	}
}

// badReplies are refused, each for one reason.
var badReplies = []string{
	"\r\n", "x\r\n", "+OK\n", "+O\nK\r\n", ":\r\n", ":1x\r\n", ":01\r\n", "$\r\n", "$-2\r\n", "$x\r\n", "$1\r\nabc\r\n",
	"$?\r\n",
	"*-2\r\n", "*x\r\n", "*?\r\n", "%-1\r\n", "~-1\r\n", "#x\r\n", "#\r\n", "_x\r\n", ",x\r\n", ",\r\n", "(\r\n",
	"(-\r\n", "(1x\r\n",
	"=3\r\ntxt\r\n", "=5\r\ntxt-a\r\n", "!-1\r\n", "*1\r\nx\r\n", "|1\r\n+a\r\nx\r\n",
}

func TestReadValueRefusesWhatIsNoReply(t *testing.T) {
	t.Parallel()
	for _, wire := range badReplies {
		_, err := ReadValue(bufio.NewReader(strings.NewReader(wire)))
		require.ErrorIs(t, err, ErrCorruptReply, "%q", wire)
	}
}

// endless repeats a text forever.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func TestReadValueIsBounded(t *testing.T) {
	t.Parallel()
	limits := ReplyLimits{MaxBytes: 1 << 20, MaxDepth: 10}
	for _, r := range []io.Reader{
		&endless{text: "+xxxxxxxxxxxxxxx"},
		&endless{text: "*1\r\n"},
		&endless{text: "*2000000\r\n"},
		&endless{text: "|0\r\n"},
		io.MultiReader(strings.NewReader("*999999999\r\n"), &endless{text: "_\r\n"}),
		strings.NewReader("$1048577\r\n"),
		strings.NewReader("*9999999999\r\n"),
	} {
		_, err := limits.Read(bufio.NewReader(r))
		require.ErrorIs(t, err, ErrReplyTooBig)
	}
	_, err := limits.Read(bufio.NewReader(strings.NewReader(strings.Repeat("*1\r\n", 10) + ":1\r\n")))
	require.NoError(t, err)
	_, err = limits.Read(bufio.NewReader(strings.NewReader(strings.Repeat("*1\r\n", 11) + ":1\r\n")))
	require.ErrorIs(t, err, ErrReplyTooBig)
}

func TestReadValuePassesErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	_, err := ReadValue(bufio.NewReader(io.MultiReader(strings.NewReader("*1\r\n"), failing{broken})))
	require.Equal(t, broken, err)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func BenchmarkValueAppendTo(b *testing.B) {
	for _, c := range []struct {
		name string
		v    Value
	}{
		{"ok", OK},
		{"null", Null},
		{"integer", Integer(1)},
		{"integer-long", Integer(1790000000000)},
		{"bulk", Bulk("0123456789abcdef")},
		{"error", ErrNoScript.Value()},
		{"array", Strings("a", "b", "c", "d")},
	} {
		for _, resp := range []int{RESP2, RESP3} {
			b.Run(fmt.Sprintf("%s/RESP%d", c.name, resp), func(b *testing.B) {
				var buf []byte
				b.ReportAllocs()
				for b.Loop() {
					buf = c.v.AppendTo(buf[:0], resp)
				}
			})
		}
	}
}

func BenchmarkReadValue(b *testing.B) {
	r := bufio.NewReader(&endless{text: "+OK\r\n:1\r\n$16\r\n0123456789abcdef\r\n"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadValue(r); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNoReplyIsForged: a line end inside a line would begin another reply.
func TestNoReplyIsForged(t *testing.T) {
	t.Parallel()
	for _, v := range []Value{Simple("a\r\nb"), Err("a\nb\r"), BigNumber("1\r\n2")} {
		for _, resp := range []int{RESP2, RESP3} {
			line := string(v.AppendTo(nil, resp))
			if v.Kind == KindBigNumber && resp == RESP2 {
				continue // a bulk string there
			}
			require.Equal(t, 1, strings.Count(line, "\n"), "%q", line)
			require.Equal(t, 1, strings.Count(line, "\r"), "%q", line)
		}
	}
}

// TestPiecesAreTheWhole: in pieces of any size a reply is the same, and no piece is much larger than was asked for.
func TestPiecesAreTheWhole(t *testing.T) {
	long := strings.Repeat("text\r\n", 30)
	values := append(everyKind(), Simple(long), ErrValue(long), Bulk(long), BigNumber(long), Verbatim(long),
		Array(Bulk(long), Map(Bulk("k"), Array(Bulk(long), Bulk(long)))), None)
	for _, resp := range []int{RESP2, RESP3} {
		for _, v := range values {
			for _, size := range []int{1, 2, 7, 64, 180, 181, 4096} {
				var all []byte
				most := 0
				rest := v.AppendPieces(make([]byte, 0, size), resp, size, func(piece []byte) []byte {
					most = max(most, len(piece))
					all = append(all, piece...)
					return piece[:0]
				})
				name := fmt.Sprintf("%.40v in pieces of %d, RESP%d", v, size, resp)
				require.Equal(t, string(v.AppendTo(nil, resp)), string(append(all, rest...)), name)
				require.LessOrEqual(t, max(most, len(rest)), size+maxDouble, name)
			}
		}
	}
}

func TestValueCodecRoundTrips(t *testing.T) {
	values := []Value{
		Null, NullArray, None, OK, Err("syntax error"), Integer(-7), Bulk(""), Bulk("a\r\nb"),
		Double(1.5), Bool(true), Bool(false), BigNumber("123456789012345678901234567890"), Verbatim("text"),
		Array(), Array(Integer(1), Array(Bulk("x"), Null)), Map(Bulk("k"), Integer(2)), Set(Bulk("m")), Pairs(Bulk("m"),
			Double(1)), Push(Bulk("p")),
	}
	var buf []byte
	for _, v := range values {
		buf = AppendValue(buf, v)
	}
	rest := string(buf)
	for _, want := range values {
		var got Value
		var err error
		got, rest, err = DecodeValue(rest)
		require.NoError(t, err)
		require.Equal(t, string(want.AppendTo(nil, RESP3)), string(got.AppendTo(nil, RESP3)))
		require.Equal(t, want.Kind, got.Kind)
	}
	require.Empty(t, rest)
}

// TestValueEncoderMakesTheSameInParts: however small the parts are.
func TestValueEncoderMakesTheSameInParts(t *testing.T) {
	t.Parallel()
	values := append(everyKind(), None, Bulk(strings.Repeat("x", 1000)), Array(Array(), Array(Bulk("y"), Array())))
	var whole []byte
	for _, v := range values {
		whole = AppendValue(whole, v)
	}
	for limit := 1; limit < len(whole)+2; limit++ {
		var got []byte
		e := NewValueEncoder(values)
		for done := false; !done; {
			before := len(got)
			got, done = e.Append(got, limit)
			require.LessOrEqual(t, len(got)-before, limit+20)
			require.True(t, done || len(got)-before >= limit)
		}
		require.Equal(t, string(whole), string(got))
	}
	empty, done := NewValueEncoder(nil).Append(nil, 1)
	require.True(t, done)
	require.Empty(t, empty)
}

func TestDecodeValueRefusesNonsense(t *testing.T) {
	for _, s := range []string{
		"", "\xff", string(AppendValue(nil, Bulk("abc")))[:3],
		string([]byte{byte(KindArray), 0xff, 0xff, 0xff, 0xff, 0x0f}),
		strings.Repeat(string([]byte{byte(KindArray), 1}), 1<<20),
		nested(maxValueDepth),
	} {
		_, _, err := DecodeValue(s)
		require.ErrorIs(t, err, ErrCorruptValue)
	}
}

// nested is a whole value with so many arrays, each in the one before.
func nested(arrays int) string {
	return strings.Repeat(string([]byte{byte(KindArray), 1}), arrays) + string([]byte{byte(KindNull)})
}

func TestDecodeValueOfTheDeepest(t *testing.T) {
	_, rest, err := DecodeValue(nested(maxValueDepth - 1))
	require.NoError(t, err)
	require.Empty(t, rest)
}

func FuzzDecodeValue(f *testing.F) {
	f.Add(string(AppendValue(nil, Array(Integer(1), Bulk("x"), Null))))
	f.Fuzz(func(t *testing.T, s string) {
		v, rest, err := DecodeValue(s)
		if err != nil {
			return
		}
		again, empty, err := DecodeValue(string(AppendValue(nil, v)))
		require.NoError(t, err)
		require.Empty(t, empty)
		require.LessOrEqual(t, len(rest), len(s))
		require.Equal(t, string(v.AppendTo(nil, RESP3)), string(again.AppendTo(nil, RESP3)))
	})
}

// TestDecodeValueMakesNoRoomForWhatIsNotThere: an array gets room as elements come, whatever length
// the array announces.
func TestDecodeValueMakesNoRoomForWhatIsNotThere(t *testing.T) {
	const announced = 1 << 20
	s := string(binary.AppendUvarint([]byte{byte(KindArray)}, announced)) + strings.Repeat("\xff", announced)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := DecodeValue(s)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrCorruptValue)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(announced))
}
