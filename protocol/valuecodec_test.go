package protocol

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
