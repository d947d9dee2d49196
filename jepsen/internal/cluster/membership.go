package cluster

import "context"

// Membership is what the tests may do about who the members are. A place is in, and among [Target.Members], from
// [Membership.Add] until [Membership.Out]. The node there need not have a vote meanwhile, or be a member at all.
//
// What takes a change of the cluster is tried until it is done or ctx ends.
type Membership interface {
	// Spares are the places that are out.
	Spares() []string
	// Add starts a node with an empty folder at any place, and has the node made a member.
	Add(ctx context.Context, place string, vote bool) error
	// Remove has the others remove the member that has the name of a place. The node there goes on until it knows.
	Remove(ctx context.Context, place string) error
	// Replace has the member at a place take the place of another member.
	Replace(ctx context.Context, place, by string) error
	// Force asks once, by force, that a member be removed, or else that it lose its vote. After an error, and when ctx
	// ends, the change may be made or not.
	Force(ctx context.Context, place string, remove bool) error
	// Removed reports whether the node at a place has ended, and its folder says that it was removed.
	Removed(place string) bool
	// Roll is the members by name, and whether they have a vote, as a leader knows that leads indeed.
	Roll(ctx context.Context) (map[string]bool, error)
	// Vote gives a member a vote, or takes it.
	Vote(ctx context.Context, place string, vote bool) error
	// Lead hands the leadership to a member with a vote.
	Lead(ctx context.Context, place string) error
	// Move ends a node, and starts it with another address for other nodes.
	Move(ctx context.Context, place string) error
	// Twin starts a second process of the member at another place, at a spare place, whose folder is a copy of the
	// member's. The place stays out, and [Membership.Out] ends the process.
	Twin(place, of string) error
	// Empty kills a node and empties its folder. Started again, the node has the name, the addresses and the flags
	// that it had.
	Empty(place string) error
	// Out ends a node and empties its folder. Nothing starts a node at that place but Add.
	Out(place string) error
}

// Folders have copies of data folders that are no files.
type Folders interface {
	CopyOf(place string) FolderCopy
}

// FolderCopy is a copy of the data folder at a place. The node there does not run when a method is called but Forget.
type FolderCopy interface {
	Make() error
	// PutBack puts the copy in the folder's place.
	PutBack() error
	Forget() error
}

// Releases is what the tests may do about the programs of nodes, where there are two.
type Releases interface {
	// Run has the node at a place run a program from its next start on: the release before, or this one, which may hold
	// the version of the cluster.
	Run(place string, r Release)
}

// Release is a program as a node is started with it.
type Release int

// The releases.
const (
	This   Release = iota
	Held           // this one, and the cluster keeps the version of the release before
	Before         // the release before
)

func (r Release) String() string {
	return [...]string{"this release", "this release, with the version held", "the release before"}[r]
}

// Backups is what the tests may do with backups. Clusters that are made of them live at spare places, as one node each.
type Backups interface {
	// Backup writes a backup of the cluster into a file.
	Backup(ctx context.Context, via, file string) error
	// Restore makes a cluster of a backup at a place, and starts its node; integers in keys that match raise are raised.
	// [Membership.Out] ends the cluster.
	Restore(ctx context.Context, place, file, raise string) error
}
