package record

import (
	"bytes"
	"encoding/hex"
	"hash/crc32"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

var samples = []raft.Log{
	{},
	{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("config")},
	{
		Index: 1 << 63, Term: 1<<64 - 1, Data: make([]byte, 4096), Extensions: []byte{0},
		AppendedAt: time.Unix(0, 1234567890123456789),
	},
	{Index: 7, Type: raft.LogNoop, AppendedAt: time.Unix(-5, 1)},
	{Index: 8, Term: 3, Data: bytes.Repeat([]byte{0xff}, 1001)},
}

func TestRecordsComeBack(t *testing.T) {
	var all []byte
	var ends []int
	for _, l := range samples {
		all = Append(all, &l)
		require.Zero(t, len(all)%Alignment)
		ends = append(ends, len(all))
	}
	start := 0
	for i, l := range samples {
		size, err := Check(all[start:])
		require.NoError(t, err)
		require.Equal(t, ends[i]-start, size)
		require.LessOrEqual(t, size, Bound(&l))
		var got raft.Log
		require.NoError(t, Decode(bytes.Clone(all[start:ends[i]]), &got))
		require.Equal(t, l, got)
		start = ends[i]
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	for _, l := range samples {
		b := Append(nil, &l)
		for bit := range 8 * len(b) {
			damaged := bytes.Clone(b)
			damaged[bit/8] ^= 1 << (bit % 8)
			require.ErrorIs(t, Decode(damaged, &raft.Log{}), ErrDamaged, "bit %d", bit)
		}
		for n := range len(b) {
			require.ErrorIs(t, Decode(bytes.Clone(b[:n]), &raft.Log{}), ErrDamaged, "cut at %d", n)
		}
	}
}

func TestNoSectorOfARecordIsZero(t *testing.T) {
	b := Append(nil, &raft.Log{Index: 1, Data: make([]byte, 1<<20)})
	for ; len(b) > 0; b = b[8:] {
		require.NotEqual(t, make([]byte, 8), b[:8])
	}
}

// TestFormatIsFixed: a change here makes data folders unreadable. It needs a new format.
func TestFormatIsFixed(t *testing.T) {
	b := Append(nil, &raft.Log{
		Index: 300, Term: 2, Type: raft.LogCommand, Data: []byte("hello"),
		AppendedAt: time.Unix(0, 1000),
	})
	require.Equal(t, "0e0000006d980b7d6aab8dc14f9f6249b52db55f170eb28e", hex.EncodeToString(b))
	b = Append(nil, &raft.Log{Index: 300, Data: bytes.Repeat([]byte("hello"), 1001)}) // longer than the mask
	require.EqualValues(t, 0x63b63167, crc32.ChecksumIEEE(b))
}

func FuzzDecode(f *testing.F) {
	for _, l := range samples {
		f.Add(Append(nil, &l))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var l raft.Log
		if Decode(bytes.Clone(b), &l) == nil && l.AppendedAt.UnixNano() != 0 {
			var again raft.Log
			require.NoError(t, Decode(Append(nil, &l), &again))
			require.Equal(t, l, again)
		}
	})
}
