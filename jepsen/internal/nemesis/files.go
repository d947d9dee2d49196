package nemesis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/cluster"
	"github.com/holdfast/holdfast/jepsen/internal/workload"
)

// damaged kills a member and damages one of its files before the restart: a log of either kind, terms and votes, or the
// newest snapshot. Synced data is never removed, since no consensus survives that:
//
//   - torn: the write that a power cut interrupted. The member must recover.
//   - flipped: a changed bit in written data. The member must refuse to start, or do without the damaged data. After a
//     refusal the undamaged files are restored.
func damaged(start func(n *Nemesis, m, dir, backup string) error) inject {
	return func(n *Nemesis, ctx context.Context, s step) (effect, error) {
		members, leader := n.ordered(ctx, s)
		m := members[0]
		fleet := n.Target.Fleet()
		if err := fleet.Kill(m); err != nil {
			return effect{detail: role(m, leader)}, err
		}
		dir := n.DataDir(m)
		backup := dir + ".undamaged"
		if err := copyTree(backup, dir); err != nil {
			return effect{detail: role(m, leader), mend: func() error { return fleet.Start(m) }}, err
		}
		what, err := damage(dir, s.Fault, s.Rand())
		mend := func() error {
			defer os.RemoveAll(backup)
			return start(n, m, dir, backup)
		}
		return effect{detail: role(m, leader) + ": " + what, mend: mend}, err
	}
}

// startTorn starts a member with a torn store.
func (n *Nemesis) startTorn(m, _, _ string) error { return n.Target.Fleet().Start(m) }

// startFlipped starts a member with a flipped bit. If the member refuses, the undamaged files are restored.
func (n *Nemesis) startFlipped(m, dir, backup string) error {
	fleet := n.Target.Fleet()
	over := fleet.Excuse(m)
	defer over()
	if err := fleet.Start(m); err != nil {
		return err
	}
	for range 30 {
		workload.Sleep(context.Background(), 100*time.Millisecond)
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

// olderFolder is a folder and an older copy of it.
type olderFolder struct{ dir, older string }

func (n *Nemesis) copyOf(place string) cluster.FolderCopy {
	if f, ok := n.Target.(cluster.Folders); ok {
		return f.CopyOf(place)
	}
	dir := n.DataDir(place)
	return olderFolder{dir, dir + ".older"}
}

func (f olderFolder) Make() error { return copyTree(f.older, f.dir) }
func (f olderFolder) PutBack() error {
	return errors.Join(os.RemoveAll(f.dir), os.Rename(f.older, f.dir))
}
func (f olderFolder) Forget() error { return os.RemoveAll(f.older) }

// copyTree copies a folder and syncs the copy, which must survive a power cut like the synced original.
func copyTree(dst, src string) error {
	if err := os.RemoveAll(dst); err != nil {
		return fmt.Errorf("remove old copy: %w", err)
	}
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		return fmt.Errorf("copy store: %w", err)
	}
	return filepath.WalkDir(dst, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("sync copy of store: %w", err)
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
