package frontend

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/reconfig"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/sessions"
)

// Backend is the cluster, as a connection sees it. [replica.Replica] is one.
type Backend interface {
	// Execute runs a batch. It returns nil and a reply for each request, or an error for all
	// requests; a *protocol.Error is sent to the client as it is. The last replies to reads are [protocol.ErrNoRoom]
	// where the replies before took the room or the time: these reads may be executed again. After a nil error the batch's
	// Body is free for reuse. After an error the backend may still hold Body. Replies never share
	// memory with Body.
	Execute(u *replica.Batch) error
	// Compile compiles the source of a script before it is proposed. The error's text is the reply's.
	Compile(source string) error
	// Compiled reports whether Compile takes no time to speak of.
	Compiled(source string) bool
	// ScriptWork estimates what a script will do, if it did much when it ran last: see [fsm.Machine.ScriptWork].
	ScriptWork(word []byte, words [][]byte) int64
	// Origin is this life of the node, as the log names it.
	Origin() protocol.Incarnation
	// Clients are this node's clients that wait for keys or have sessions.
	Clients() *sessions.Clients
	// LockStats counts locks, for INFO.
	LockStats() fsm.LockStats
	// LockClasses counts what happened to locks, by class.
	LockClasses() []fsm.LockClass
	// StockWaiters are the clients that poll for a stock lock.
	StockWaiters(db int, key string) []fsm.StockWaiter
	// Version is the version of the cluster, as this node knows it: commands and forms of requests of later versions must
	// not be used yet. It must be quick.
	Version() byte
	// Status is the node's view of the cluster.
	Status() replica.Status
	// WatchLeadership calls f with the leadership as the node knows it and with all members, and again
	// after every change of the leadership, in order. f must be quick, and must not call the backend.
	WatchLeadership(f func(l replica.Leadership, members []replica.Member))
	// Stats counts what the node's copy of the state holds, for INFO.
	Stats() fsm.Stats
	// Listen says which events of the state machine are told from the next entry on, to Config.Hub among
	// others.
	Listen(i event.Interest)
	// AwaitApplied waits until the node's copy of the state has the write with that number
	// (Batch.Number), but no longer than a command may take, and reports whether the write is there.
	AwaitApplied(ctx context.Context, number uint64) bool
	// WaitReplicated waits until n other nodes have every write acknowledged so far, until timeout
	// has passed (0: none), or until ctx has ended, and returns the number of such nodes.
	WaitReplicated(ctx context.Context, n int, timeout time.Duration) int
}

// Users are the users of the node.
type Users interface {
	// Current are the users in force; the files are looked at, if that was not done lately.
	Current() *acl.Users
	// Held are the users in force at the last look. Held does not block.
	Held() *acl.Users
	// Load reads the file of users now. The error says why it is not taken.
	Load(by string) error
	// Watch has changed called after each change.
	Watch(changed func())
}

// onlyUser is the default user alone.
type onlyUser struct{ users *acl.Users }

func (o onlyUser) Current() *acl.Users { return o.users }

func (o onlyUser) Held() *acl.Users { return o.users }

func (o onlyUser) Load(string) error { return acl.ErrNoFile }

func (o onlyUser) Watch(func()) {}

// ClientsQuestion asks a node about connections, or for a command about the only one.
type ClientsQuestion struct {
	// Incarnation is the life of the node that the connections are of.
	Incarnation uint64  `json:"incarnation"`
	Conns       []int64 `json:"conns"`
	// Command is CLIENT KILL with an ID, or CLIENT UNBLOCK. The Incarnation does not matter then.
	Command [][]byte `json:"command,omitempty"`
}

// ClientsAnswer is about each connection of a [ClientsQuestion], in order.
type ClientsAnswer struct {
	Clients []ClientDetail `json:"clients"`
	// Reply is the command's, as in an entry. It is empty if no connection of the node has or had that number.
	Reply []byte `json:"reply,omitempty"`
}

// ClientDetail is what a node knows of a connection. Addr is empty if the connection is gone.
type ClientDetail struct {
	Addr       string `json:"addr,omitempty"`
	Name       string `json:"name,omitempty"`
	IdleMillis int64  `json:"idleMillis,omitempty"`
}

// Administration changes the members of the cluster. [reconfig.Service] is one.
type Administration interface {
	// Ask carries a request out, wherever the leader is. The reply says what was done, also when there is an error.
	Ask(ctx context.Context, q reconfig.Request) (reconfig.Reply, error)
}

// Backup is a file on its way to one client. It ends by itself when the client does not go on.
type Backup interface {
	Source() BackupSource
	// Next returns the next part, and [io.EOF] behind the last.
	Next(ctx context.Context) ([]byte, error)
	// Totals is good after [io.EOF].
	Totals() BackupTotals
	// Close gives up what is left. It may be called more than once.
	Close()
}

// Backups are the backups that clients of this node take.
type Backups interface {
	// Begin captures the state. Without stale, every write that was acknowledged before is in it. A
	// *protocol.Error is sent to the client as it is.
	Begin(ctx context.Context, stale bool) (Backup, error)
}

const (
	// mostDetailed is how many clients of a reply are asked about, and perQuestion how many of them at a time: the
	// answer must fit into a message.
	mostDetailed = 1000
	perQuestion  = 128
	// detailsWithin is how long the clients of a reply are asked about. A node that did not answer in time is not asked
	// again for silentFor.
	detailsWithin = 300 * time.Millisecond
	silentFor     = 5 * time.Second
	// commandWithin is how long other nodes may take to run a command about a client, and mostAsking how many such
	// commands this node has them run at a time: they answer few questions of a node at a time.
	commandWithin = 2 * time.Second
	mostAsking    = 4
	// mostOfName bounds what is told of a client's name, in bytes.
	mostOfName = 64
)

// BackupSource says what a backup is of.
type BackupSource struct {
	ClusterID, NodeID string
	Index, Term       uint64
	TakenAt           time.Time
	Keys, Locks       int
	// AboutBytes is about the length of the file, for progress.
	AboutBytes int64
}

// BackupTotals describe the whole file.
type BackupTotals struct {
	Bytes  int64
	SHA256 string
}
