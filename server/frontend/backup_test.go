package frontend

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// twoParts is a Backups that allows one backup at a time. A backup has two parts, or none if it may be stale.
type twoParts struct {
	mu   sync.Mutex
	open int
}

func (p *twoParts) Begin(_ context.Context, stale bool) (Backup, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 {
		return nil, errors.New("one at a time")
	}
	p.open++
	b := &partsLeft{of: p, parts: []string{"one", "two"}}
	if stale {
		b.parts = nil
	}
	return b, nil
}

// partsLeft is a backup with the parts that Next has not returned yet. After the last part Next returns io.EOF.
type partsLeft struct {
	of     *twoParts
	parts  []string
	closed bool
}

func (b *partsLeft) Source() BackupSource {
	return BackupSource{
		ClusterID: "c", NodeID: "n1", Index: 42, Term: 3, TakenAt: time.UnixMilli(5), Keys: 7, Locks: 1,
		AboutBytes: 6,
	}
}

func (b *partsLeft) Next(context.Context) ([]byte, error) {
	if len(b.parts) == 0 {
		return nil, io.EOF
	}
	part := b.parts[0]
	b.parts = b.parts[1:]
	return []byte(part), nil
}

func (b *partsLeft) Totals() BackupTotals { return BackupTotals{Bytes: 6, SHA256: "abc"} }

func (b *partsLeft) Close() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.of.open--
	}
}
