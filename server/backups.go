package server

import (
	"context"
	"io"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/backup"
	"github.com/holdfast/holdfast/server/frontend"
)

// backups gives clients backups of the node's state.
type backups struct {
	s       *Server
	streams *backup.Streams
}

// newBackups makes the backups of a node whose replies have at most maxReply bytes.
func newBackups(s *Server, maxReply int) *backups {
	b := &backups{s: s}
	limits := backup.DefaultLimits()
	limits.ChunkBytes = min(limits.ChunkBytes, max(maxReply/2, 1))
	b.streams = backup.NewStreams(b.capture, limits)
	return b
}

// Begin implements [frontend.Backups].
func (b *backups) Begin(ctx context.Context, stale bool) (frontend.Backup, error) {
	stream, err := b.streams.Begin(ctx, stale)
	if err != nil {
		return nil, err
	}
	return &clientBackup{Stream: stream, aboutBytes: b.s.member.Load().Stats().UsedBytes}, nil
}

func (b *backups) capture(ctx context.Context, stale bool) (backup.Meta, io.WriterTo, error) {
	began := time.Now()
	c, err := b.s.member.Load().Capture(ctx, stale) // clients of a node without a cluster get no further
	if err != nil {
		return backup.Meta{}, nil, err
	}
	id := b.s.store.Identity()
	return backup.Meta{
		Release: protocol.HoldfastVersion, EntryVersion: int(c.State.Version()),
		ClusterID: id.ClusterID, NodeID: id.ID, Index: c.Index, Term: c.Term,
		TakenAt: began, ClusterTimeMillis: c.State.ClockMillis(), Stale: stale,
		Keys: c.State.Keys(), Locks: c.State.Locks(),
	}, c.State, nil
}

// clientBackup is a [frontend.Backup].
type clientBackup struct {
	*backup.Stream
	aboutBytes int64
}

// Source implements [frontend.Backup].
func (b *clientBackup) Source() frontend.BackupSource {
	m := &b.Meta
	return frontend.BackupSource{
		ClusterID: m.ClusterID, NodeID: m.NodeID, Index: m.Index, Term: m.Term, TakenAt: m.TakenAt,
		Keys: m.Keys, Locks: m.Locks, AboutBytes: b.aboutBytes,
	}
}

// Totals implements [frontend.Backup].
func (b *clientBackup) Totals() frontend.BackupTotals {
	s := b.Summary()
	return frontend.BackupTotals{Bytes: s.FileBytes, SHA256: s.SHA256}
}
