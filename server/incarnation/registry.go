package incarnation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Stable keeps numbers on the node's disk: a raft.StableStore does.
type Stable interface {
	GetUint64(key []byte) (uint64, error) // 0: it was never set
	SetUint64(key []byte, value uint64) error
}

// Config is what a registry needs of its owner.
type Config struct {
	// Lineage is this node's.
	Lineage Lineage
	// Save notes on the disk that the present incarnation was proved.
	Save   func() error
	Stable Stable
	// Logged, when not nil, is the newest incarnation of a node in the state machine; 0: none.
	Logged func(id string) uint64
	// OnVouch, when not nil, is told that [Registry.Vouched] has changed. It must be quick.
	OnVouch func()
	// OnSuperseded, when not nil, is told that another member refuses this incarnation, or that the log has a later one:
	// the owner ends the node. It must be quick.
	OnSuperseded func(error)
}

// Registry knows this node's incarnation, and the newest of every other member.
type Registry struct {
	config Config
	proved chan struct{}
	disk   chan struct{} // held while the disk is asked; not a mutex, as virtual time stands still for who waits for one

	mu      sync.Mutex        // a leaf
	known   map[string]uint64 // what the disk says, as far as it was asked
	vouched map[string]bool   // who has admitted this node's incarnation
	leader  bool              // one of them led
	refused error             // a member knows a later incarnation of this node
}

// New makes a registry.
func New(c Config) *Registry {
	return &Registry{
		config: c, proved: make(chan struct{}), disk: make(chan struct{}, 1), known: make(map[string]uint64),
		vouched: make(map[string]bool),
	}
}

// Lineage is this node's.
func (r *Registry) Lineage() Lineage { return r.config.Lineage }

// ErrSuperseded is why a node ends whose incarnation is not the newest.
var ErrSuperseded = errors.New("this node's data folder is not what it was, and cannot be used again: empty it, and " +
	"start the node with --join to add it as a new one")

// SupersededError is why a member is refused.
type SupersededError struct{ Known, Given uint64 }

func (e *SupersededError) Error() string {
	if revoked(e.Known) {
		return "its log has lost entries that it had acknowledged: replace it"
	}
	return fmt.Sprintf("its incarnation is %s, and %s is known, from which it does not descend: its data folder was "+
		"put back or copied, or a later process has its identity",
		Text(e.Given), Text(e.Known))
}

// Check returns a [*SupersededError] if a later incarnation of the node is known, or another branch.
func (r *Registry) Check(id string, l Lineage) error {
	_, err := r.check(id, l)
	return err
}

func (r *Registry) check(id string, l Lineage) (known uint64, err error) {
	if known, err = r.newest(id); err != nil {
		return 0, err
	}
	all := []uint64{known}
	if r.config.Logged != nil {
		all = append(all, r.config.Logged(id))
	}
	for _, each := range all {
		if !l.Follows(each) {
			return 0, &SupersededError{Known: each, Given: l.Current()}
		}
	}
	return known, nil
}

// newest is the newest incarnation of a node on the disk.
func (r *Registry) newest(id string) (known uint64, err error) {
	r.mu.Lock()
	known, ok := r.known[id]
	r.mu.Unlock()
	if ok {
		return known, nil
	}
	known, err = r.config.Stable.GetUint64(key(id))
	if err != nil {
		return 0, fmt.Errorf("read incarnation of %s: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if later, ok := r.known[id]; ok { // it was written meanwhile
		return later, nil
	}
	r.known[id] = known
	return known, nil
}

// note makes known durable. Requires: the caller holds r.disk.
func (r *Registry) note(id string, known uint64) error {
	if err := r.config.Stable.SetUint64(key(id), known); err != nil {
		return fmt.Errorf("write incarnation of %s: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[id] = known
	return nil
}

func key(id string) []byte { return []byte("holdfast.incarnation." + id) }

// Admit is [Registry.Check], and has the incarnation on the disk when it returns no error. changed: an earlier one, or
// none, was known.
func (r *Registry) Admit(id string, l Lineage) (changed bool, err error) {
	r.disk <- struct{}{}
	defer func() { <-r.disk }()
	known, err := r.check(id, l)
	if err != nil || known == l.Current() {
		return false, err
	}
	return true, r.note(id, l.Current())
}

// Vouch notes that a member has admitted this node's incarnation. leads: it dialed as a leader does.
func (r *Registry) Vouch(id string, leads bool) {
	r.mu.Lock()
	fresh := !r.vouched[id] || leads && !r.leader
	r.vouched[id], r.leader = true, r.leader || leads
	r.mu.Unlock()
	if fresh && r.config.OnVouch != nil {
		r.config.OnVouch()
	}
}

// Vouched are the IDs of the nodes that have admitted this node's incarnation, in order. leader: a leader has.
func (r *Registry) Vouched() (by []string, leader bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.vouched)), r.leader
}

// Prove notes on the disk, and in this process, that the incarnation is proved. It is called once, and refuses if a
// member has refused the incarnation.
func (r *Registry) Prove() error {
	r.mu.Lock()
	refused := r.refused
	r.mu.Unlock()
	if refused != nil {
		return refused
	}
	if err := r.config.Save(); err != nil {
		return fmt.Errorf("write own incarnation: %w", err)
	}
	close(r.proved)
	return nil
}

// Proved returns a channel that is closed once this node's incarnation is proved.
func (r *Registry) Proved() <-chan struct{} { return r.proved }

// Superseded tells the owner that this incarnation is refused; by says where that was learnt.
func (r *Registry) Superseded(by string, known uint64) {
	err := Superseded(by, known, r.config.Lineage)
	r.mu.Lock()
	r.refused = err
	r.mu.Unlock()
	if r.config.OnSuperseded != nil {
		r.config.OnSuperseded(err)
	}
}

// Superseded is [ErrSuperseded] with what by knows.
func Superseded(by string, known uint64, own Lineage) error {
	if revoked(known) {
		return fmt.Errorf("%w (%s says that the log has lost entries that this node had acknowledged)", ErrSuperseded, by)
	}
	return fmt.Errorf("%w (it was put back from an older copy, or was copied: %s knows incarnation %s, this is %s)",
		ErrSuperseded, by, Text(known), Text(own.Current()))
}

// Revoke has no incarnation of a node admitted any more that descends from the ones until now.
func (r *Registry) Revoke(id string) error {
	r.disk <- struct{}{}
	defer func() { <-r.disk }()
	known, err := r.newest(id)
	if err != nil || revoked(known) {
		return err
	}
	return r.note(id, after(known))
}
