package nemesis

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// store kills a member and damages its log before it comes back. Nothing that was synced is taken
// away, as no consensus survives that:
//
//   - torn: garbage in the sector after the one where the next append would begin, as a power cut in the
//     middle of an append leaves it: some of its sectors are there, others are not. The member must recover.
//   - flipped: a bit changed within what was written. The member must refuse, or do without what was
//     damaged; after a refusal its undamaged files are put back.
func (n *Nemesis) store(ctx context.Context, s schedule.Step) (effect, error) {
	members, leader := n.ordered(ctx, s)
	m := members[0]
	fleet := n.Target.Fleet()
	if err := fleet.Kill(m); err != nil {
		return effect{detail: role(m, leader)}, err
	}
	dir := n.DataDir(m)
	backup := dir + ".undamaged"
	if err := copyTree(backup, dir); err != nil {
		return effect{role(m, leader), func() error { return fleet.Start(m) }}, err
	}
	what, err := damage(dir, s.Fault, rand.New(rand.NewPCG(uint64(s.At), uint64(s.For))))
	detail := role(m, leader) + ": " + what
	mend := func() error {
		defer os.RemoveAll(backup)
		if s.Fault == "store-torn" {
			return fleet.Start(m)
		}
		return n.startDamaged(m, dir, backup)
	}
	return effect{detail, mend}, err
}

// startDamaged starts a member whose store was flipped. If it refuses, its own files come back.
func (n *Nemesis) startDamaged(m, dir, backup string) error {
	fleet := n.Target.Fleet()
	over := fleet.Excuse(m)
	defer over()
	if err := fleet.Start(m); err != nil {
		return err
	}
	for range 30 {
		sleep(context.Background(), 100*time.Millisecond)
		if !fleet.Running(m) {
			n.Log.Info("store refused", "member", m)
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove damaged store: %w", err)
			}
			if err := copyTree(dir, backup); err != nil {
				return err
			}
			return fleet.Start(m)
		}
	}
	return nil
}

// damage changes one file of a store and says which.
func damage(dir, fault string, rng *rand.Rand) (string, error) {
	path, end, err := newestLog(dir)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("open log: %w", err)
	}
	defer f.Close()
	name := strings.TrimPrefix(path, dir+"/")
	if fault == "store-torn" {
		garbage := make([]byte, 1+rng.IntN(300))
		for i := range garbage {
			garbage[i] = byte(1 + rng.IntN(255))
		}
		end = (end/sector + 1) * sector
		if _, err := f.WriteAt(garbage, end); err != nil {
			return "", fmt.Errorf("write garbage: %w", err)
		}
		return fmt.Sprintf("%d bytes of garbage at %d of %s", len(garbage), end, name), nil
	}
	// Not in a file's head: that it is no log at all is too easily found.
	at := end/4 + rng.Int64N(max(1, end-end/4))
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return "", fmt.Errorf("read log: %w", err)
	}
	b[0] ^= 1 << rng.IntN(8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		return "", fmt.Errorf("flip a bit: %w", err)
	}
	return fmt.Sprintf("a bit at %d of %d in %s", at, end, name), nil
}

// sector is what a disk writes as a whole.
const sector = 512

// newestLog finds the log file written last, and where what was written in it ends:
// segments are made longer than they are used, and the rest is zero. One that is all zero is
// only prepared.
func newestLog(dir string) (path string, end int64, err error) {
	var newest time.Time
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !strings.HasSuffix(p, ".seg") {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.ModTime().Before(newest) {
			return err
		}
		data, err := os.ReadFile(p)
		if used := int64(len(bytes.TrimRight(data, "\x00"))); used > 0 {
			path, newest, end = p, info.ModTime(), used
		}
		return err
	})
	if err != nil {
		return "", 0, fmt.Errorf("look for the log: %w", err)
	}
	if path == "" {
		return "", 0, fmt.Errorf("no log segment in %s", dir)
	}
	// Appends end on an 8 byte boundary and may themselves end with zeros: they were synced.
	return path, (end + 7) &^ 7, nil
}

// copyTree copies a folder.
func copyTree(dst, src string) error {
	if err := os.RemoveAll(dst); err != nil {
		return fmt.Errorf("remove old copy: %w", err)
	}
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		return fmt.Errorf("copy store: %w", err)
	}
	return nil
}
