package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/backup"
)

const backupUsage = `usage: holdfast backup [flags] FILE|-
       holdfast backup [flags] --keep N FOLDER

Takes a backup through any node, while the cluster serves. Every write that was acknowledged before is in it. FILE
appears when it is whole, and takes the place of an older one; - is the standard output.
`

// backupOwn are the flags of `holdfast backup`.
type backupOwn struct {
	clientFlags
	stale bool
	json  bool
	keep  int
}

const backupHeading = "The backup"

func (o *backupOwn) rows() []option {
	return append([]option{
		{heading: backupHeading},
		{name: "json", value: &o.json, help: "say what was written as a JSON document"},
		{
			name: "stale", value: &o.stale,
			help: "take what the node has, without asking the leader: for a node whose cluster has lost its majority",
		},
		{
			name: "keep", value: &o.keep,
			help: "name the backup by its time in FOLDER once 'restore --drill' has passed, and then remove the oldest of " +
				"such files but this many",
		},
	}, o.clientFlags.rows()...)
}

// backupTimeout bounds the request for one part of the file.
const backupTimeout = 20 * time.Second

// progressInterval is the time between two progress lines.
const progressInterval = 5 * time.Second

// takeBackup is `holdfast backup`.
func takeBackup(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := &backupOwn{clientFlags: newClientFlags()}
	path, err := parseFile(o.rows(), args, stdout, backupUsage, "say which file, or - for the standard output, "+
		"as in 'holdfast backup - | aws s3 cp - s3://BUCKET/NAME'")
	if err != nil {
		return err
	}
	servers, err := o.servers()
	if err != nil {
		return err
	}
	servers.Name = "holdfast-backup"
	p := &puller{servers: servers, stale: o.stale, json: o.json, file: path, stderr: stderr}
	switch {
	case o.keep < 0:
		return usageError{fmt.Errorf("keep %d: at least one", o.keep)}
	case o.keep > 0 && o.stale:
		return usageError{errors.New("stale is for a file: --keep would remove backups that are newer")}
	case o.keep > 0:
		return p.keep(ctx, path, o.keep, stdout)
	case path == "-":
		return p.pull(ctx, stdout, stderr)
	}
	if err := replaceable(path); err != nil {
		return err
	}
	return intoFile(path, func(w io.Writer) error { return p.pull(ctx, w, stdout) }, func(string) error { return nil })
}

const (
	// keptLayout is the name of a backup of --keep, before its suffix: the time, so that names sort by age.
	keptLayout    = "20060102T150405Z"
	keptSuffix    = ".bak"
	partialSuffix = ".partial-"
	// partialAge is longer than any backup takes: a younger partial file may still be written.
	partialAge = 12 * time.Hour
)

// keep takes a backup into the folder, verifies it with a drill before it gets its name, and then removes all but the
// newest n.
func (p *puller) keep(ctx context.Context, folder string, n int, stdout io.Writer) error {
	if info, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return usageError{fmt.Errorf("%s is no folder: make it first, or leave --keep out", folder)}
	}
	p.file = filepath.Join(folder, time.Now().UTC().Format(keptLayout)+keptSuffix)
	var said bytes.Buffer // printed once the file has its name
	drilled := io.Writer(&said)
	if p.json {
		drilled = p.stderr
	}
	err := intoFile(p.file, func(w io.Writer) error { return p.pull(ctx, w, &said) }, func(path string) error {
		return restoreDrill(ctx, path, p.file, newRestoreOwn(), drilled)
	})
	if err != nil {
		return err
	}
	_, unsaid := said.WriteTo(stdout)
	return errors.Join(unsaid, p.rotate(folder, n))
}

// rotate removes all backups of --keep but the newest n, and partial files of killed runs. Another run may remove the
// same files.
func (p *puller) rotate(folder string, n int) error {
	now := time.Now()
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var kept []string // oldest first
	for _, f := range files {
		stamp, rest, _ := strings.Cut(f.Name(), ".")
		taken, err := time.Parse(keptLayout, stamp)
		path := filepath.Join(folder, f.Name())
		switch {
		case err != nil || !f.Type().IsRegular():
		case "."+rest == keptSuffix && taken.After(now):
			fmt.Fprintf(p.stderr, "holdfast backup: %s is of the future: a clock was wrong; it stays, and is not counted\n", path)
		case "."+rest == keptSuffix:
			kept = append(kept, path)
		case strings.HasPrefix("."+rest, keptSuffix+partialSuffix) && now.Sub(taken) > partialAge:
			_ = os.Remove(path) // the next run tries again
		}
	}
	err = nil
	for _, path := range kept[:max(0, len(kept)-n)] {
		if failed := os.Remove(path); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// replaceable returns an error if path is not a regular file: a device such as /dev/null must not be replaced.
func replaceable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return usageError{fmt.Errorf("%s is a folder: say which file, or --keep with at least 1", path)}
	case !info.Mode().IsRegular():
		return usageError{fmt.Errorf("%s is no regular file: use - and redirect the output", path)}
	}
	return nil
}

// intoFile atomically replaces the file at path with the output of write, durably, after prove has accepted it. After
// an error the file is unchanged.
func intoFile(path string, write func(io.Writer) error, prove func(path string) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partialSuffix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err = write(f); err != nil {
		return err
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = prove(f.Name()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// puller takes a backup from the first node that has one.
type puller struct {
	servers *operator.Servers
	stale   bool
	json    bool
	file    string
	stderr  io.Writer
}

// pull writes the backup to w, and its description to said.
func (p *puller) pull(ctx context.Context, w, said io.Writer) error {
	conn, begun, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	proof := newProof()
	err = p.parts(ctx, conn, io.MultiWriter(w, proof), begun["about-bytes"].Num)
	summary, proved := proof.end(err)
	if err != nil {
		return err
	}
	if proved != nil {
		return fmt.Errorf("what the node sent is no backup: %w", proved)
	}
	v, err := conn.Do(ctx, "RAFT.BACKUP", "END")
	if err != nil {
		return err
	}
	if f := fieldsOf(v); f["bytes"].Num != summary.FileBytes || operator.Text(f["sha256"]) != summary.SHA256 {
		return errors.New("what the node sent did not arrive as it was")
	}
	if p.json {
		return writeJSON(said, backupDocument{
			Format: api.Format, File: p.file, Index: begun["index"].Num, NodeID: operator.Text(begun["node-id"]),
			Keys:  begun["keys"].Num,
			Bytes: summary.FileBytes, SHA256: summary.SHA256, Stale: p.stale,
		})
	}
	_, err = fmt.Fprintf(said, "backup of index %d by %s: %d keys, %d bytes, sha256 %s\n",
		begun["index"].Num, begun.text("node-id"), begun["keys"].Num, summary.FileBytes, summary.SHA256)
	return err
}

// begin asks one node after another to begin a backup.
func (p *puller) begin(ctx context.Context) (*operator.Conn, fields, error) {
	words := []string{"RAFT.BACKUP", "BEGIN"}
	if p.stale {
		words = append(words, "STALE")
	}
	var failed error
	for _, addr := range p.servers.Addrs {
		conn, err := p.servers.Dial(ctx, addr, backupTimeout)
		if err == nil {
			v, refused := conn.Do(ctx, words...)
			if refused == nil {
				return conn, fieldsOf(v), nil
			}
			conn.Close()
			err = fmt.Errorf("%s: %w", addr, refused)
		}
		failed = operator.Also(failed, err)
	}
	if !p.stale && failed != nil && strings.Contains(failed.Error(), "CLUSTERDOWN") {
		failed = fmt.Errorf("%w; if the majority is lost, --stale takes what a node has", failed)
	}
	return nil, nil, failed
}

// parts copies all parts to w.
func (p *puller) parts(ctx context.Context, conn *operator.Conn, w io.Writer, about int64) error {
	started := time.Now()
	said, got := started, int64(0)
	for {
		v, err := conn.Do(ctx, "RAFT.BACKUP", "NEXT")
		if err != nil || v.IsNull() {
			return err
		}
		n, err := io.WriteString(w, v.Str)
		if err != nil {
			return err
		}
		got += int64(n)
		if now := time.Now(); now.Sub(said) >= progressInterval {
			said = now
			rate := float64(got) / now.Sub(started).Seconds()
			fmt.Fprintf(p.stderr, "holdfast backup: %d MiB of about %d MiB, %.0f MiB/s\n", got>>20, max(about, got)>>20,
				rate/(1<<20))
		}
	}
}

// proof validates a backup while it is written.
type proof struct {
	*io.PipeWriter
	done    chan struct{}
	summary backup.Summary
	err     error
}

func newProof() *proof {
	r, w := io.Pipe()
	p := &proof{PipeWriter: w, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		file, err := backup.NewReader(r)
		if err == nil {
			_, err = io.Copy(io.Discard, file)
		}
		if err == nil {
			p.summary = file.Summary()
		}
		p.err = err
		_ = r.CloseWithError(err) // fails the next write
	}()
	return p
}

// end returns the summary, or an error if the backup was incomplete or damaged. failed is the error of the writer, or
// nil.
func (p *proof) end(failed error) (backup.Summary, error) {
	_ = p.CloseWithError(failed)
	<-p.done
	return p.summary, p.err
}

// fields is a map in a node's reply.
type fields map[string]protocol.Value

func fieldsOf(v protocol.Value) fields {
	f := make(fields)
	for i := 0; i+1 < len(v.Elems); i += 2 {
		f[v.Elems[i].Str] = v.Elems[i+1]
	}
	return f
}

func (f fields) text(name string) string { return printable(operator.Text(f[name])) }
