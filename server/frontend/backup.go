package frontend

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

var (
	errNoBackup  = protocol.NewError("no backup is being taken on this connection: RAFT.BACKUP BEGIN")
	errNotWhole  = protocol.NewError("the backup was given up: it had not been taken to its end")
	errNoBackups = protocol.NewError("this node takes no backups")
)

func backupHandlers() map[string]handler {
	return map[string]handler{"raft.backup": {reply: raftBackup, barrier: true}}
}

// raftBackup runs RAFT.BACKUP: BEGIN [STALE], NEXT until the reply is nil, END. The backup ends with the connection.
func raftBackup(c *conn, args [][]byte) protocol.Value {
	word := strings.ToLower(string(args[1]))
	stale := word == "begin" && len(args) == 3 && strings.EqualFold(string(args[2]), "stale")
	switch {
	case len(args) > 2 && !stale:
		return protocol.Err(errSyntax)
	case word == "begin":
		return c.beginBackup(stale)
	case word != "next" && word != "end":
		return protocol.Err(errSyntax)
	case c.backup == nil:
		return errNoBackup.Value()
	case word == "end":
		return c.endBackup()
	}
	part, err := c.backup.Next(c.ctx)
	switch {
	case err == io.EOF:
		return protocol.Null
	case err != nil:
		c.closeBackup()
		return protocol.Err(err.Error())
	}
	return protocol.Bulk(string(part))
}

func (c *conn) beginBackup(stale bool) protocol.Value {
	c.closeBackup()
	if c.srv.cfg.Backups == nil {
		return errNoBackups.Value()
	}
	var b Backup
	var err error
	c.whileConnected(func(ctx context.Context) { b, err = c.srv.cfg.Backups.Begin(ctx, stale) })
	var row *protocol.Error
	switch {
	case errors.As(err, &row):
		return row.Value()
	case err != nil:
		return protocol.Err(err.Error())
	}
	c.backup = b
	s := b.Source()
	c.srv.cfg.Logger.Info("backup begun", "client", c.nc.RemoteAddr(), "index", s.Index, "stale", stale)
	return protocol.Fields(
		"cluster-id", protocol.Bulk(s.ClusterID),
		"node-id", protocol.Bulk(s.NodeID),
		"index", protocol.Integer(int64(s.Index)),
		"term", protocol.Integer(int64(s.Term)),
		"taken-at-ms", protocol.Integer(s.TakenAt.UnixMilli()),
		"keys", protocol.Integer(int64(s.Keys)),
		"locks", protocol.Integer(int64(s.Locks)),
		"about-bytes", protocol.Integer(s.AboutBytes),
	)
}

// endBackup replies with the totals of the file, if the client has read all of it.
func (c *conn) endBackup() protocol.Value {
	b := c.backup
	_, err := b.Next(c.ctx)
	c.closeBackup()
	if err != io.EOF {
		return errNotWhole.Value()
	}
	t := b.Totals()
	c.srv.cfg.Logger.Info("backup taken", "client", c.nc.RemoteAddr(), "bytes", t.Bytes, "sha256", t.SHA256)
	return protocol.Fields("bytes", protocol.Integer(t.Bytes), "sha256", protocol.Bulk(t.SHA256))
}

// closeBackup ends the connection's backup, if there is one.
func (c *conn) closeBackup() {
	if c.backup != nil {
		c.backup.Close()
		c.backup = nil
	}
}
