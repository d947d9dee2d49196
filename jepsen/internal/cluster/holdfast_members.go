package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/wire"
	"github.com/holdfast/holdfast/protocol"
)

var (
	_ Membership = (*Holdfast)(nil)
	_ Backups    = (*Holdfast)(nil)
)

// wordLimit bounds a command that changes the members, in which the leader waits for the change.
const wordLimit = 35 * time.Second

// node returns a copy of a place's configuration.
func (h *Holdfast) node(place string) place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.nodes[place]
}

// set changes a place's configuration.
func (h *Holdfast) set(at string, change func(*place)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.nodes[at])
}

func (h *Holdfast) which(in bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.places), func(place string) bool { return h.nodes[place].in != in })
}

// Members implements [Target].
func (h *Holdfast) Members() []string { return h.which(true) }

// Spares implements [Membership].
func (h *Holdfast) Spares() []string { return h.which(false) }

// contacts are the addresses that a joining node asks.
func (h *Holdfast) contacts(but string) []string {
	var contacts []string
	for _, m := range h.Members() {
		if m != but {
			contacts = append(contacts, h.c.Net.Listen(m, h.node(m).peer))
		}
	}
	return contacts
}

// ask sends a command to nodes in turn, except to the node that it is about, until the leader's configuration satisfies
// done or ctx ends.
func (h *Holdfast) ask(ctx context.Context, done func([]member) bool, about string, words ...string) error {
	last := errors.New("no node was asked")
	for n := 0; ctx.Err() == nil; n++ {
		members := h.Members()
		via := members[n%len(members)]
		known, err := h.members(ctx)
		if err == nil && done(known) {
			return nil
		}
		if via != about || len(members) == 1 {
			err = errors.Join(err, h.word(ctx, via, words...))
		}
		if err != nil {
			last = err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s: %w", strings.Join(words, " "), last)
}

// word sends a command that may take long.
func (h *Holdfast) word(ctx context.Context, via string, words ...string) error {
	dial, cancel := context.WithTimeout(ctx, debugTimeout)
	defer cancel()
	nc, err := h.c.Net.Dial(dial, "", via, "client")
	if err != nil {
		return fmt.Errorf("dial %s: %w", via, err)
	}
	defer nc.Close()
	if err := authenticate(nc, h.c.Password); err != nil {
		return fmt.Errorf("%s: %w", via, err)
	}
	limit := wordLimit
	if deadline, bounded := ctx.Deadline(); bounded {
		limit = max(time.Millisecond, min(limit, time.Until(deadline)))
	}
	if r := wire.New(nc, limit).Do(words...); r.Outcome != history.OK {
		return errors.New(r.Why)
	}
	return nil
}

// member is a row of RAFT.MEMBERS.
type member struct {
	name, id, address string
	voter             bool
}

// members returns the members according to a verified leader, since other nodes may be outdated.
func (h *Holdfast) members(ctx context.Context) ([]member, error) {
	leader, known := h.Leader(ctx)
	if !known {
		return nil, errors.New("no leader")
	}
	v, err := h.Debug(ctx, leader, "RAFT.MEMBERS")
	if err == nil {
		_, err = h.Debug(ctx, leader, "GET", "jepsen-probe")
	}
	if err != nil {
		return nil, err
	}
	if role, err := h.Debug(ctx, leader, "ROLE"); err != nil || len(role.Elems) == 0 || role.Elems[0].Str != "master" {
		return nil, errors.Join(errors.New(leader+" leads no more"), err)
	}
	var all []member
	for _, row := range v.Elems {
		all = append(all, member{
			field(row, "name").Str, field(row, "id").Str, field(row, "peer-address").Str,
			field(row, "voter").Num == 1,
		})
	}
	return all, nil
}

func field(row protocol.Value, name string) protocol.Value {
	for i := 0; i+1 < len(row.Elems); i += 2 {
		if row.Elems[i].Str == name {
			return row.Elems[i+1]
		}
	}
	return protocol.Value{}
}

// has reports whether a member with a name exists and satisfies a predicate.
func has(all []member, name string, as func(member) bool) bool {
	return slices.ContainsFunc(all, func(m member) bool { return m.name == name && as(m) })
}

func anyhow(member) bool { return true }

// Add implements [Membership].
func (h *Holdfast) Add(ctx context.Context, at string, vote bool) error {
	if err := h.Out(at); err != nil {
		return err
	}
	h.set(at, func(p *place) { p.in, p.joined, p.vote = true, true, vote })
	h.fleet.SetOut(at, false)
	if err := h.fleet.Start(at); err != nil {
		return err
	}
	return h.ask(ctx, func(all []member) bool { return has(all, at, func(m member) bool { return m.voter == vote }) }, at,
		"PING")
}

// leaves excuses the end of a node, which ends once it learns of its removal.
func (h *Holdfast) leaves(at string) {
	over := h.fleet.Excuse(at)
	h.set(at, func(p *place) {
		if p.over != nil {
			defer p.over()
		}
		p.over = over
	})
}

// Remove implements [Membership].
func (h *Holdfast) Remove(ctx context.Context, at string) error {
	h.leaves(at)
	return h.ask(ctx, func(all []member) bool { return !has(all, at, anyhow) }, at, "RAFT.REMOVE", at)
}

// Replace implements [Membership]. IDs make the command repeatable after a partial change.
func (h *Holdfast) Replace(ctx context.Context, at, by string) error {
	h.leaves(at)
	ids := map[string]string{}
	if err := h.ask(ctx, func(all []member) bool {
		for _, m := range all {
			ids[m.name] = m.id
		}
		return true
	}, at, "PING"); err != nil {
		return err
	}
	done := func(all []member) bool {
		return !has(all, at, anyhow) && has(all, by, func(m member) bool { return m.voter })
	}
	return h.ask(ctx, done, at, "RAFT.REPLACE", ids[at], ids[by])
}

// Force implements [Membership].
func (h *Holdfast) Force(ctx context.Context, at string, remove bool) error {
	leader, known := h.Leader(ctx)
	if !known {
		return errors.New("no leader")
	}
	word := "RAFT.DEMOTE"
	if remove {
		h.leaves(at)
		word = "RAFT.REMOVE"
	}
	return h.word(ctx, leader, word, at, "FORCE")
}

// Removed implements [Membership].
func (h *Holdfast) Removed(at string) bool {
	data, err := os.ReadFile(filepath.Join(h.c.DataDir(at), "identity.json"))
	var is struct{ State string }
	return err == nil && !h.fleet.Running(at) && json.Unmarshal(data, &is) == nil && is.State == "removed"
}

// Roll implements [Membership].
func (h *Holdfast) Roll(ctx context.Context) (map[string]bool, error) {
	all, err := h.members(ctx)
	roll := map[string]bool{}
	for _, m := range all {
		roll[m.name] = m.voter
	}
	return roll, err
}

// Vote implements [Membership].
func (h *Holdfast) Vote(ctx context.Context, at string, vote bool) error {
	word := "RAFT.DEMOTE"
	if vote {
		word = "RAFT.PROMOTE"
	}
	return h.ask(ctx, func(all []member) bool { return has(all, at, func(m member) bool { return m.voter == vote }) }, at,
		word, at)
}

// Lead implements [Membership].
func (h *Holdfast) Lead(ctx context.Context, at string) error {
	return h.word(ctx, at, "RAFT.TRANSFER", at)
}

// Move implements [Membership].
func (h *Holdfast) Move(ctx context.Context, at string) error {
	err := h.fleet.Kill(at)
	h.set(at, func(p *place) { p.peer = map[string]string{"peer": "peer2", "peer2": "peer"}[p.peer] })
	addr := h.c.Net.Listen(at, h.node(at).peer)
	if err = errors.Join(err, h.fleet.Kill(at), h.fleet.Start(at)); err != nil {
		return err
	}
	return h.ask(ctx, func(all []member) bool { return has(all, at, func(m member) bool { return m.address == addr }) },
		at, "PING")
}

// Twin implements [Membership].
func (h *Holdfast) Twin(at, of string) error {
	is := h.node(of)
	h.set(at, func(p *place) { p.twin, p.joined, p.vote = of, is.joined, is.vote })
	h.fleet.SetOut(at, false)
	return h.fleet.Start(at)
}

// Empty implements [Membership].
func (h *Holdfast) Empty(at string) error {
	was := h.fleet.isOut(at)
	h.fleet.SetOut(at, true)
	defer h.fleet.SetOut(at, was)
	if err := h.fleet.Kill(at); err != nil {
		return err
	}
	dir := h.c.DataDir(at)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries { // the folder itself may be a mount point
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// Out implements [Membership].
func (h *Holdfast) Out(at string) error {
	h.fleet.SetOut(at, true)
	err := h.Empty(at)
	h.set(at, func(p *place) {
		p.in, p.peer, p.twin, p.restored = false, "peer", "", false
		if p.over != nil {
			p.over()
			p.over = nil
		}
	})
	return err
}

// Backup implements [Backups].
func (h *Holdfast) Backup(ctx context.Context, via, file string) error {
	return h.tool(ctx, via, "backup", "--server", h.c.Net.Listen(via, "client"), "--password", h.c.Password, file)
}

// Restore implements [Backups].
func (h *Holdfast) Restore(ctx context.Context, at, file, raise string) error {
	if err := h.Out(at); err != nil {
		return err
	}
	err := h.tool(ctx, at, "restore", file, "--data-dir", h.c.DataDir(at), "--name", at, "--peer-addr",
		h.c.Net.Listen(at, "peer"), "--raise", raise)
	if err != nil {
		return err
	}
	h.set(at, func(p *place) { p.restored = true })
	h.fleet.SetOut(at, false)
	return h.fleet.Start(at)
}

// Recover implements [Backups].
func (h *Holdfast) Recover(ctx context.Context, at, of string) error {
	err := h.tool(ctx, at, "recover", "--data-dir", h.c.DataDir(at), "--peer-addr", h.c.Net.Listen(at, "peer"), "--yes")
	if err != nil {
		return err
	}
	h.set(at, func(p *place) { p.restored, p.twin = true, of })
	h.fleet.SetOut(at, false)
	return h.fleet.Start(at)
}

// tool runs a command of the program at a place until the command ends.
func (h *Holdfast) tool(ctx context.Context, at string, words ...string) error {
	cmd := h.c.Net.Command(at, h.c.Binary, words...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("holdfast %s: %w", words[0], err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("holdfast %s: %w: %s", words[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// Membership changes the members of a target. A place is in, and part of [Target.Members], from [Membership.Add] until
// [Membership.Out]; its node may meanwhile have no vote, or not be a member.
//
// Changes of the cluster are retried until they succeed or ctx ends.
type Membership interface {
	// Spares returns the places that are out.
	Spares() []string
	// Add starts a node with an empty folder at a place, and makes it a member.
	Add(ctx context.Context, place string, vote bool) error
	// Remove removes the member with a place's name, by way of the others. Its node runs until it learns of the
	// removal.
	Remove(ctx context.Context, place string) error
	// Replace lets the member at a place replace another member.
	Replace(ctx context.Context, place, by string) error
	// Force removes a member by force, or only its vote, in a single attempt. After an error the outcome is unknown.
	Force(ctx context.Context, place string, remove bool) error
	// Removed reports whether the node at a place has ended and its folder has the mark of a removed member.
	Removed(place string) bool
	// Roll returns whether each member, by name, has a vote, according to a verified leader.
	Roll(ctx context.Context) (map[string]bool, error)
	// Vote gives a member a vote, or takes it.
	Vote(ctx context.Context, place string, vote bool) error
	// Lead transfers leadership to a member with a vote.
	Lead(ctx context.Context, place string) error
	// Move restarts a node with another peer address.
	Move(ctx context.Context, place string) error
	// Twin starts a second process of a member at a spare place, on a copy of the member's folder. The place stays out,
	// and [Membership.Out] ends the process.
	Twin(place, of string) error
	// Empty kills a node and empties its folder. The node keeps its name, addresses and flags.
	Empty(place string) error
	// Out ends a node and empties its folder. The place stays without a node until Add, Twin or [Backups] use it.
	Out(place string) error
}

// Folders copies data folders that are not in the file system.
type Folders interface {
	CopyOf(place string) FolderCopy
}

// FolderCopy is a copy of the data folder at a place. Requires: the node does not run, except for Forget.
type FolderCopy interface {
	Make() error
	// PutBack replaces the folder by the copy.
	PutBack() error
	Forget() error
}

// Releases chooses among two programs for each node.
type Releases interface {
	// Run sets the program of the node at a place, from its next start on.
	Run(place string, r Release)
}

// Release is a program, and whether it holds the cluster version.
type Release int

// The releases.
const (
	This   Release = iota
	Held           // this release, which holds the previous release's cluster version
	Before         // the previous release
)

func (r Release) String() string {
	return [...]string{"this release", "this release, with the version held", "the release before"}[r]
}

// Backups makes and restores backups. A restored cluster is a single node at a spare place.
type Backups interface {
	// Backup writes a backup of the cluster to a file.
	Backup(ctx context.Context, via, file string) error
	// Restore starts a cluster from a backup at a place, and raises the integers in keys that match raise.
	// [Membership.Out] ends the cluster.
	Restore(ctx context.Context, place, file, raise string) error
	// Recover starts a cluster from the folder at a place, which is a copy of a member's.
	Recover(ctx context.Context, place, of string) error
}
