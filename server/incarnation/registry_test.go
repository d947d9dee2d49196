package incarnation

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// memory is a disk.
type memory map[string]uint64

func (m memory) GetUint64(key []byte) (uint64, error) { return m[string(key)], nil }

func (m memory) SetUint64(key []byte, value uint64) error {
	if m["full"] != 0 {
		return errors.New("disk full")
	}
	m[string(key)] = value
	return nil
}

// slow is a disk that something overtakes: between, once, is called when what is read is on its way.
type slow struct {
	memory
	between func()
}

func (s *slow) GetUint64(key []byte) (uint64, error) {
	value, err := s.memory.GetUint64(key)
	if f := s.between; f != nil {
		s.between = nil
		f()
	}
	return value, err
}

// TestWhatIsReadIsOvertaken: an incarnation is admitted while the disk is asked for the one before.
func TestWhatIsReadIsOvertaken(t *testing.T) {
	first := Lineage(nil).Start(1)
	second := Lineage{first.Start(2).Current()}
	disk := &slow{memory: memory{}}
	r := New(Config{Stable: disk})
	disk.between = func() {
		changed, err := r.Admit("n2", second)
		require.NoError(t, err)
		require.True(t, changed)
	}
	var refused *SupersededError
	for range 2 {
		require.ErrorAs(t, r.Check("n2", first), &refused)
		require.Equal(t, second.Current(), refused.Known)
	}
}

// TestRegistry: who has once been admitted is remembered by the disk, and is not admitted in an earlier incarnation.
func TestRegistry(t *testing.T) {
	disk, logged := memory{}, uint64(0)
	start := func() *Registry {
		return New(Config{Lineage: Lineage{1 << 32}, Stable: disk, Logged: func(string) uint64 { return logged }})
	}
	r := start()
	first := Lineage(nil).Start(1)
	second, other := first.Start(2), first.Start(3)
	admit := func(l Lineage, want bool) {
		t.Helper()
		changed, err := r.Admit("n2", l)
		require.NoError(t, err)
		require.Equal(t, want, changed)
	}
	admit(first, true)
	admit(first, false)
	require.NoError(t, r.Check("n2", second))
	admit(first, false) // a check notes nothing
	admit(second, true)
	for range 2 {
		var refused *SupersededError
		for _, l := range []Lineage{first, other} {
			_, err := r.Admit("n2", l)
			require.ErrorAs(t, err, &refused)
			require.Equal(t, SupersededError{Known: second.Current(), Given: l.Current()}, *refused)
			require.ErrorAs(t, r.Check("n2", l), &refused)
		}
		admit(second, false)
		r = start()
	}
	require.NoError(t, r.Check("n3", first), "another node")

	third := Lineage{second.Current()}.Start(4)
	logged = third.Current()
	require.ErrorContains(t, r.Check("n2", second), "is known, from which it does not descend")
	admit(third, true)

	disk["full"], logged = 1, 0
	_, err := r.Admit("n4", first)
	require.ErrorContains(t, err, "disk full")
	delete(disk, "full")
	changed, err := r.Admit("n4", first)
	require.NoError(t, err)
	require.True(t, changed, "what is not on the disk is not known")
}

// TestProof: it is on the disk first, and the owner hears of each that vouches once.
func TestProof(t *testing.T) {
	vouches := 0
	full := errors.New("disk full")
	saves := full
	r := New(Config{Lineage: Lineage{1 << 32}, Stable: memory{}, Save: func() error { return saves }, OnVouch: func() {
		vouches++
	}})
	r.Vouch("n2", false)
	r.Vouch("n2", false)
	r.Vouch("n3", false)
	by, leader := r.Vouched()
	require.Equal(t, []string{"n2", "n3"}, by)
	require.False(t, leader)
	r.Vouch("n2", true)
	_, leader = r.Vouched()
	require.True(t, leader)
	require.Equal(t, 3, vouches)
	r.Vouch("n3", false)
	_, leader = r.Vouched()
	require.True(t, leader, "another one's word takes nothing back")
	require.ErrorIs(t, r.Prove(), full)
	select {
	case <-r.Proved():
		require.Fail(t, "the disk does not have it")
	default:
	}
	saves = nil
	require.NoError(t, r.Prove())
	<-r.Proved()
}

func TestSuperseded(t *testing.T) {
	var told error
	r := New(Config{Lineage: Lineage{2<<32 | 0xab}, OnSuperseded: func(err error) { told = err }})
	r.Superseded("n2", 3<<32|0xcd)
	require.ErrorIs(t, told, ErrSuperseded)
	require.ErrorContains(t, told,
		"(it was put back from an older copy, or was copied: n2 knows incarnation 3.000000cd, this is 2.000000ab)")
	require.ErrorIs(t, r.Prove(), ErrSuperseded, "the disk is not asked")
}

// TestRevoke: neither the process nor a later start is admitted any more.
func TestRevoke(t *testing.T) {
	disk := memory{}
	r := New(Config{Lineage: Lineage{1 << 32}, Stable: disk})
	first := Lineage(nil).Start(0)
	_, err := r.Admit("n2", first)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, r.Revoke("n2"))
		for _, l := range []Lineage{first, first.Start(1), {first.Start(1).Current(), first.Start(1).Start(2).Current()}} {
			require.EqualError(t, r.Check("n2", l), "its log has lost entries that it had acknowledged: replace it")
			_, err := r.Admit("n2", l)
			require.Error(t, err)
		}
		r = New(Config{Lineage: Lineage{1 << 32}, Stable: disk})
	}
	require.ErrorContains(t, Superseded("n1", disk["holdfast.incarnation.n2"], first),
		"n1 says that the log has lost entries that this node had acknowledged")
}
