package nemesis

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/schedule"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// stored is a file of a store.
type stored struct {
	path string
	// used is the number of bytes written; the rest is preallocated.
	used int64
}

// Sizes in bytes.
const (
	sector      = 512 // what a disk writes as a whole
	maxGarbage  = 300
	halfWritten = 700 // upper bound, of a snapshot
)

// damage changes or adds one file of a store, and describes the change. In half of the cases it hits the log, where
// most writes are.
func damage(dir, fault string, rng *rand.Rand) (string, error) {
	logs, others, err := files(dir)
	if err != nil {
		return "", err
	}
	if len(logs) == 0 {
		return "", fmt.Errorf("no log in %s", dir)
	}
	f := logs[len(logs)-1]
	if len(others) > 0 && rng.IntN(2) == 0 {
		f = others[rng.IntN(len(others))]
	}
	var what string
	switch {
	case fault == "store-flipped":
		what, err = flip(f, rng)
	case strings.HasSuffix(f.path, ".snap"):
		what, err = halfSnapshot(f, rng)
	default:
		what, err = scribble(f, rng)
	}
	if err != nil {
		return "", err
	}
	return what + " " + strings.TrimPrefix(f.path, dir+"/"), nil
}

// files lists the logs of a store, oldest first, and the other files: terms and votes,
// and the newest snapshot.
func files(dir string) (logs, others []stored, err error) {
	written := map[string]time.Time{}
	var snapshot stored
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		written[p] = info.ModTime()
		switch {
		case strings.HasSuffix(p, ".seg"):
			// A segment of zeros only is preallocated.
			if used, err := usedOfSegment(p); err != nil || used > 0 {
				logs = insert(logs, stored{p, used}, written)
				return err
			}
		case strings.HasSuffix(p, ".db"):
			used, err := usedOfBolt(p)
			if err != nil {
				return err
			}
			others = append(others, stored{p, used})
		case strings.HasSuffix(p, ".snap") && !info.ModTime().Before(written[snapshot.path]):
			snapshot = stored{p, info.Size()}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look for files: %w", err)
	}
	if snapshot.used > 0 {
		others = append(others, snapshot)
	}
	return logs, others, nil
}

// insert keeps the list ordered by time of last write.
func insert(list []stored, f stored, written map[string]time.Time) []stored {
	at := len(list)
	for at > 0 && written[list[at-1].path].After(written[f.path]) {
		at--
	}
	return append(list[:at:at], append([]stored{f}, list[at:]...)...)
}

// usedOfSegment returns the end of a segment's entries. A segment is preallocated, and the rest is zeros. Entries end
// at a multiple of 8 bytes, and may end with zeros themselves.
func usedOfSegment(path string) (int64, error) {
	data, err := os.ReadFile(path)
	used := int64(len(bytes.TrimRight(data, "\x00")))
	return (used + 7) &^ 7, err
}

// Byte offsets in bbolt's two meta pages, which are written in turn.
const (
	boltPageSize  = 16 + 8
	boltHighWater = 16 + 40
	boltTxid      = 16 + 48
	boltMetaEnd   = 16 + 64
)

// usedOfBolt returns the used size of a bbolt file, according to its newest meta page.
func usedOfBolt(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if len(data) < boltMetaEnd {
		return 0, errors.New("a database without a page")
	}
	order := binary.NativeEndian
	size := int64(order.Uint32(data[boltPageSize:]))
	if int64(len(data)) < size+boltMetaEnd || size < sector {
		return 0, errors.New("a database without a second page")
	}
	newest := data
	if two := data[size:]; order.Uint64(two[boltTxid:]) > order.Uint64(data[boltTxid:]) {
		newest = two
	}
	return int64(order.Uint64(newest[boltHighWater:])) * size, nil
}

// flip changes a bit in the used part of a file. It spares a segment's head, where damage is found too easily.
func flip(s stored, rng *rand.Rand) (string, error) {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("flip a bit: %w", err)
	}
	defer f.Close()
	from := s.used / 4
	if !strings.HasSuffix(s.path, ".seg") {
		from = 0
	}
	at := from + rng.Int64N(max(1, s.used-from))
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return "", fmt.Errorf("flip a bit: %w", err)
	}
	b[0] ^= 1 << rng.IntN(8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		return "", fmt.Errorf("flip a bit: %w", err)
	}
	return fmt.Sprintf("a bit at %d of %d in", at, s.used), nil
}

// corruptSnapshot flips a bit in the middle of a member's newest snapshot; ok is false without a snapshot. back undoes
// the change, if the file still exists.
func corruptSnapshot(dir string) (back func() error, ok bool, err error) {
	_, others, err := files(dir)
	if err != nil {
		return nil, false, err
	}
	for _, f := range others {
		if strings.HasSuffix(f.path, ".snap") {
			return func() error { return turn(f) }, true, turn(f)
		}
	}
	return nil, false, nil
}

// turn flips the lowest bit of the middle byte of a file, if it exists.
func turn(s stored) error {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("change a bit: %w", err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], s.used/2); err != nil {
		return fmt.Errorf("change a bit: %w", err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], s.used/2); err != nil {
		return fmt.Errorf("change a bit: %w", err)
	}
	return nil
}

// scribble appends garbage to a file, like an unfinished write. In a segment it begins in the sector after that of the
// next append, as if only later sectors had been written. In a database it is in a page that was never used, since the
// write of a meta page, one sector, is atomic.
func scribble(s stored, rng *rand.Rand) (string, error) {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("write garbage: %w", err)
	}
	defer f.Close()
	at := s.used
	if strings.HasSuffix(s.path, ".seg") {
		at = (at/sector + 1) * sector
	}
	garbage := noise(1+rng.IntN(maxGarbage), rng)
	if _, err := f.WriteAt(garbage, at); err != nil {
		return "", fmt.Errorf("write garbage: %w", err)
	}
	return fmt.Sprintf("%d bytes of garbage at %d of", len(garbage), at), nil
}

// halfSnapshot writes the first part of a snapshot under the name of an unfinished one.
func halfSnapshot(s stored, rng *rand.Rand) (string, error) {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return "", fmt.Errorf("copy half a snapshot: %w", err)
	}
	half := data[:rng.IntN(min(len(data), halfWritten))]
	if err := os.WriteFile(s.path+".tmp", half, 0o600); err != nil {
		return "", fmt.Errorf("copy half a snapshot: %w", err)
	}
	return fmt.Sprintf("%d bytes of what would have been", len(half)), nil
}

// noise returns random bytes that are not zero.
func noise(n int, rng *rand.Rand) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + rng.IntN(255))
	}
	return b
}

var stateFaults = []fault{
	{alone(kind("state-wrong", schedule.Raft, 12*second, 16*second, nil,
		"one node applies an entry wrongly; the others must find out, and the node must refuse its clients until its "+
			"state is replaced")), drawn, (*Nemesis).misapply},
}

const (
	// CheckInterval is the time between two comparisons of the members' states, the server's minimum.
	CheckInterval = 10 * time.Second
	// foundWithin bounds the time until a different state is detected: the interval, and the comparison itself.
	foundWithin = CheckInterval + 5*time.Second
	// repairWithin bounds the replacement of a state, including the next comparison.
	repairWithin = 40 * time.Second
)

// misapply makes one member apply an entry that no log has. The members must detect that within the interval.
func (n *Nemesis) misapply(ctx context.Context, s step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	m := members[0]
	if len(members) < 3 {
		return effect{detail: "no majority could say which member is wrong"}, nil
	}
	if leader == "" {
		return effect{detail: "no leader"}, nil
	}
	if err := firstError(
		func() error { return n.caughtUp(ctx, m, leader) }, // otherwise a snapshot would correct the state
		func() error { return n.hook(ctx, m, "CORRUPT") },
	); err != nil {
		return effect{detail: role(m, leader)}, err
	}
	// The wrong state must be repaired even if the run has ended.
	ctx, began := context.WithoutCancel(ctx), time.Now()
	detail := role(m, leader) + ", found after "
	if err := n.until(ctx, foundWithin, m+" is in quarantine", func() bool { return n.quarantined(ctx, m) }); err != nil {
		n.find("state: %s applied an entry wrongly, and went on for %s", m, foundWithin)
		detail = role(m, leader) + ", not found after "
	}
	detail += time.Since(began).Round(time.Second / 10).String()
	return effect{detail: detail, mend: func() error { return n.repair(m) }}, nil
}

// quarantined reports whether a member is in quarantine.
func (n *Nemesis) quarantined(ctx context.Context, m string) bool {
	_, err := n.Target.Debug(ctx, m, "EXISTS", "jepsen-state")
	return err != nil && strings.Contains(err.Error(), "state differs")
}

// repair asks another member to replace a member's state.
func (n *Nemesis) repair(m string) error {
	ctx, cancel := context.WithTimeout(context.Background(), repairWithin)
	defer cancel()
	for i := 0; ; i++ {
		others := n.Target.Members()
		if other := others[i%len(others)]; other != m {
			_, _ = n.Target.Debug(ctx, other, "RAFT.REPAIR", m) // refused once m has left quarantine
		}
		if _, err := n.Target.Debug(ctx, m, "EXISTS", "jepsen-state"); err == nil {
			return nil
		}
		if !workload.Sleep(ctx, time.Second) {
			n.find("state: the state of %s was not replaced within %s", m, repairWithin)
			return ctx.Err()
		}
	}
}
