package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/server/api"
)

// maxNote is what the cluster takes as a note.
const maxNote = 1024

// lockOwn are the flags of `holdfast lock`.
type lockOwn struct {
	clientFlags
	lock       holder.Lock
	grace      time.Duration
	now        bool
	notGranted int
	verbose    bool
}

func newLockOwn() *lockOwn {
	return &lockOwn{
		clientFlags: newClientFlags(),
		lock:        holder.Lock{TTL: 10 * time.Second, Wait: 30 * time.Second},
		grace:       10 * time.Second,
		notGranted:  statusNotGranted,
	}
}

func (o *lockOwn) rows() []option {
	return append([]option{
		{heading: "The lock"},
		{
			name: "ttl", value: &o.lock.TTL,
			help: "how long the lock stays taken when this machine or program, or the node it talks to, is gone or frozen; " +
				"at least 1s",
		},
		{name: "wait", value: &o.lock.Wait, help: "how long to wait in line; 0: not at all; negative: for ever"},
		{name: "n", value: &o.now, help: "do not wait: as --wait 0"},
		{name: "E", value: &o.notGranted, help: "the exit status if the lock is not granted because others have it"},
		{
			name: "verbose", value: &o.verbose,
			help: "say for whom the lock is waited for, also where the error output is no terminal",
		},
		{name: "shared", value: &o.lock.Shared, help: "share the lock with others that do"},
		{
			name: "limit", value: &o.lock.Limit,
			help: "at most so many at a time, as everybody who wants the lock must say; 0: one",
		},
		{name: "permits", value: &o.lock.Permits, help: "how many of limit to take; 0: one"},
		{
			name: "delay", value: &o.lock.Delay,
			help: "how long nobody gets the lock after it is lost: with grace or more the command has surely ended by then",
		},
		{name: "grace", value: &o.grace, help: "after a loss, from SIGTERM to SIGKILL"},
		{
			name: "note", value: &o.lock.Note,
			help: "what 'holdfast locks' shows beside the owner; default: the command's name",
		},
	}, o.lockRows()...)
}

const lockUsage = `usage: holdfast lock [flags] NAME [flags] [--] command [arguments]

Takes the lock NAME, runs the command, and gives the lock back when the command ends. The command has HOLDFAST_LOCK,
HOLDFAST_OWNER and HOLDFAST_FENCE in its environment, and its exit status is this program's; 128 + n after signal n.
Status 75: the lock was lost, and the command was ended. 69, or what -E says: others have the lock; the line names one.
1: no node could be asked, or none lets this client in, with one line that says why.
`

// lock runs a command while it holds a lock.
func lock(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := newLockOwn()
	words, err := parseRows(o.rows(), args, stdout, lockUsage)
	if err == nil && len(words) > 1 && strings.HasPrefix(words[1], "-") { // NAME [flags] -- command
		var command []string
		command, err = parseFlags(o.rows(), words[1:], stdout, lockUsage)
		words = append(words[:1:1], command...)
	}
	if err != nil {
		return err
	}
	if err := o.check(words); err != nil {
		return err
	}
	servers, err := o.servers()
	if err != nil {
		return err
	}
	path, err := findCommand(words[1])
	if err != nil {
		return err
	}
	o.lock.Name, o.lock.Owner = words[0], newOwner()
	if o.lock.Note == "" {
		o.lock.Note = filepath.Base(words[1])
		o.lock.Note = o.lock.Note[:min(len(o.lock.Note), maxNote)]
	}
	if o.now {
		o.lock.Wait = 0
	}
	h := holder.New(servers, o.lock)
	defer h.Close()
	if _, _, terminal := terminalSize(stderr)(); terminal || o.verbose {
		h.InLine = func(ctx context.Context, c *holder.Conn) { o.printHolder(ctx, c, stderr) }
	}
	if err := acquire(ctx, h, o.lock.Name); err != nil {
		return o.whyNot(ctx, h, err)
	}
	g := &guard{
		holder: h, name: o.lock.Name, grace: o.grace, margin: o.lock.TTL / 20,
		job: newJob(path, words[1:], lockEnvironment(o.lock, h.Fence())),
	}
	return g.run()
}

func (o *lockOwn) check(words []string) error {
	var wrong error
	switch {
	case len(words) == 0:
		wrong = errors.New("say which lock: holdfast lock NAME -- command")
	case len(words) == 1:
		wrong = errors.New("say which command: holdfast lock NAME -- command")
	case words[0] == "":
		wrong = errors.New("the name is empty")
	case o.lock.TTL < time.Second:
		wrong = fmt.Errorf("ttl %v: at least 1s", o.lock.TTL)
	case o.lock.Limit < 0:
		wrong = fmt.Errorf("--limit %d: at least 1", o.lock.Limit)
	case o.lock.Permits < 0:
		wrong = fmt.Errorf("--permits %d: at least 1", o.lock.Permits)
	case o.lock.Permits > 1 && o.lock.Limit == 0:
		wrong = fmt.Errorf("--permits %d needs --limit", o.lock.Permits)
	case o.lock.Permits > max(1, o.lock.Limit):
		wrong = fmt.Errorf("--permits %d is more than --limit %d", o.lock.Permits, o.lock.Limit)
	case len(o.lock.Note) > maxNote:
		wrong = fmt.Errorf("--note has %d bytes: at most %d", len(o.lock.Note), maxNote)
	case o.lock.Shared && o.lock.Limit > 0:
		wrong = errors.New("shared and limit exclude each other")
	case o.notGranted < 0, o.notGranted > 255:
		wrong = fmt.Errorf("-E %d: from 0 to 255", o.notGranted)
	case o.lock.Delay < 0, o.grace < 0:
		wrong = errors.New("delay and grace are not negative")
	default:
		return nil
	}
	return usageError{wrong}
}

// findCommand finds the program before anybody waits for the lock, and fails as shells do.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // the path names the present folder
		return path, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", exitStatus{statusNotExecutable, err.Error()}
	case errors.Is(err, exec.ErrNotFound) && isInPath(name):
		return "", exitStatus{statusNotExecutable, fmt.Sprintf("%s: no program", name)}
	default:
		return "", exitStatus{statusNotFound, err.Error()}
	}
}

// isInPath reports whether a folder of the path has a file of that name.
func isInPath(name string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// newOwner is never the same twice: two processes with one owner would share the lock.
func newOwner() string {
	host, _ := os.Hostname()
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	return host[:min(len(host), 200)] + ":" + strconv.Itoa(os.Getpid()) + ":" + hex.EncodeToString(random)
}

func lockEnvironment(l holder.Lock, fence int64) []string {
	return append(os.Environ(), "HOLDFAST_LOCK="+l.Name, "HOLDFAST_OWNER="+l.Owner, "HOLDFAST_FENCE="+
		strconv.FormatInt(fence, 10))
}

// acquire waits for the lock until a signal says that nobody wants it any more.
func acquire(ctx context.Context, h *holder.Holder, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, heeded(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)...)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			cancel(exitStatus{status: statusSignal + int(s.(syscall.Signal))})
		case <-ctx.Done():
		}
	}()
	err := h.Acquire(ctx)
	if cause := (exitStatus{}); errors.As(context.Cause(ctx), &cause) {
		h.Close()
		if cause.status == statusSignal+int(syscall.SIGINT) {
			dieOf(syscall.SIGINT, os.Getpid())
		}
		return cause
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// present is what the cluster says of the lock now.
func (o *lockOwn) present(ctx context.Context, c *holder.Conn) (l api.Lock, there bool) {
	vs, err := c.Pipeline(ctx, []string{"TIME"}, []string{"LOCK.INFO", o.lock.Name})
	if err != nil || len(vs[0].Elems) != 2 || vs[1].IsError() {
		return l, false
	}
	l, there, err = api.LockOf(vs[1], o.lock.Name, o.db, timeOf(vs[0]))
	return l, there && err == nil
}

// printHolder prints who holds the lock, and the place in line.
func (o *lockOwn) printHolder(ctx context.Context, c *holder.Conn, stderr io.Writer) {
	l, there := o.present(ctx, c)
	if !there {
		return
	}
	if text := inLine(&l, o.lock.Owner); text != "" {
		fmt.Fprintf(stderr, "holdfast lock: waiting for %s: %s\n", printable(o.lock.Name), text)
	}
}

// inLine is the place of an owner in line, and who holds the lock; empty: the owner does not wait.
func inLine(l *api.Lock, owner string) string {
	place := 1 + slices.IndexFunc(l.Waiters, func(w api.Wait) bool { return w.Owner == owner })
	if place == 0 {
		return ""
	}
	return ordinal(place) + " in line" + behind(l)
}

// behind says what a lock waits for.
func behind(l *api.Lock) string {
	switch {
	case len(l.Holders) > 0:
		return ", " + heldBy(l)
	case l.DelayLeftMillis > 0:
		return ", nobody gets it for " + duration(l.DelayLeftMillis) + " after a loss"
	}
	return ""
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		suffix = cmp.Or(map[int]string{1: "st", 2: "nd", 3: "rd"}[n%10], suffix)
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// answerWithin is how long the cluster may take to say who has a lock that was not granted.
const answerWithin = time.Second

// whyNot adds to an error who has the lock. The status is -E's only if the cluster itself did not grant the lock.
func (o *lockOwn) whyNot(ctx context.Context, h *holder.Holder, err error) error {
	if cause := errors.Unwrap(err); cause != holder.ErrNotGranted {
		return err
	}
	text := err.Error()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if c := h.Conn(); c != nil {
		if l, there := o.present(ctx, c); there {
			text += behind(&l)
		}
	}
	return exitStatus{o.notGranted, text}
}
