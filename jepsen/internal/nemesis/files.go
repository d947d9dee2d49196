package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// store kills a member and damages one of its files before it comes back: its log of either kind, its
// terms and votes, or its newest snapshot. Nothing that was synced is taken away, as no
// consensus survives that:
//
//   - torn: what a power cut in the middle of a write leaves. The member must recover.
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
