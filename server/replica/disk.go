package replica

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// The reserve of a disk is the size of the state with 1/stateShare more, for the next snapshot, and logReserve, for
	// the log meanwhile, but of that at most 1/logShare of the disk. A disk is full until 1/stateShare more than the
	// reserve is free.
	logReserve = 128 << 20
	logShare   = 4
	stateShare = 8
	// fullBytesPerSecond bounds the bytes of entries while disks are full, so that snapshots keep up with the log.
	fullBytesPerSecond = 8 << 20
)

// disk has the room of this node's disk, and of the cluster's disks. A disk is called full if less than its reserve is
// free: what goes on then still needs room.
type disk struct {
	noted   chan struct{} // signals news of a disk
	refuses atomic.Bool   // see [Replica.DiskFull]

	mu                   sync.Mutex
	free, total, reserve uint64 // bytes of this node's disk; all 0 while unknown
	full                 bool   // this node's disk is full
}

// NoteSpace notes the free bytes and the size of this node's disk. It must be called about every second.
func (r *Replica) NoteSpace(free, total uint64) {
	d := &r.disk
	d.mu.Lock()
	d.free, d.total = free, total
	d.mu.Unlock()
	notify(d.noted)
}

// watchDisk judges the disks each time that there is news of one, until ctx ends. It waits for the state machine, as
// NoteSpace must not.
func (r *Replica) watchDisk(ctx context.Context) error {
	var told []string
	for {
		select {
		case <-r.disk.noted:
		case <-ctx.Done():
			return nil
		}
		stateBytes := r.machine.Stats().UsedBytes
		full := r.disk.judge(uint64(stateBytes))
		r.addresses.setDiskFull(r.config.ID, full)
		r.toLeader.SetDiskFull(full)
		r.node.SetDiskFull(full, stateBytes)
		_, leader := r.node.Leader()
		all := r.members()
		e := DiskFull{Refuses: areFull(all, leader)}
		r.disk.refuses.Store(e.Refuses)
		for _, m := range all {
			if m.DiskFull {
				e.Members = append(e.Members, m.Name)
			}
		}
		if !slices.Equal(e.Members, told) {
			told = e.Members
			e.Free, e.Reserve = r.Space()
			r.event(e)
		}
		if to := withRoom(all, leader); full && leader == r.config.ID && to != "" {
			r.askOthers(func() { r.leaveTo(ctx, to) })
		}
	}
}

// leaveTo has the voter with the ID lead. The next look at the disks repeats what fails.
func (r *Replica) leaveTo(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, r.config.CommandTimeout)
	defer cancel()
	if err := r.TransferLeadership(ctx, id); err != nil && ctx.Err() == nil {
		r.config.Logger.Warn("the disk is nearly full, and another voter does not lead yet", "error", err)
	}
}

// judge reports whether the disk is full, beside a state of stateBytes.
func (d *disk) judge(stateBytes uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.total == 0 {
		return false
	}
	d.reserve = stateBytes + stateBytes/stateShare + min(logReserve, d.total/logShare)
	least := d.reserve
	if d.full {
		least += least / stateShare
	}
	d.full = d.free < least
	return d.full
}

// Space returns the free bytes of this node's disk and its reserve, or zeros while they are unknown.
func (r *Replica) Space() (free, reserve uint64) {
	r.disk.mu.Lock()
	defer r.disk.mu.Unlock()
	return r.disk.free, r.disk.reserve
}

// DiskFull reports whether commands that may make the state grow are refused: the leader's disk is full, or so many
// others are that a majority without them is not left.
func (r *Replica) DiskFull() bool { return r.disk.refuses.Load() }

// areFull reports whether the disk of the leader is full, or some disks are and fewer voters than a majority have room
// and answer.
func areFull(all []Member, leader string) bool {
	_, quorum := Majority(all)
	room, full := 0, false
	for _, m := range all {
		switch {
		case m.DiskFull && m.ID == leader:
			return true
		case hasRoom(&m, leader):
			room++
		case m.DiskFull:
			full = full || m.Voter
		}
	}
	return full && room < quorum
}

// hasRoom reports whether a member is a voter that has room and answers.
func hasRoom(m *Member, leader string) bool {
	return m.Voter && !m.DiskFull && (!m.Silent || m.ID == leader)
}

// withRoom returns the ID of the voter with the longest log, other than the leader, that has room and answers, or "" if
// fewer than a majority do.
func withRoom(all []Member, leader string) string {
	_, quorum := Majority(all)
	var best Member
	for _, m := range all {
		if m.ID == leader || !hasRoom(&m, leader) {
			continue
		}
		quorum--
		if best.ID == "" || m.LogIndex > best.LogIndex {
			best = m
		}
	}
	if quorum > 0 {
		return ""
	}
	return best.ID
}
