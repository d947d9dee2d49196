package backup

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// silent is the sink of a machine without clients.
type silent struct{}

func (silent) Wanted(protocol.Incarnation, uint64) bool                  { return false }
func (silent) Done(protocol.Incarnation, uint64, []protocol.Value, bool) {}
func (silent) Events([]event.Event)                                      {}

// stateOf is the stream of a machine that has run those commands.
func stateOf(t testing.TB, commands ...[]string) []byte {
	t.Helper()
	var body []byte
	for _, words := range commands {
		body = protocoltest.AppendRequest(body, 0, words...)
	}
	w := protocol.NewEntry(nil, protocol.EntryVersion, 1000, 0, 0)
	w.Add(protocol.Incarnation{Node: "n1", Epoch: 1}, 1, 1, body)
	m := fsm.New()
	require.NoError(t, m.Apply(w.Bytes(), silent{}))
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

	// The checksums of the file are right, and what it holds is no state.
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
