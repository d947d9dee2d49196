package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

var someMeta = Meta{
	Release: "1.2.3", ClusterID: "c", NodeID: "n1@000000000001", Index: 7, Term: 2,
	TakenAt: time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC), Keys: 3,
}

// fileOf returns a backup file with that state.
func fileOf(t testing.TB, state []byte) ([]byte, Summary) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, someMeta)
	require.NoError(t, err)
	n, err := w.Write(state)
	require.NoError(t, err)
	require.Equal(t, len(state), n)
	s, err := w.Close()
	require.NoError(t, err)
	require.Equal(t, int64(b.Len()), s.FileBytes)
	return b.Bytes(), s
}

// read reads a file to its end.
func read(in io.Reader) (state []byte, s Summary, err error) {
	r, err := NewReader(in)
	if err != nil {
		return nil, s, err
	}
	state, err = io.ReadAll(r)
	return state, r.Summary(), err
}

func TestFileGivesBackTheState(t *testing.T) {
	for _, size := range []int{0, 1, pieceBytes - 1, pieceBytes, pieceBytes + 1, 5*pieceBytes + 17} {
		state := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, size/7+1)[:size]
		file, written := fileOf(t, state)
		r, err := NewReader(iotest.HalfReader(bytes.NewReader(file)))
		require.NoError(t, err)
		require.Equal(t, someMeta, r.Meta)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.True(t, bytes.Equal(state, got))
		require.Equal(t, written, r.Summary())
	}
}

func TestAFileThatWasCutOffIsRecognised(t *testing.T) {
	file, _ := fileOf(t, []byte("state"))
	for n := range file {
		_, _, err := read(bytes.NewReader(file[:n]))
		require.ErrorIs(t, err, ErrCutOff, "at %d", n)
	}
}

func TestDamageIsRecognised(t *testing.T) {
	file, _ := fileOf(t, []byte("state"))
	for i := range file {
		for bit := range 8 {
			bad := bytes.Clone(file)
			bad[i] ^= 1 << bit
			_, _, err := read(bytes.NewReader(bad))
			require.Error(t, err, "bit %d of byte %d", bit, i)
		}
	}
	_, _, err := read(bytes.NewReader(append(bytes.Clone(file), 0)))
	require.ErrorIs(t, err, ErrDamaged)
	_, _, err = read(strings.NewReader("REDIS0011"))
	require.ErrorIs(t, err, ErrNoBackup)
	require.ErrorContains(t, err, "holdfast import")
	_, _, err = read(strings.NewReader("RED"))
	require.Equal(t, ErrNoBackup, err)
	newer := bytes.Clone(file)
	newer[len(magic)]++
	_, _, err = read(bytes.NewReader(newer))
	require.ErrorIs(t, err, ErrNewer)
	broken := errors.New("broken disk")
	_, _, err = read(io.MultiReader(bytes.NewReader(file[:40]), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

// TestBlocksAreProvedTogether shows that a file whose blocks are missing, repeated or reordered is refused, although
// each block is intact.
func TestBlocksAreProvedTogether(t *testing.T) {
	state := make([]byte, 3*pieceBytes)
	for i := range 3 {
		state[i*pieceBytes] = byte(i)
	}
	file, _ := fileOf(t, state)
	var blocks [][]byte
	for at := headBytes; at < len(file); {
		end := at + blockHeadBytes + int(binary.LittleEndian.Uint32(file[at+1:]))
		blocks = append(blocks, file[at:end])
		at = end
	}
	require.Len(t, blocks, 5)
	joined := func(order ...int) io.Reader {
		b := bytes.NewBuffer(bytes.Clone(file[:headBytes]))
		for _, i := range order {
			b.Write(blocks[i])
		}
		return b
	}
	_, _, err := read(joined(0, 1, 2, 3, 4))
	require.NoError(t, err)
	for _, order := range [][]int{
		{0, 1, 2, 4},
		{0, 2, 1, 3, 4},
		{0, 1, 2, 2, 3, 4},
		{0, 1, 2, 3, 0, 4},
		{1, 0, 2, 3, 4},
		{0, 1, 2, 3, 4, 4},
		{0, 4},
	} {
		_, _, err := read(joined(order...))
		require.ErrorIs(t, err, ErrDamaged, "%v", order)
	}
}

func FuzzReader(f *testing.F) {
	whole, _ := fileOf(f, []byte("a state"))
	f.Add(whole)
	f.Add(whole[:30])
	f.Add(append(bytes.Clone(whole[:headBytes]), 'S', 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		state, err := io.Copy(io.Discard, r)
		if err == nil && (r.Summary().FileBytes != int64(len(file)) || state > int64(len(file))) {
			t.Fatal("a file that was not read to its end passed")
		}
		if cap(r.body) > maxBody {
			t.Fatalf("a block of %d bytes", cap(r.body))
		}
	})
}

// TestFileIsFrozen shows that the file of an earlier build can be read, and is written in the same way. A change of the
// format needs another [Version], and another such file.
func TestFileIsFrozen(t *testing.T) {
	state := bytes.Repeat([]byte("state "), 100)
	want := []byte(protocoltest.ReadFile(t, "testdata/backup-v1.bin"))
	file, _ := fileOf(t, state)
	require.True(t, bytes.Equal(want, file))
	got, _, err := read(bytes.NewReader(want))
	require.NoError(t, err)
	require.Equal(t, state, got)
}

// stateOf returns the snapshot of a machine that has run the commands.
func stateOf(t testing.TB, commands ...[]string) []byte {
	t.Helper()
	var body []byte
	for _, words := range commands {
		body = protocoltest.AppendRequest(body, 0, words...)
	}
	w := protocol.NewEntry(nil, protocol.EntryVersion, 1000, 0, protocol.EntryLimits{})
	w.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, 1, 1, body)
	m := fsm.New()
	require.NoError(t, m.Apply(w.Bytes(), fsm.Discard{}))
	var b bytes.Buffer
	_, err := m.Snapshot().WriteTo(&b)
	require.NoError(t, err)
	return b.Bytes()
}

func TestInspect(t *testing.T) {
	file, written := fileOf(t, stateOf(t, []string{"incr", "fence"}, []string{"set", "lease", "x", "px", "5000"}))
	r, err := Inspect(bytes.NewReader(file), 5)
	require.NoError(t, err)
	require.Equal(t, someMeta, r.Meta)
	require.Equal(t, written, r.Summary)
	require.Equal(t, 2, r.Survey.Keys())
	require.Equal(t, int64(5000), r.Survey.LongestMillis)
	require.Equal(t, "fence", r.Survey.FenceKeys[0].Key)
}

func TestInspectRefuses(t *testing.T) {
	state := stateOf(t, []string{"incr", "fence"})
	whole, _ := fileOf(t, state)
	_, err := Inspect(bytes.NewReader(whole[:len(whole)-3]), 0)
	require.ErrorIs(t, err, ErrCutOff)
	require.Equal(t, ErrCutOff.Error(), err.Error(), "one plain line")
	flipped := bytes.Clone(whole)
	flipped[bytes.Index(whole, []byte("fence"))] ^= 1 // in the state: in a length it would look like a file cut off
	_, err = Inspect(bytes.NewReader(flipped), 0)
	require.ErrorIs(t, err, ErrDamaged)

	// The checksums of the file are right, but its content is not a state.
	noState, _ := fileOf(t, append([]byte("HOLDFASTx"), state[9:]...))
	_, err = Inspect(bytes.NewReader(noState), 0)
	require.ErrorIs(t, err, ErrNewer, "version 120")
	short, _ := fileOf(t, state[:len(state)-1])
	_, err = Inspect(bytes.NewReader(short), 0)
	require.ErrorIs(t, err, ErrDamaged)
	long, _ := fileOf(t, append(bytes.Clone(state), 0))
	_, err = Inspect(bytes.NewReader(long), 0)
	require.ErrorIs(t, err, ErrDamaged)
}

func FuzzInspect(f *testing.F) {
	whole, _ := fileOf(f, stateOf(f, []string{"incr", "fence"}, []string{"hset", "h", "f", "v"}))
	f.Add(whole)
	f.Add(whole[:len(whole)-60])
	f.Fuzz(func(_ *testing.T, file []byte) {
		_, _ = Inspect(bytes.NewReader(file), 3)
	})
}
