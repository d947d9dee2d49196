package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/incarnation"
	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/peer/peertest"
	"github.com/holdfast/holdfast/server/store"
	"github.com/holdfast/holdfast/server/store/storetest"
)

// world has nodes with disks, on a network.
type world struct {
	t     *testing.T
	net   *peertest.Network
	disks map[string]*storetest.Disk
	lives map[string]*life
	// secrets has the secrets by the name of the node. A node without an entry has the secret "s".
	secrets map[string]string
	dials   atomic.Int64
	// dialing, if not nil, is called before a node dials another.
	dialing func(from, addr string)
	// older has the nodes of a release that cannot send its state.
	older map[string]bool
}

// inWorld runs a test with a world in virtual time.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, net: peertest.New(), disks: make(map[string]*storetest.Disk), lives: make(map[string]*life),
		secrets: make(map[string]string), older: make(map[string]bool),
	}
	t.Cleanup(func() {
		for name := range w.lives {
			w.kill(name)
		}
	})
	return w
}

// life is a process of a node.
type life struct {
	*Node
	store  *store.Store
	folder *folder
	ctx    context.Context
	cancel context.CancelFunc
	port   net.Listener
	ended  sync.WaitGroup
	// entered gets the result of EnterCluster.
	entered chan error
	log     *lines
	// incarnation is the registry of the process. superseded gets the errors that end the process.
	incarnation *incarnation.Registry
	superseded  chan error
}

// lines has what a node has logged, without times.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, text, _ := strings.Cut(string(b), "level=")
	l.all = append(l.all, strings.TrimSpace(text))
	return len(b), nil
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// folder is a store whose process can be killed before or after the nth change of the identity.
type folder struct {
	*store.Store
	left  int // changes until the process is killed
	after bool
	die   func()
}

var errKilled = errors.New("killed")

func (f *folder) SetIdentity(change func(*store.Identity)) error {
	if f.left--; f.left != 0 {
		return f.Store.SetIdentity(change)
	}
	f.die() // first, so that no other node learns of the change
	if f.after {
		_ = f.Store.SetIdentity(change)
	}
	return errKilled
}

// cluster3 is an initial cluster of three.
var cluster3 = map[string]string{"n1": "n1:1", "n2": "n2:1", "n3": "n3:1"}

// start starts a process of a node on the node's disk, at port 1 of the host of its name.
func (w *world) start(name string, change ...func(*Config)) *life {
	w.t.Helper()
	w.kill(name)
	if w.disks[name] == nil {
		w.disks[name] = storetest.NewDisk()
	}
	s, err := w.disks[name].Open(store.Config{Name: name, Mends: true})
	require.NoError(w.t, err)
	l := &life{store: s, entered: make(chan error, 1), log: &lines{}}
	ctx, cancel := context.WithCancel(context.Background())
	l.ctx, l.cancel = ctx, cancel
	w.net.Rejoin(name)
	l.folder = &folder{Store: s, die: func() { w.net.Isolate(name); cancel() }}
	c := Config{
		Folder: l.folder, Addr: name + ":1", Initial: cluster3, Addresses: &members.Addresses{},
		Logger: slog.New(slog.NewTextHandler(l.log, nil)),
		Cluster: Cluster{
			Committed: func() members.Configuration { return members.Configuration{} },
			Newest:    func() members.Configuration { return members.Configuration{} },
			LastTerm:  func() uint64 { return 1 },
			Led:       func() bool { return true },
		},
	}
	l.superseded = make(chan error, 100)
	l.incarnation = incarnation.New(incarnation.Config{
		Lineage: s.Lineage, Stable: s.Stable, Save: s.Proved,
		OnVouch: func() { l.CheckNow() }, OnSuperseded: func(err error) { l.superseded <- err },
	})
	c.Incarnation = l.incarnation
	for _, f := range change {
		f(&c)
	}
	listener, err := w.net.Listen(port(c.Addr, name))
	require.NoError(w.t, err)
	l.port = listener
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		w.dials.Add(1)
		if w.dialing != nil {
			w.dialing(name, addr)
		}
		return w.net.Dial(name+":1")(ctx, addr)
	}
	mux, err := peer.New(peer.Config{
		Listener: listener, Dial: dial, ID: s.Identity().ID, Secrets: func() [][]byte {
			return [][]byte{[]byte(cmp.Or(w.secrets[name], "s"))}
		},
		ClusterID: func() string { return s.Identity().ClusterID }, Addresses: c.Addresses,
		Incarnations: l.incarnation,
	})
	require.NoError(w.t, err)
	layer := mux.Layer(peer.KindMember)
	c.Client = memberrpc.NewClient(layer)
	l.Node = New(c)
	server := memberrpc.NewServer(layer, c.Logger)
	if w.older[name] {
		memberrpc.HandleAny(server, opIntroduce, l.serveIntroduction)
	} else {
		l.Serve(server)
	}
	l.ended.Go(func() { _ = mux.Run(ctx) })
	l.ended.Go(func() { _ = server.Run(ctx) })
	l.ended.Go(func() { l.entered <- l.EnterCluster(ctx) })
	w.lives[name] = l
	return l
}

// port returns the address at which the node listens.
func port(addr, name string) string {
	if CheckAddr(addr) != nil {
		return name + ":1"
	}
	return addr
}

// kill ends the process of a node, and cuts the power of its machine.
func (w *world) kill(name string) {
	if l := w.lives[name]; l != nil {
		delete(w.lives, name)
		l.cancel()
		l.ended.Wait()
		_ = l.port.Close()
		w.disks[name].PowerCut(1)
	}
}

func (w *world) wipe(name string) {
	w.kill(name)
	w.disks[name] = nil
}

// requireEntered requires that all nodes have entered one cluster, as voters among its founders.
func (w *world) requireEntered(lives ...*life) store.Identity {
	w.t.Helper()
	first := lives[0].store.Identity()
	for _, l := range lives {
		require.NoError(w.t, <-l.entered)
		id := l.store.Identity()
		require.NotEmpty(w.t, id.ClusterID)
		require.Equal(w.t, lives[0].store.Identity().ClusterID, id.ClusterID)
		require.Equal(w.t, lives[0].store.Identity().Founders, id.Founders)
		self, ok := members.NewConfiguration(0, id.Founders...).Find(id.ID)
		require.True(w.t, ok)
		require.True(w.t, self.Voter)
		first = id
	}
	return first
}

func TestThreeNodesFoundACluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		begun := time.Now()
		id := w.requireEntered(w.start("n2"), w.start("n3"), w.start("n1"))
		require.Less(t, time.Since(begun), time.Second)
		require.Regexp(t, "^[0-9a-f]{16}$", id.ClusterID)
		require.Len(t, id.Founders, 3)
		again := w.requireEntered(w.start("n3"), w.start("n1"))
		require.Equal(t, id.ClusterID, again.ClusterID)
	})
}

// TestClusterBeginsWithWhatAllFoundersCan shows that a cluster begins with the newest version that all founders
// support, and that each founder records it. A release that does not report its version counts as the oldest.
func TestClusterBeginsWithWhatAllFoundersCan(t *testing.T) {
	for _, c := range []struct{ can, want []byte }{
		{[]byte{6, 6, 6}, []byte{6, 6, 6}},
		{[]byte{7, 6, 7}, []byte{6, 6, 6}},
		{[]byte{6, 7, 7}, []byte{6, 6, 6}},
		{[]byte{7, 7, 0}, []byte{0, 0, 0}},
		{[]byte{7}, []byte{7}},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			initial := make(map[string]string)
			var lives []*life
			for i := range c.can {
				name := fmt.Sprintf("n%d", i+1)
				initial[name] = cluster3[name]
			}
			for i, version := range c.can {
				lives = append(lives, w.start(fmt.Sprintf("n%d", i+1), func(c *Config) {
					c.Initial, c.NewestVersion = initial, version
				}))
			}
			w.requireEntered(lives...)
			for i, l := range lives {
				require.Equal(t, c.want[i], l.store.Identity().FoundingVersion)
			}
		})
	}
}

func TestNodeAloneFoundsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		begun := time.Now()
		alone := func(c *Config) { c.Initial = map[string]string{"n1": "n1:1"} }
		one := w.start("n1", alone)
		id := w.requireEntered(one)
		require.Zero(t, time.Since(begun))
		require.Equal(t, []members.Member{{ID: id.ID, Addr: "n1:1", Voter: true}}, id.Founders)
		require.Equal(t, id.ClusterID, w.requireEntered(w.start("n1", alone)).ClusterID)
	})
}

// TestNodeThatIsDownIsNamed shows that the nodes log once which node of the initial cluster they wait for, and
// bootstrap no cluster without it.
func TestNodeThatIsDownIsNamed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, two := w.start("n1"), w.start("n2")
		time.Sleep(50 * time.Second)
		require.Empty(t, one.store.Identity().ClusterID)
		for _, l := range []*life{one, two} {
			require.Equal(t,
				`INFO msg="waiting for nodes of the initial cluster: n3" why="n3: dial peer n3:1: dial mem n3:1: connection refused"`, l.log.text())
			require.Equal(t, "waiting for nodes of the initial cluster: n3", l.Waiting())
		}
		other := w.start("n3", func(c *Config) { c.Initial = map[string]string{"n1": "n1:1", "n2": "n2:2", "n3": "n3:1"} })
		time.Sleep(50 * time.Second)
		require.Contains(t, one.log.text(),
			`n3 was given the initial cluster \"n1=n1:1,n2=n2:2,n3=n3:1\", this node \"n1=n1:1,n2=n2:1,n3=n3:1\"`)
		require.Empty(t, other.store.Identity().ClusterID)
		w.requireEntered(w.start("n3"), one, two)
	})
}

// TestEmptiedNodeHasNoPart shows that a founder whose folder was emptied cannot enter its cluster again by its initial
// cluster.
func TestEmptiedNodeHasNoPart(t *testing.T) {
	for _, name := range []string{"n1", "n2"} {
		inWorld(t, func(t *testing.T, w *world) {
			id := w.requireEntered(w.start("n1"), w.start("n2"), w.start("n3"))
			w.wipe(name)
			err := <-w.start(name).entered
			require.ErrorContains(t, err,
				fmt.Sprintf("is a member of cluster %s already, and this node's folder is empty: add it with --join", id.ClusterID))
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// TestEmptiedFounder shows that if the founder's folder is emptied before any other node has learned of the new
// cluster, the nodes bootstrap another one.
func TestEmptiedFounder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for heard := true; heard; {
			w := newWorld(t)
			two, three := w.start("n2"), w.start("n3")
			one := w.start("n1", func(c *Config) { c.Folder.(*folder).left, c.Folder.(*folder).after = 1, true })
			require.ErrorIs(t, <-one.entered, errKilled)
			lost := one.store.Identity().ClusterID
			require.NotEmpty(t, lost)
			w.wipe("n1")
			time.Sleep(time.Minute) // messages in flight arrive
			if heard = two.store.Identity().ClusterID+three.store.Identity().ClusterID != ""; !heard {
				require.NotEqual(t, lost, w.requireEntered(w.start("n1"), two, three).ClusterID)
			}
		}
	})
}

// TestKilledWhileFounding shows that nodes bootstrap one cluster although they were killed, with a power cut, before
// and after changes of their folders and at other times.
func TestKilledWhileFounding(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w, random := newWorld(t), rand.New(rand.NewPCG(seed, 1))
			for range 8 {
				name := fmt.Sprintf("n%d", 1+random.IntN(3))
				switch random.IntN(3) {
				case 0:
					w.kill(name)
				case 1:
					w.start(name)
				case 2:
					after := random.IntN(2) == 0
					w.start(name, func(c *Config) { c.Folder.(*folder).left, c.Folder.(*folder).after = 1, after })
				}
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			}
			w.requireEntered(w.start("n1"), w.start("n2"), w.start("n3"))
		})
	}
}

// TestNodesOfTwoClustersDoNotMix shows that a node enters no cluster if the nodes of its initial cluster belong to
// different clusters.
func TestNodesOfTwoClustersDoNotMix(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"n1", "n2"} {
			alone := func(c *Config) { c.Initial = map[string]string{name: name + ":1"} }
			w.requireEntered(w.start(name, alone))
		}
		require.ErrorContains(t, <-w.start("n3").entered,
			"the nodes of an initial cluster belong to one cluster, or to none yet")
	})
}

// TestConnectionsOfSettlingNodesEnd shows that no connection stays open after the nodes have entered the cluster.
func TestConnectionsOfSettlingNodesEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.requireEntered(w.start("n1"), w.start("n2"), w.start("n3"))
		synctest.Wait()
		require.Zero(t, w.net.Connections())
	})
}
