package target

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/fakeredis"
)

var someOptions = Options{TTL: 30 * time.Second, Timeout: 5 * time.Second}

func TestParse(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]Target{
		"a=h:1":                  {Name: "a", Addrs: []string{"h:1"}, Via: ViaSpread},
		"a=h:1+h:2@leader":       {Name: "a", Addrs: []string{"h:1", "h:2"}, Via: ViaLeader},
		"a=h:1+h:2@followers":    {Name: "a", Addrs: []string{"h:1", "h:2"}, Via: ViaFollowers},
		"a=h:1@wait=2":           {Name: "a", Addrs: []string{"h:1"}, Via: ViaSpread, Wait: 2},
		"a=h:1+h:2+h:3@redlock":  {Name: "a", Addrs: []string{"h:1", "h:2", "h:3"}, Via: ViaRedlock},
		"a=h:1@leader@wait=1":    {Name: "a", Addrs: []string{"h:1"}, Via: ViaLeader, Wait: 1},
		"redis 7=127.0.0.1:6379": {Name: "redis 7", Addrs: []string{"127.0.0.1:6379"}, Via: ViaSpread},
	} {
		got, err := Parse(spec)
		require.NoError(t, err, spec)
		require.Equal(t, want, got)
	}
	for _, spec := range []string{"", "a", "a=", "=h:1", "a=h:1@middle", "a=h:1@wait=x"} {
		_, err := Parse(spec)
		require.Error(t, err, spec)
	}
}

func TestClients(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	all, err := Target{Name: "x", Addrs: []string{s.Addr}}.Clients(t.Context(), 2, someOptions)
	require.NoError(t, err)
	defer CloseAll(all)
	requireLock(t, all[0], all[1])
	require.Equal(t, 2, s.Count("set"))
	require.Equal(t, 2, s.Count("eval"), "each script once")

	s.Refuse("CLUSTERDOWN No leader")
	_, err = all[0].Acquire(t.Context(), "other", "1")
	require.EqualError(t, err, "CLUSTERDOWN No leader")
	require.Equal(t, 3, s.Count("set"), "nothing is sent again")
}

// requireLock requires mutual exclusion of two clients.
func requireLock(t *testing.T, a, b Client) {
	t.Helper()
	ctx := t.Context()
	does := func(want bool) func(bool, error) {
		return func(ok bool, err error) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, want, ok)
		}
	}
	does(true)(a.Acquire(ctx, "k", "1"))
	does(false)(b.Acquire(ctx, "k", "2"))
	does(false)(b.Release(ctx, "k", "2"))
	does(true)(a.Renew(ctx, "k", "1"))
	does(false)(b.Renew(ctx, "k", "2"))
	text, err := b.Read(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "1", text)
	does(true)(a.Release(ctx, "k", "1"))
	text, err = b.Read(ctx, "k")
	require.NoError(t, err)
	require.Empty(t, text)
}

func TestWait(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	s.Replicas = 1
	for wait, want := range map[int]error{1: nil, 2: ErrNotReplicated} {
		all, err := Target{Name: "x", Addrs: []string{s.Addr}, Wait: wait}.Clients(t.Context(), 1, someOptions)
		require.NoError(t, err)
		token := strconv.Itoa(wait)
		ok, err := all[0].Acquire(t.Context(), token, token)
		require.ErrorIs(t, err, want)
		require.Equal(t, want == nil, ok)
		ok, err = all[0].Acquire(t.Context(), token, token)
		require.NoError(t, err, "a lock that was not taken needs no replicas")
		require.False(t, ok)
		CloseAll(all)
	}
}

func TestRedlock(t *testing.T) {
	t.Parallel()
	servers := []*fakeredis.Server{fakeredis.Start(t), fakeredis.Start(t), fakeredis.Start(t)}
	redlock := Target{Name: "x", Addrs: []string{servers[0].Addr, servers[1].Addr, servers[2].Addr}, Via: ViaRedlock}
	all, err := redlock.Clients(t.Context(), 2, someOptions)
	require.NoError(t, err)
	defer CloseAll(all)
	requireLock(t, all[0], all[1])

	servers[0].Refuse("ERR broken")
	ok, err := all[0].Acquire(t.Context(), "k", "1")
	require.NoError(t, err, "two of three are enough")
	require.True(t, ok)
	ok, err = all[0].Release(t.Context(), "k", "1")
	require.NoError(t, err)
	require.True(t, ok)

	servers[1].Refuse("ERR broken")
	ok, err = all[0].Acquire(t.Context(), "k", "1")
	require.NoError(t, err)
	require.False(t, ok, "one of three is not")
	require.Zero(t, servers[2].Keys(), "it was given back")

	servers[2].Refuse("ERR broken")
	_, err = all[0].Acquire(t.Context(), "k", "1")
	require.ErrorContains(t, err, "ERR broken")
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	leader, follower := fakeredis.Start(t), fakeredis.Start(t)
	follower.Role = "slave"
	both := []string{follower.Addr, leader.Addr}
	for via, want := range map[Via][]string{
		ViaSpread: both, ViaLeader: {leader.Addr}, ViaFollowers: {follower.Addr},
		ViaRedlock: both,
	} {
		got, err := Target{Name: "x", Addrs: both, Via: via}.Endpoints(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := Target{Name: "x", Addrs: []string{follower.Addr}, Via: ViaLeader}.Endpoints(t.Context())
	require.ErrorContains(t, err, "x has no leader")
	_, err = Target{Name: "x", Addrs: []string{leader.Addr}, Via: ViaFollowers}.Endpoints(t.Context())
	require.ErrorContains(t, err, "x has no followers")
}

func TestClientsOfNobody(t *testing.T) {
	t.Parallel()
	_, err := Target{Name: "x", Addrs: []string{"127.0.0.1:1"}}.Clients(t.Context(), 2, someOptions)
	require.ErrorContains(t, err, "open 2 clients of x")
}
