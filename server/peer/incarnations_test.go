package peer

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/peer/peertest"
)

// disk is the stable store of a registry, in memory.
type disk map[string]uint64

func (d disk) GetUint64(key []byte) (uint64, error)     { return d[string(key)], nil }
func (d disk) SetUint64(key []byte, value uint64) error { d[string(key)] = value; return nil }

// alive is the registry of a node. ended gets the errors that end the node.
type alive struct {
	*incarnation.Registry
	ended chan error
}

func living(l incarnation.Lineage, d disk) *alive {
	a := &alive{ended: make(chan error, 10)}
	a.Registry = incarnation.New(incarnation.Config{
		Lineage: l, Stable: d, Save: func() error { return nil }, OnSuperseded: func(err error) { a.ended <- err },
	})
	return a
}

// proved is living for a node whose incarnation is proved.
func proved(l incarnation.Lineage, d disk) *alive {
	a := living(l, d)
	_ = a.Prove()
	return a
}

func (a *alive) in(c *Config) { c.Incarnations = a.Registry }

var (
	firstLife  = incarnation.Lineage(nil).Start(1)
	secondLife = firstLife.Start(2)
	otherLife  = firstLife.Start(3) // of a copied folder
)

// TestLaterLifeWins shows that once a later incarnation of a node is admitted, the connections of the earlier one are
// closed. When the earlier process dials or is dialed, it learns that it is superseded.
func TestLaterLifeWins(t *testing.T) {
	for _, earlierDials := range []bool{true, false} {
		inBubble(t, func(t *testing.T, network *peertest.Network) {
			member := proved(firstLife, disk{})
			one := start(t, network, "n1", member.in)
			earlier := proved(firstLife, disk{})
			two := start(t, network, "n2", earlier.in)
			var connections []net.Conn
			if earlierDials {
				connections = append(connections, dial(t, two, KindForward, "n1"), accept(t, one, KindForward))
			} else {
				connections = append(connections, dial(t, one, KindAppend, "n2"), accept(t, two, KindAppend))
			}
			later := proved(secondLife, disk{})
			copied := start(t, network, "n2b", later.in, func(c *Config) { c.ID = "n2" })
			_ = dial(t, copied, KindMember, "n1")
			for _, c := range connections {
				_, err := c.Read(make([]byte, 1))
				require.Error(t, err)
			}
			for _, k := range kinds {
				_, err := two.Layer(k).DialContext(t.Context(), "n1")
				require.ErrorIs(t, err, incarnation.ErrSuperseded)
				require.ErrorContains(t, <-earlier.ended, "n1 knows incarnation 2.00000002, this is 1.00000001")
			}
			_, err := one.Layer(KindAppend).DialContext(t.Context(), "n2")
			require.ErrorContains(t, err, "its incarnation is 1.00000001, and 2.00000002 is known")
			require.ErrorIs(t, <-earlier.ended, incarnation.ErrSuperseded, "who is dialed is told, too")
			require.Empty(t, later.ended)
			require.Empty(t, member.ended)
			synctest.Wait()
			require.Contains(t, strings.Join(two.log.lines(), "\n"), "refused: this node's data folder is not what it was")
		})
	}
}

// TestOtherBranchIsRefused shows that of two incarnations that follow the same one, as after a folder was copied, the
// first that was admitted stays, also after a restart of the member that admitted it.
func TestOtherBranchIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, d := peertest.New(), disk{}
		one := start(t, network, "n1", proved(firstLife, d).in)
		first := proved(secondLife, disk{})
		two := start(t, network, "n2", first.in)
		_ = dial(t, two, KindMember, "n1")
		second := proved(otherLife, disk{})
		copied := start(t, network, "n2b", second.in, func(c *Config) { c.ID = "n2" })
		_, err := copied.Layer(KindMember).DialContext(t.Context(), "n1")
		require.ErrorIs(t, err, incarnation.ErrSuperseded)
		require.ErrorIs(t, <-second.ended, incarnation.ErrSuperseded)
		_ = dial(t, two, KindForward, "n1")
		one.stop()
		again := start(t, network, "n1", proved(firstLife.Start(9), d).in)
		_, err = copied.Layer(KindMember).DialContext(t.Context(), "n1")
		require.ErrorIs(t, err, incarnation.ErrSuperseded, "the disk remembers")
		synctest.Wait()
		require.Contains(t, again.log.lines()[0], "its data folder was put back or copied")
	})
}

// TestRevokedNodeIsCutOff shows that Revoke closes the connections of one node and no others, and that no later
// incarnation of the node is admitted.
func TestRevokedNodeIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		one := start(t, network, "n1", proved(firstLife, disk{}).in)
		two := start(t, network, "n2", proved(firstLife, disk{}).in)
		three := start(t, network, "n3", proved(firstLife, disk{}).in)
		revoked := dial(t, two, KindForward, "n1")
		_ = accept(t, one, KindForward)
		stays := dial(t, three, KindForward, "n1")
		other := accept(t, one, KindForward)
		require.NoError(t, one.Revoke("n2"))
		_, err := revoked.Read(make([]byte, 1))
		require.Error(t, err)
		talk(t, stays, other, "x")
		later := start(t, network, "n2b", proved(secondLife, disk{}).in, func(c *Config) { c.ID = "n2" })
		_, err = later.Layer(KindMember).DialContext(t.Context(), "n1")
		require.ErrorIs(t, err, incarnation.ErrSuperseded)
	})
}

// TestNodeOutsideHasNoIncarnation shows that no incarnation is recorded of a node that belongs to no cluster, and that
// no vote of a member counts for it.
func TestNodeOutsideHasNoIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, d := peertest.New(), disk{}
		_ = start(t, network, "n1", proved(firstLife, d).in)
		stranger := proved(firstLife, disk{})
		two := start(t, network, "n2", stranger.in, func(c *Config) { c.ClusterID = cluster("") })
		_ = dial(t, two, KindMember, "n1")
		require.Empty(t, d)
		by, _ := stranger.Vouched()
		require.Empty(t, by)
	})
}

// TestUnprovedNodeTakesNoPart shows that before its incarnation is proved, a node dials and accepts KindMember only.
// Other dials wait for the proof, until the handshake times out.
func TestUnprovedNodeTakesNoPart(t *testing.T) {
	for _, dials := range []bool{true, false} {
		inBubble(t, func(t *testing.T, network *peertest.Network) {
			starting := living(secondLife, disk{})
			from, to := start(t, network, "n1", starting.in), start(t, network, "n2", proved(firstLife, disk{}).in)
			_ = dial(t, from, KindMember, "n2")
			by, _ := starting.Vouched()
			require.Equal(t, []string{"n2"}, by, "an answer vouches")
			if !dials {
				from, to = to, from
			}
			name := to.config.ID
			for _, k := range []Kind{KindRaft, KindAppend, KindForward} {
				begun := time.Now()
				_, err := from.Layer(k).DialContext(t.Context(), name)
				require.Error(t, err)
				require.Equal(t, 2*time.Second, time.Since(begun))
			}
			synctest.Wait()
			if !dials {
				require.Equal(t, 3, strings.Count(strings.Join(to.log.lines(), "\n"), errUnproved.Error()), "it says why")
			}
			time.AfterFunc(time.Second, func() { _ = starting.Prove() })
			begun := time.Now()
			_ = dial(t, from, KindRaft, name)
			require.Equal(t, time.Second, time.Since(begun))
			_, leader := starting.Vouched()
			require.Equal(t, !dials, leader, "only a leader appends")
		})
	}
}

// TestRefusalIsProved shows that a process without the secret, at the address of another node, cannot make a node
// believe that it is superseded.
func TestRefusalIsProved(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		self := proved(firstLife, disk{})
		one := start(t, network, "n1", self.in)
		l, err := network.Listen("n2:1")
		require.NoError(t, err)
		go func() {
			c, _ := l.Accept()
			_, _, _ = readHello(c)
			_, _ = c.Write(appendChallenge(nil, introduction{id: "n2", lineage: firstLife}))
			_, _ = io.ReadFull(c, make([]byte, 32))
			_, _ = c.Write(append([]byte{byte(statusSuperseded)}, make([]byte, 8+32)...))
		}()
		_, err = one.Layer(KindMember).DialContext(t.Context(), "n2")
		require.ErrorIs(t, err, errImpostor)
		require.Empty(t, self.ended)
		_ = l.Close()
	})
}

// TestLateHandshake shows that a connection of an earlier process is not passed to its layer if its handshake ends
// after that of a later process.
func TestLateHandshake(t *testing.T) {
	inBubble(t, func(t *testing.T, network *peertest.Network) {
		one := start(t, network, "n1", proved(firstLife, disk{}).in)
		a, b := net.Pipe()
		c := &Conn{Conn: a, id: "n2", lineage: firstLife, accepted: true}
		_, err := one.config.Incarnations.Admit("n2", secondLife)
		require.NoError(t, err)
		go func() { _, _ = one.Layer(KindRaft).Accept() }()
		require.False(t, one.layers[KindRaft].offer(context.Background(), c, time.Second))
		_ = b.Close()
	})
}

// relieved is a connection that calls end when its deadline is removed, at the end of a handshake.
type relieved struct {
	net.Conn
	end func()
}

func (c relieved) SetDeadline(at time.Time) error {
	if at.IsZero() {
		c.end()
	}
	return c.Conn.SetDeadline(at)
}

// TestLateDial shows the same for the dialer, and for a layer that was closed during the handshake.
func TestLateDial(t *testing.T) {
	for _, closing := range []bool{false, true} {
		inBubble(t, func(t *testing.T, network *peertest.Network) {
			two := start(t, network, "n2", proved(firstLife, disk{}).in)
			registry := proved(firstLife, disk{})
			var layer *Layer
			one := start(t, network, "n1", registry.in, func(c *Config) {
				inner := c.Dial
				c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
					conn, err := inner(ctx, addr)
					return relieved{conn, func() {
						if closing {
							_ = layer.Close()
							return
						}
						_, err := registry.Admit("n2", secondLife)
						require.NoError(t, err)
					}}, err
				}
			})
			layer = one.Layer(KindRaft)
			_, err := layer.DialContext(t.Context(), "n2")
			if closing {
				require.ErrorIs(t, err, ErrClosed)
			} else {
				require.ErrorContains(t, err, `a later process of node "n2" has come`)
			}
			require.Empty(t, layer.conns)
			_, err = accept(t, two, KindRaft).Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)
		})
	}
}
