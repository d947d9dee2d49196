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

// Backend is the cluster as a connection uses it. [replica.Replica] implements it.
type Backend interface {
	// Execute runs a batch. It returns nil and a reply for each request, or an error for all requests; a *protocol.Error
	// is sent to the client unchanged. If the replies exceed the memory or the time of a batch, the last reads reply
	// [protocol.ErrNoRoom] and may be executed again. After a nil error the caller may reuse the batch's Body. After an
	// error the backend may still use it. Replies never share memory with Body.
	Execute(u *replica.Batch) error
	// Compile compiles the source of a script before it is proposed. The error's text is the reply's.
	Compile(source string) error
	// Compiled reports whether Compile takes almost no time.
	Compiled(source string) bool
	// ScriptWork estimates the work of a script by its last run, or returns 0 if that was small: see
	// [fsm.Machine.ScriptWork].
	ScriptWork(word []byte, words [][]byte) int64
	// Origin is the present incarnation of the node.
	Origin() protocol.Incarnation
	// Clients are this node's clients that wait for keys or have sessions.
	Clients() *sessions.Clients
	// LockStats counts locks, for INFO.
	LockStats() fsm.LockStats
	// LockClasses counts events of locks, by class.
	LockClasses() []fsm.LockClass
	// StockWaiters are the clients that poll for a stock lock.
	StockWaiters(db int, key string) []fsm.StockWaiter
	// Version is the version of the cluster, as far as this node knows. Commands and forms of requests of later versions
	// must not be used yet. It must be quick.
	Version() byte
	// DiskFull reports whether the disks of the cluster have no room for a state that grows. It must be quick.
	DiskFull() bool
	// Status is the node's view of the cluster.
	Status() replica.Status
	// WatchLeadership calls f with the leadership and all members as this node knows them, and again after each change, in
	// order. f must be quick, and must not call the backend.
	WatchLeadership(f func(l replica.Leadership, members []replica.Member))
	// Stats counts what the node's copy of the state holds, for INFO.
	Stats() fsm.Stats
	// Listen selects the events of the state machine that are emitted from the next entry on, to Config.Hub among others.
	Listen(i event.Interest)
	// AwaitApplied waits until the node's copy of the state has applied the write with a number (Batch.Number), but not
	// longer than a command may take. It reports whether the write was applied.
	AwaitApplied(ctx context.Context, number uint64) bool
	// WaitReplicated waits until n other nodes have all writes that were acknowledged before, until timeout has passed (0:
	// no limit), or until ctx ends. It returns the number of such nodes.
	WaitReplicated(ctx context.Context, n int, timeout time.Duration) int
}

// Users are the users of the node.
type Users interface {
	// Current returns the present users. It first reads the files again if it has not done so lately.
	Current() *acl.Users
	// Held returns the users as of the last read. It does not block.
	Held() *acl.Users
	// Load reads the file of users now. The error is the reason why the file was rejected.
	Load(by string) error
	// Watch registers a function to be called after each change.
	Watch(changed func())
}

// onlyUser has the default user only.
type onlyUser struct{ users *acl.Users }

func (o onlyUser) Current() *acl.Users { return o.users }

func (o onlyUser) Held() *acl.Users { return o.users }

func (o onlyUser) Load(string) error { return acl.ErrNoFile }

func (o onlyUser) Watch(func()) {}

// ClientsQuestion asks a node about its connections, or has it run a command for one of them.
type ClientsQuestion struct {
	// Incarnation is the incarnation of the node that has the connections.
	Incarnation uint64  `json:"incarnation"`
	Conns       []int64 `json:"conns"`
	// Command is CLIENT KILL with an ID, or CLIENT UNBLOCK. Incarnation is ignored then.
	Command [][]byte `json:"command,omitempty"`
}

// ClientsAnswer answers a [ClientsQuestion], with an element for each connection, in order.
type ClientsAnswer struct {
	Clients []ClientDetail `json:"clients"`
	// Reply is the encoded reply of the command. It is empty if the node never had a connection with that number.
	Reply []byte `json:"reply,omitempty"`
}

// ClientDetail describes a connection. Addr is empty if the connection has ended.
type ClientDetail struct {
	Addr       string `json:"addr,omitempty"`
	Name       string `json:"name,omitempty"`
	IdleMillis int64  `json:"idleMillis,omitempty"`
}

// Administration changes the members of the cluster. [reconfig.Service] is one.
type Administration interface {
	// Ask has the leader run a request. The reply has the steps that were done, also if there is an error.
	Ask(ctx context.Context, q reconfig.Request) (reconfig.Reply, error)
}

// Backup is a backup that one client reads. It ends by itself if the client stops reading.
type Backup interface {
	Source() BackupSource
	// Next returns the next part, or [io.EOF] after the last one.
	Next(ctx context.Context) ([]byte, error)
	// Totals describes the whole file. It is valid after [io.EOF].
	Totals() BackupTotals
	// Close ends the backup. It may be called more than once.
	Close()
}

// Backups makes backups for clients of this node.
type Backups interface {
	// Begin captures the state. Unless stale is set, the state has every write that was acknowledged before. A
	// *protocol.Error is sent to the client unchanged.
	Begin(ctx context.Context, stale bool) (Backup, error)
}

const (
	// maxDetailedClients bounds the clients of a reply whose details come from other nodes. A question to a node has at
	// most perQuestion clients, so that the answer fits into a message.
	maxDetailedClients = 1000
	perQuestion        = 128
	// detailsWithin bounds the time of all questions for a reply. A node that did not answer in time is not asked again
	// for silentFor.
	detailsWithin = 300 * time.Millisecond
	silentFor     = 5 * time.Second
	// commandWithin bounds the time in which other nodes run a command about a client. maxRemoteCommands bounds the
	// commands that this node has them run at a time, since they answer few questions of a node at a time.
	commandWithin     = 2 * time.Second
	maxRemoteCommands = 4
	// maxNameBytes bounds a client's name in replies.
	maxNameBytes = 64
)

// BackupSource describes the state of a backup.
type BackupSource struct {
	ClusterID, NodeID string
	Index, Term       uint64
	TakenAt           time.Time
	Keys, Locks       int
	// AboutBytes estimates the length of the file, for progress.
	AboutBytes int64
}

// BackupTotals describes the whole file.
type BackupTotals struct {
	Bytes  int64
	SHA256 string
}
