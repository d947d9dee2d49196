package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/backup"
)

const (
	// drillWithin is how long the node may take until it serves, and drillPause the time between two questions.
	drillWithin = 10 * time.Minute
	drillPause  = 100 * time.Millisecond
)

// restoreDrill proves that a backup can be restored: a node starts on it in a temporary folder, on loopback, and has all
// keys and no fence twice. Nothing is left of it.
func restoreDrill(ctx context.Context, path string, stdout io.Writer) error {
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
	o := newRestoreOwn()
	o.name, o.peerAddr, o.dataDir, o.minLease = "drill", addrs[1], filepath.Join(dir, "data"), time.Hour
	r, err := o.restoration()
	if err != nil {
		return err
	}
	began := time.Now()
	done, err := backup.Restore(bufio.NewReaderSize(f, 1<<20), r)
	if err != nil {
		return aboutFile(path, aboutTime(err))
	}
	c := server.DefaultConfig()
	c.Name, c.Addr, c.PeerAddr, c.DataDir = o.name, addrs[0], o.peerAddr, o.dataDir
	s, err := server.New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, drillWithin)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel(s.Run(ctx))
	}()
	keys, locks, err := drilled(ctx, addrs[0], &done.Report)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	cancel(nil)
	<-ended
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = fmt.Fprintf(stdout, "%s can be restored: a node served its %d keys, %d locks among them, after %v\n",
		path, keys, locks, time.Since(began).Round(time.Millisecond))
	return err
}

// drilled asks the node for what the backup has.
func drilled(ctx context.Context, addr string, report *backup.Report) (keys, locks int64, err error) {
	servers := &operator.Servers{Addrs: []string{addr}, Name: clientName("holdfast-drill")}
	conn, err := servers.DialAny(ctx, backupPatience)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	fence, err := firstFence(ctx, conn)
	if err != nil {
		return 0, 0, err
	}
	if fence.Num <= int64(report.Survey.Fences) {
		return 0, 0, fmt.Errorf("the node gave the fence %d, and the backup %d before", fence.Num, report.Survey.Fences)
	}
	for db := range protocol.MaxDatabases {
		vs, err := conn.Pipeline(ctx, []string{"SELECT", strconv.Itoa(db)}, []string{"DBSIZE"})
		if err != nil {
			return 0, 0, err
		}
		keys += vs[1].Num
	}
	if want := int64(report.Survey.Keys()); keys != want {
		return 0, 0, fmt.Errorf("the node has %d keys, where the backup has %d", keys, want)
	}
	doc, err := lockQuery{db: -1}.look(ctx, conn)
	return keys, doc.Sums.Locks, err
}

// firstFence takes a lock that no client has, and gives it back, once the node serves.
func firstFence(ctx context.Context, conn *operator.Conn) (protocol.Value, error) {
	const key = "holdfast-drill"
	for {
		fence, err := conn.Do(ctx, "LOCK.ACQUIRE", key, key, "PX", "60000")
		if err == nil {
			_, err = conn.Do(ctx, "LOCK.RELEASE", key, key)
			return fence, err
		}
		if errors.As(err, new(*operator.Refusal)) {
			return fence, err
		}
		select { // there is no leader yet
		case <-time.After(drillPause):
		case <-ctx.Done():
			return fence, ctx.Err()
		}
	}
}
