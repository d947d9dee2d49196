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
	// Missing describes a snapshot that must be repaired before raft is opened; nil if there is none.
	Missing() *store.Missing
	Mend(snapshot store.Snapshot, state io.Reader) error
}

// Config is what a node needs of its owner.
type Config struct {
	Folder Folder
	// Addr is where other nodes dial this one.
	Addr string
	// Initial are the peer addresses, by name, of the nodes that found a cluster together, this node included. If it is
	// empty, the node founds no cluster.
	Initial map[string]string
	// Contacts are peer addresses of nodes whose cluster this node is to join. If it is empty, the node joins none.
	Contacts []string
	// NewestVersion is the newest version of the log that the node can use.
	NewestVersion byte
	// NonVoter reports that the node asks for no vote.
	NonVoter bool

	Client    *memberrpc.Client
	Addresses *members.Addresses
	// Incarnation is the incarnation to be confirmed by other members; nil if there is none.
	Incarnation Incarnation
	Logger      *slog.Logger
	Cluster
}

// Incarnation is the node's incarnation, an incarnation.Registry.
type Incarnation interface {
	// Vouched returns the IDs of the nodes that have admitted the incarnation. leader reports that a leader has.
	Vouched() (by []string, leader bool)
	// Prove makes the node take part in elections, acknowledgements and service.
	Prove() error
}

// Cluster are the requests to the node's cluster, and to its raft once that is open.
type Cluster struct {
	// Join asks the cluster of the node at contact to add a node as a member without a vote. index is that of a committed
	// configuration with the node, 0 if unknown. refused is the reason of a refusal in one line. After an error the
	// outcome is unknown.
	Join func(ctx context.Context, contact, cluster string, self members.Member) (index uint64, refused string, err error)
	// Committed returns the newest configuration that this node knows to be committed. It must be quick.
	Committed func() members.Configuration
	// Newest returns the newest configuration in this node's log, which after a start need not be known to be committed.
	// It must be quick.
	Newest func() members.Configuration
	// LastTerm returns the term of the last entry of this node's log. It must be quick.
	LastTerm func() uint64
	// Led reports whether this node knows a leader. It must be quick.
	Led func() bool
	// Move changes this node's address in the cluster's configuration.
	Move func(ctx context.Context, addr string) error
	// Promote asks for a vote.
	Promote func(ctx context.Context) error
	// State opens a committed state that ends at that index or later. The caller closes it.
	State func(from uint64) (store.Snapshot, io.ReadCloser, error)
	// Removed is called when this node learns that it was removed from the cluster. It must be quick.
	Removed func()
}

// Node brings a server into a cluster and keeps its membership up to date.
type Node struct {
	config Config
	wake   chan struct{}

	suspects atomic.Bool // see Suspect

	mu      sync.Mutex
	waiting string // what the node waits for
	// learned is the newest configuration in the introductions of other members, whether committed or not.
	learned inLog
}

// New returns a node.
func New(c Config) *Node { return &Node{config: c, wake: make(chan struct{}, 1)} }

// Serve registers this package's requests with s.
func (n *Node) Serve(s *memberrpc.Server) {
	memberrpc.HandleAny(s, opIntroduce, n.serveIntroduction)
	memberrpc.HandleStream(s, opState, n.serveState)
}

// CheckNow makes [Node.WatchMembership] check the membership at once.
func (n *Node) CheckNow() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Suspect makes [Node.WatchMembership] exchange identities at once: this node may have been removed, or know members
// that others need for an election.
func (n *Node) Suspect() {
	n.suspects.Store(true)
	n.CheckNow()
}

// Waiting describes what the node waits for before it belongs to a cluster; "" if nothing.
func (n *Node) Waiting() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.waiting
}

// newClusterID returns a random ID for a cluster.
func newClusterID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

const (
	// The pause between two attempts grows by firstPause up to maxPause.
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
	// The same if every answer refused this node's proof: only an operator can change that, and the other node logs each
	// refusal.
	firstRefusedPause = time.Second
	maxRefusedPause   = 10 * time.Second
	// The reason of a wait is logged after quietAttempts attempts, and again at every remindEvery.
	quietAttempts = 3
	remindEvery   = time.Minute
)

// retry paces the attempts of a wait, and logs the reason of the wait from time to time.
type retry struct {
	node     *Node
	attempts int
	refusals int // in a row: attempts at which no node took this node's proof, and one refused it
	broken   int // states that did not come whole
	logged   string
	loggedAt time.Time
}

// wait pauses before the next attempt, and returns false if ctx ended. what describes the wait and is constant while
// nothing has changed for the operator; why has the details. met are the outcomes of the attempt: a refused proof needs
// an operator, so it is logged at once, as a warning.
func (p *retry) wait(ctx context.Context, met []exchange, what, why string) bool {
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
	now, loud := time.Now(), refused || p.attempts >= quietAttempts
	if loud && (p.logged != what || now.Sub(p.loggedAt) >= remindEvery) {
		p.node.config.Logger.Log(ctx, level, what, "why", why)
		p.logged, p.loggedAt = what, now
	}
	p.attempts++
	pause := min(time.Duration(p.attempts)*firstPause, maxPause)
	if p.refusals++; taken || !refused {
		p.refusals = 0
	} else {
		pause = min(time.Duration(p.refusals)*firstRefusedPause, maxRefusedPause)
	}
	pause = max(pause, min(time.Duration(p.broken)*firstRefusedPause, maxBrokenPause))
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
