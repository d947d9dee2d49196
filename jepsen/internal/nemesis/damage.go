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
	// used is how many bytes count. The rest is unused so far.
	used int64
}

// Sizes in bytes.
const (
	sector      = 512 // what a disk writes as a whole
	maxGarbage  = 300
	halfWritten = 700 // at most, of a snapshot
)

// damage changes or adds one file of a store and says which. Half the time
// the log is changed, where most writes go.
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
			// A segment that is all zero is only prepared.
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

// insert keeps a list in order of the files' last writes.
func insert(list []stored, f stored, written map[string]time.Time) []stored {
	at := len(list)
	for at > 0 && written[list[at-1].path].After(written[f.path]) {
		at--
	}
	return append(list[:at:at], append([]stored{f}, list[at:]...)...)
}

// usedOfSegment finds where what was appended ends: segments are made longer than
// used, and the rest is zero. Appends end on an 8 byte boundary and may themselves end
// with zeros: they were synced.
func usedOfSegment(path string) (int64, error) {
	data, err := os.ReadFile(path)
	used := int64(len(bytes.TrimRight(data, "\x00")))
	return (used + 7) &^ 7, err
}

// Where the meta pages of bbolt keep what is needed here, in bytes. There are two, written by turns.
const (
	boltPageSize  = 16 + 8
	boltHighWater = 16 + 40
	boltTxid      = 16 + 48
	boltMetaEnd   = 16 + 64
)

// usedOfBolt is how much of a bbolt file the newest meta page says was ever used.
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

// flip changes a bit of what counts in a file; of a segment not in its head, as that it is no
// log at all is too easily found.
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

// rotten changes a bit in the middle of a member's newest snapshot, and returns what changes it back, unless the file
// is gone; false: there is no snapshot.
func rotten(dir string) (back func() error, ok bool, err error) {
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

// turn changes the lowest bit in the middle of a file, if the file is there.
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

// scribble writes garbage where the next write would have gone. In a segment that is behind the sector
// where the next append would begin: some sectors are there, others are not. In a
// database the tail is a page that was never used: meta pages are a sector each, and so never half written.
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

// halfSnapshot leaves the beginning of a snapshot that was being written, under the name
// that one has until it is whole.
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

// noise is bytes that are not zero.
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
	// CheckInterval is between two comparisons of the members' states: the least that the server takes.
	CheckInterval = 10 * time.Second
	// foundWithin is how long a state that differs may go unnoticed: an interval, and the time to hash and to ask.
	foundWithin = CheckInterval + 5*time.Second
	// repairWithin is how long the replacement may take, with the next comparison.
	repairWithin = 40 * time.Second
)

// misapply has one member apply an entry that is in no log. The members must find out within the interval.
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
		func() error { return n.caughtUp(ctx, m, leader) }, // else a snapshot would bring a right state
		func() error { return n.hook(ctx, m, "CORRUPT") },
	); err != nil {
		return effect{detail: role(m, leader)}, err
	}
	// The end of the run is no reason to stop: a wrong state must not be left behind.
	ctx, began := context.WithoutCancel(ctx), time.Now()
	detail := role(m, leader) + ", found after "
	if err := n.until(ctx, foundWithin, m+" is in quarantine", func() bool { return n.quarantined(ctx, m) }); err != nil {
		n.find("state: %s applied an entry wrongly, and went on for %s", m, foundWithin)
		detail = role(m, leader) + ", not found after "
	}
	detail += time.Since(began).Round(time.Second / 10).String()
	return effect{detail: detail, mend: func() error { return n.repair(m) }}, nil
}

// quarantined reports whether a member refuses clients as its state differs.
func (n *Nemesis) quarantined(ctx context.Context, m string) bool {
	_, err := n.Target.Debug(ctx, m, "EXISTS", "jepsen-state")
	return err != nil && strings.Contains(err.Error(), "state differs")
}

// repair has a member's state replaced, through the others.
func (n *Nemesis) repair(m string) error {
	ctx, cancel := context.WithTimeout(context.Background(), repairWithin)
	defer cancel()
	for i := 0; ; i++ {
		others := n.Target.Members()
		if other := others[i%len(others)]; other != m {
			_, _ = n.Target.Debug(ctx, other, "RAFT.REPAIR", m) // refused when m is not in quarantine any more
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
