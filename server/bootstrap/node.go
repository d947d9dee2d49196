package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/store"
)

// Folder is the node's data folder.
type Folder interface {
	Identity() store.Identity
	SetIdentity(change func(*store.Identity)) error
	// Missing is a snapshot that has to be mended before raft is opened; nil: none.
	Missing() *store.Missing
	Mend(snapshot store.Snapshot, state io.Reader) error
}

// Config is what a node needs of its owner.
type Config struct {
	Folder Folder
	// Addr is where other nodes dial this one.
	Addr string
	// Initial are the peer addresses of the nodes that found a cluster together, by name, this node's too; empty: the
	// node founds none.
	Initial map[string]string
	// Contacts are peer addresses of nodes whose cluster is to take this node in; empty: none is.
	Contacts []string
	// NewestVersion is the newest version of the log that the node can use.
	NewestVersion byte
	// NonVoter: the node does not ask for a vote.
	NonVoter bool

	Client    *memberrpc.Client
	Addresses *members.Addresses
	// Incarnation is to be proved; nil: there is none.
	Incarnation Incarnation
	Logger      *slog.Logger
	Cluster
}

// Incarnation is the node's: an incarnation.Registry.
type Incarnation interface {
	// Vouched are the IDs of the nodes that have admitted the incarnation. leader: a leader has.
	Vouched() (by []string, leader bool)
	// Prove has the node take part.
	Prove() error
}

// Cluster is what is asked of the node's cluster, and of its raft once that is open.
type Cluster struct {
	// Join has the cluster of the node at contact take a node in, without a vote. index is of a committed configuration
	// that has the node; 0: not known. refused is why the cluster does not, in one line; an error leaves open whether it
	// did.
	Join func(ctx context.Context, contact, cluster string, self members.Member) (index uint64, refused string, err error)
	// Committed is the newest configuration that this node knows to be committed. It must be quick.
	Committed func() members.Configuration
	// Newest is the newest configuration in this node's log. It must be quick. A node that was started again does not
	// know of the last ones whether they are committed.
	Newest func() members.Configuration
	// Led reports whether this node knows a leader. It must be quick.
	Led func() bool
	// Move has the cluster agree on this node's address.
	Move func(ctx context.Context, addr string) error
	// Promote asks for a vote.
	Promote func(ctx context.Context) error
	// State opens a committed state that ends at an index or later.
	State func(from uint64) (store.Snapshot, io.ReadCloser, error)
	// Removed is told that this node was removed from the cluster. It must be quick.
	Removed func()
}

// Node is a node on its way into a cluster, and in it.
type Node struct {
	config Config
	wake   chan struct{}

	suspects atomic.Bool // see Suspect

	mu      sync.Mutex
	waiting string // what the node waits for
	// heard is the newest configuration that a member of the cluster told of, in its log or committed.
	heard members.Configuration
}

// New makes a node.
func New(c Config) *Node { return &Node{config: c, wake: make(chan struct{}, 1)} }

// Serve has s answer what other nodes ask of this package.
func (n *Node) Serve(s *memberrpc.Server) {
	memberrpc.HandleAny(s, opIntroduce, n.introduced)
	memberrpc.HandleStream(s, opState, n.serveState)
}

// CheckNow has [Node.WatchMembership] check the membership at once.
func (n *Node) CheckNow() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Suspect has [Node.WatchMembership] meet the others at once: this node may be none of the members any more, or know
// members that others have to know for an election.
func (n *Node) Suspect() {
	n.suspects.Store(true)
	n.CheckNow()
}

// Waiting says what the node waits for before it belongs to a cluster.
func (n *Node) Waiting() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.waiting
}

// newClusterID mints the ID of a cluster.
func newClusterID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

const (
	// The pause between two attempts grows from first by first, up to most.
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
	// The same while all that answer refuse this node's proof, which no time mends, and each refusal is logged there.
	firstRefusedPause = time.Second
	mostRefusedPause  = 10 * time.Second
	// After quiet attempts is said for what the node waits, and every remindEvery again.
	quiet       = 3
	remindEvery = time.Minute
)

// patience counts attempts, and says from time to time why there are more.
type patience struct {
	node     *Node
	attempts int
	refusals int // in a row: attempts at which no node took this node's proof, and one refused it
	broken   int // states that did not come whole
	said     string
	saidAt   time.Time
}

// wait pauses before the next attempt, and reports whether to make it. what is the same as long as nothing has changed
// for the operator; why are the details. met are the nodes that were asked: a refused proof is for the operator to
// mend, so that is said at once, as a warning.
func (p *patience) wait(ctx context.Context, met []meeting, what, why string) bool {
	p.node.mu.Lock()
	p.node.waiting = what
	p.node.mu.Unlock()
	level, refused, taken := slog.LevelInfo, false, false
	for _, m := range met {
		refused, taken = refused || errors.Is(m.err, peer.ErrSecret), taken || m.err == nil
	}
	if refused {
		level, what = slog.LevelWarn, what+", and refused"
	}
	if now := time.Now(); (refused || p.attempts >= quiet) && (p.said != what || now.Sub(p.saidAt) >= remindEvery) {
		p.node.config.Logger.Log(ctx, level, what, "why", why)
		p.said, p.saidAt = what, now
	}
	p.attempts++
	pause := min(time.Duration(p.attempts)*firstPause, mostPause)
	if p.refusals++; taken || !refused {
		p.refusals = 0
	} else {
		pause = min(time.Duration(p.refusals)*firstRefusedPause, mostRefusedPause)
	}
	pause = max(pause, min(time.Duration(p.broken)*firstRefusedPause, mostBrokenPause))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.node.wake:
		return true
	case <-ctx.Done():
		return false
	}
}
