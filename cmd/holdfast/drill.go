package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/backup"
)

const (
	// drillTimeout bounds the wait until the node leads, and drillPause is the time between two attempts.
	drillTimeout = 10 * time.Minute
	drillPause   = 100 * time.Millisecond
)

// restoreDrill starts a node on the backup at path in a temporary folder, and checks that it has as many keys as the
// backup and gives a larger fence. The report on stdout names the file shown.
func restoreDrill(ctx context.Context, path, shown string, o *restoreOwn, stdout io.Writer) error {
	began := time.Now()
	var keys, locks int64
	err := serveBackup(ctx, path, o, func(ctx context.Context, c *server.Config, done *backup.Restored) (err error) {
		keys, locks, err = verifyServing(ctx, c, done)
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s can be restored: a node served its %d keys, %d locks among them, after %v\n",
		shown, keys, locks, time.Since(began).Round(time.Millisecond))
	return err
}

// serveBackup calls verify while a node serves a backup on loopback, with a random password and cluster secret that
// keep other users of the machine out.
func serveBackup(
	ctx context.Context, path string, o *restoreOwn,
	verify func(context.Context, *server.Config, *backup.Restored) error,
) error {
	dir, err := os.MkdirTemp("", "holdfast-drill-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	addrs, err := fleet.Reserve(2)
	if err != nil {
		return err
	}
	f, err := openFile(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	c := server.DefaultConfig()
	c.Addr, c.PeerAddr, c.DataDir = addrs[0], addrs[1], filepath.Join(dir, "data")
	c.Password, c.ClusterSecret, c.MaxMemory = rand.Text(), rand.Text(), "0"
	own := *o
	own.peerAddr, own.dataDir = c.PeerAddr, c.DataDir
	r, err := own.restoration()
	if err != nil {
		return err
	}
	r.Renewal.MinLeaseMillis = max(r.Renewal.MinLeaseMillis, time.Hour.Milliseconds()) // none ends meanwhile
	r.Begins = func(_ backup.Report, done fsm.Renewed) error { return raisedSome(&r.Renewal, &done) }
	done, err := backup.Restore(bufio.NewReaderSize(f, 1<<20), r)
	if err != nil {
		return aboutFile(path, aboutTime(err))
	}
	s, err := server.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel(s.Run(ctx))
	}()
	err = verify(ctx, &c, &done)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	cancel(nil)
	<-ended
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// verifyServing compares the node's keys and first fence with the backup's. Native locks may expire meanwhile.
func verifyServing(ctx context.Context, c *server.Config, done *backup.Restored) (keys, locks int64, err error) {
	servers := &operator.Servers{Addrs: []string{c.Addr}, Password: c.Password, Name: clientName("holdfast-drill")}
	conn, err := servers.DialAny(ctx, backupTimeout)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	survey := &done.Report.Survey
	fence, err := firstFence(ctx, conn)
	if err != nil {
		return 0, 0, err
	}
	if fence.Num <= int64(survey.Fences) {
		return 0, 0, fmt.Errorf("the node gave the fence %d, and the backup %d before", fence.Num, survey.Fences)
	}
	others := int64(survey.Keys() - done.Renewed.Dropped)
	for db, kinds := range survey.Kinds {
		others -= int64(kinds[keyspace.KindLock.String()])
		vs, err := conn.Pipeline(ctx, []string{"SELECT", strconv.Itoa(db)}, []string{"DBSIZE"})
		if err != nil {
			return 0, 0, err
		}
		keys += vs[1].Num
	}
	doc, err := lockQuery{db: -1}.look(ctx, conn)
	if err != nil {
		return 0, 0, err
	}
	kept := int64(done.Renewed.Kept.Locks)
	if native := keys - others; native < doc.Sums.Locks-doc.Sums.Stock || native > kept {
		return 0, 0, fmt.Errorf("the node has %d keys, where the backup has %d, and %d native locks", keys, others, kept)
	}
	return keys, doc.Sums.Locks, nil
}

// firstFence acquires a free lock once the node leads, releases it, and returns the reply with its fence.
func firstFence(ctx context.Context, conn *operator.Conn) (protocol.Value, error) {
	ctx, stop := context.WithTimeoutCause(ctx, drillTimeout, fmt.Errorf("no leader within %.0fm", drillTimeout.Minutes()))
	defer stop()
	key := "holdfast-drill-" + rand.Text()
	for {
		fence, err := conn.Do(ctx, "LOCK.ACQUIRE", key, key, "PX", "60000")
		switch {
		case err == nil:
			_, err = conn.Do(ctx, "LOCK.RELEASE", key, key)
			return fence, err
		case ctx.Err() != nil:
			return fence, context.Cause(ctx)
		case !fence.IsError() || errors.As(err, new(*operator.Refusal)):
			return fence, err
		}
		select { // there is no leader yet
		case <-time.After(drillPause):
		case <-ctx.Done():
			return fence, context.Cause(ctx)
		}
	}
}
