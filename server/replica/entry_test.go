package replica_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/replica/replicatest"
)

// TestEntryOfAnotherTermIsVoid: an entry with the stamp of one term that raft appends in another term is ignored on
// every node. Its stamp could end leases early.
func TestEntryOfAnotherTermIsVoid(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		require.Equal(t, protocol.OK, leader.Do("SET", "lease", "v", "PX", "60000"))
		w := protocol.NewEntry(nil, protocol.EntryVersion, 1<<40, 0, protocol.EntryLimits{})
		w.Add(protocol.Incarnation{Node: "n9", Epoch: 1}, 1, 1, replicatest.Batch([]string{"SET", "k", "v"}).Body)
		leader.Replica().Propose(leader.Replica().Status().Term-1, w.Bytes())
		require.Equal(t, protocol.OK, leader.Do("SET", "other", "v"))
		require.Equal(t, protocol.Null, leader.Do("GET", "k"))
		require.Equal(t, protocol.Bulk("v"), leader.Do("GET", "lease"))
		c.Settle()
	})
}

// TestNodeStopsAtWhatItCannotApply: a node that cannot apply an entry stops with the reason. Otherwise its state would
// differ from the others'.
func TestNodeStopsAtWhatItCannotApply(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *replicatest.Cluster) {
		leader := c.Leader()
		leader.Replica().Propose(leader.Replica().Status().Term, []byte{protocol.EntryVersion + 1})
		time.Sleep(5 * time.Second)
		stopped := 0
		for _, n := range c.Nodes() {
			if n.Replica() == nil {
				stopped++
				require.ErrorContains(t, n.Err(), "newer release")
				require.Len(t, events[replica.Failed](n), 1)
			}
		}
		// The last running node may never learn that the entry is committed.
		require.Nil(t, leader.Replica())
		require.GreaterOrEqual(t, stopped, 2)
	})
}

// isolatedStream is a stream that reaches no node.
type isolatedStream struct {
	closed context.Context
	end    context.CancelFunc
	err    error // Accept returns it at once, if not nil
}

func newIsolatedStream() *isolatedStream {
	l := &isolatedStream{}
	l.closed, l.end = context.WithCancel(context.Background())
	return l
}

func (l *isolatedStream) Accept() (net.Conn, error) {
	if l.err != nil {
		return nil, l.err
	}
	<-l.closed.Done()
	return nil, net.ErrClosed
}

func (l *isolatedStream) Close() error   { l.end(); return nil }
func (l *isolatedStream) Addr() net.Addr { return &net.TCPAddr{} }

func (l *isolatedStream) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, net.ErrClosed
}

func (l *isolatedStream) DialContext(context.Context, string) (net.Conn, error) {
	return nil, net.ErrClosed
}

// lastTerm is a store that fails to store a term above term.
type lastTerm struct {
	raft.StableStore
	term uint64
}

var errBroken = errors.New("broken")

func (s lastTerm) SetUint64(key []byte, value uint64) error {
	if value > s.term {
		return errBroken
	}
	return s.StableStore.SetUint64(key, value)
}

// TestNodeEndsForWhatItsPartsCannotDo: Run returns the error of a part that fails, even if raft never ends because it
// could not store a term. So the test has no bubble, which would wait for all goroutines.
func TestNodeEndsForWhatItsPartsCannotDo(t *testing.T) {
	for name, c := range map[string]struct {
		accept error
		term   uint64 // the last term that can be stored
		want   string
	}{
		"a part":          {errBroken, 1 << 20, "accept links: broken"},
		"the first term":  {nil, 0, "failed to save current term"},
		"a term of later": {nil, 1, "disk failed: store CurrentTerm: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			store, links := raft.NewInmemStore(), newIsolatedStream()
			links.err = c.accept
			r, err := replica.Open(replica.Config{
				ID: "n1@1", Bootstrap: []members.Member{{ID: "n1@1", Addr: "n1:1", Voter: true}},
				Stores: replica.Stores{
					Log: store, Stable: lastTerm{store, c.term}, Snapshots: raft.NewInmemSnapshotStore(),
					Lineage: incarnation.Lineage{1},
				},
				Peers: replica.Peers{Raft: newIsolatedStream(), Append: newIsolatedStream(), Forward: links},
			})
			if err == nil {
				err = r.Run(t.Context())
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
