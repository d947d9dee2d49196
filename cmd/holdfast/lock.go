package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/clients/go/holdfast"
)

// maxNote bounds a note, in bytes.
const maxNote = 1024

// lockOwn are the flags of `holdfast lock`.
type lockOwn struct {
	clientFlags
	name           string
	note           string
	shared         bool
	limit, permits int           // of a semaphore, 0 for none
	wait           time.Duration // 0 for no wait, negative for no limit
	ttl            time.Duration
	delay          time.Duration
	grace          time.Duration
	now            bool
	notGranted     int
	verbose        bool
}

func newLockOwn() *lockOwn {
	return &lockOwn{
		clientFlags: newClientFlags(),
		ttl:         10 * time.Second,
		wait:        30 * time.Second,
		grace:       10 * time.Second,
		notGranted:  statusNotGranted,
	}
}

func (o *lockOwn) rows() []option {
	return append([]option{
		{heading: "The lock"},
		{
			name: "ttl", value: &o.ttl,
			help: "how long the lock stays taken when this machine or program, or the node it talks to, is gone or frozen; " +
				"at least 1s",
		},
		{name: "wait", value: &o.wait, help: "how long to wait in line; 0: not at all; negative: for ever"},
		{name: "n", value: &o.now, help: "do not wait: as --wait 0"},
		{name: "E", value: &o.notGranted, help: "the exit status if the lock is not granted because others have it"},
		{
			name: "verbose", value: &o.verbose,
			help: "say for whom the lock is waited for, also where the error output is no terminal",
		},
		{name: "shared", value: &o.shared, help: "share the lock with others that do"},
		{
			name: "limit", value: &o.limit,
			help: "at most so many at a time, as everybody who wants the lock must say; 0: one",
		},
		{name: "permits", value: &o.permits, help: "how many of limit to take; 0: one"},
		{
			name: "delay", value: &o.delay,
			help: "how long nobody gets the lock after it is lost: with grace or more the command has surely ended by then",
		},
		{name: "grace", value: &o.grace, help: "after a loss, from SIGTERM to SIGKILL"},
		{
			name: "note", value: &o.note,
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
	o.name = words[0]
	if o.note == "" {
		o.note = filepath.Base(words[1])
		o.note = o.note[:min(len(o.note), maxNote)]
	}
	dials := dialer{failed: make(chan struct{})}
	client, err := holdfast.New(holdfast.Config{
		Addrs: servers.Addrs, User: servers.User, Password: servers.Password, TLS: servers.TLS, DB: servers.DB,
		Name: "holdfast-lock", TTL: o.ttl, Dial: dials.dial,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	held, err := o.acquire(ctx, client, servers, dials.failed, stderr)
	if err != nil {
		return err
	}
	g := &guard{
		client: client, lock: held, name: o.name, grace: o.grace, ttl: o.ttl,
		job: newJob(path, words[1:], append(os.Environ(), "HOLDFAST_LOCK="+o.name, "HOLDFAST_OWNER="+held.Owner(),
			"HOLDFAST_FENCE="+strconv.FormatInt(held.Fence(), 10))),
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
	case o.ttl < time.Second:
		wrong = fmt.Errorf("ttl %v: at least 1s", o.ttl)
	case o.limit < 0:
		wrong = fmt.Errorf("--limit %d: at least 1", o.limit)
	case o.permits < 0:
		wrong = fmt.Errorf("--permits %d: at least 1", o.permits)
	case o.permits > 1 && o.limit == 0:
		wrong = fmt.Errorf("--permits %d needs --limit", o.permits)
	case o.permits > max(1, o.limit):
		wrong = fmt.Errorf("--permits %d is more than --limit %d", o.permits, o.limit)
	case len(o.note) > maxNote:
		wrong = fmt.Errorf("--note has %d bytes: at most %d", len(o.note), maxNote)
	case o.shared && o.limit > 0:
		wrong = errors.New("shared and limit exclude each other")
	case o.notGranted < 0, o.notGranted > 255:
		wrong = fmt.Errorf("-E %d: from 0 to 255", o.notGranted)
	case o.delay < 0, o.grace < 0:
		wrong = errors.New("delay and grace are not negative")
	default:
		return nil
	}
	return usageError{wrong}
}

// findCommand returns the program's path, or an error with a shell's exit status. It is called before the wait for the
// lock.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // PATH has the current folder
		return path, nil
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return "", exitStatus{statusNotExecutable, err.Error()}
	case errors.Is(err, exec.ErrNotFound) && isInPath(name):
		return "", exitStatus{statusNotExecutable, fmt.Sprintf("%s: no program", name)}
	default:
		return "", exitStatus{statusNotFound, err.Error()}
	}
}

// isInPath reports whether a folder of PATH has a file of that name.
func isInPath(name string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// errNotInTime is the cause with which the context of a wait ends after --wait. The library returns it wrapped only if
// no node is connected.
var errNotInTime = errors.New("not granted in time")

// dialer closes failed when the library dials a second time, after its first connection has failed or ended.
type dialer struct {
	net.Dialer
	calls  atomic.Int64
	failed chan struct{}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.calls.Add(1) == 2 {
		close(d.failed)
	}
	return d.DialContext(ctx, network, addr)
}

// acquire waits for the lock until it is granted, --wait has passed, or a signal ends the program. Once failed is
// closed, it checks whether the nodes refuse this client, as the library cannot name the flags.
func (o *lockOwn) acquire(
	ctx context.Context, client *holdfast.Client, servers *operator.Servers, failed <-chan struct{}, stderr io.Writer,
) (*holdfast.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer cancelBySignal(ctx, cancel)()
	limited, lock := ctx, client.Lock
	switch {
	case o.now, o.wait == 0:
		lock = client.TryLock
	case o.wait > 0:
		var end context.CancelFunc
		limited, end = context.WithTimeoutCause(ctx, o.wait, errNotInTime)
		defer end()
	}
	refusal := sync.OnceValue(func() error { return refusalOf(limited, servers, cancel) })
	go func() {
		select {
		case <-failed:
			refusal()
		case <-limited.Done():
		}
	}()
	held, err := lock(limited, o.name, o.options(ctx, servers, stderr)...)
	if err == nil {
		return held, nil
	}
	if cause := (exitStatus{}); errors.As(context.Cause(ctx), &cause) {
		client.Close()
		if cause.status == statusSignal+int(syscall.SIGINT) {
			dieOf(syscall.SIGINT, os.Getpid())
		}
		return nil, cause
	}
	if err == holdfast.ErrNotGranted || err == errNotInTime { // as the cluster said, and not wrapped by anything
		return nil, exitStatus{o.notGranted, fmt.Sprintf("%s: %v%s", o.name, errNotInTime, o.behindNow(servers))}
	}
	if refused := refusal(); refused != nil {
		return nil, fmt.Errorf("%s: %w", o.name, refused)
	}
	if refused := new(holdfast.RefusedError); errors.As(err, &refused) {
		err = fmt.Errorf("%s: %w", refused.Addr, operator.ErrorOf(refused.Text))
	}
	if servers.From != "" {
		err = fmt.Errorf("%w (%s)", err, servers.From)
	}
	return nil, fmt.Errorf("%s: %w", o.name, err)
}

// cancelBySignal cancels ctx at a signal. stop restores the signals' default effects.
func cancelBySignal(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, heeded(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)...)
	go func() {
		select {
		case s := <-signals:
			cancel(exitStatus{status: statusSignal + int(s.(syscall.Signal))})
		case <-ctx.Done():
		}
	}()
	return func() { signal.Stop(signals) }
}

// refusalOf returns an error if a node permanently refuses this client, with the missing or wrong flag, and cancels the
// wait with it. It returns nil if a node admits the client, or none answers.
func refusalOf(ctx context.Context, servers *operator.Servers, cancel context.CancelCauseFunc) error {
	conn, err := servers.DialAny(ctx, nodeTimeout)
	if err == nil {
		conn.Close()
	}
	if !errors.As(err, new(*operator.Refusal)) {
		return nil
	}
	cancel(err)
	return err
}

// options returns the library's options of the flags.
func (o *lockOwn) options(ctx context.Context, servers *operator.Servers, stderr io.Writer) []holdfast.Option {
	options := []holdfast.Option{holdfast.Note(o.note)}
	if o.shared {
		options = append(options, holdfast.Shared())
	}
	if o.limit > 0 {
		options = append(options, holdfast.Semaphore(o.limit, max(1, o.permits)))
	}
	if o.delay > 0 {
		options = append(options, holdfast.Delay(o.delay))
	}
	if _, _, terminal := terminalSize(stderr)(); terminal || o.verbose {
		options = append(options, holdfast.Queued(func(owner string) {
			if l, there := o.present(ctx, servers); there && inLine(&l, owner) != "" {
				fmt.Fprintf(stderr, "holdfast lock: waiting for %s: %s\n", printable(o.name), inLine(&l, owner))
			}
		}))
	}
	return options
}

// answerTimeout bounds a request for a lock's holders.
const answerTimeout = time.Second

// present returns the lock's present state. there is false if it is free or no node answers.
func (o *lockOwn) present(ctx context.Context, servers *operator.Servers) (l api.Lock, there bool) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := servers.DialAny(ctx, answerTimeout)
	if err != nil {
		return l, false
	}
	defer conn.Close()
	l, there, err = lockNow(ctx, conn, o.name, o.db)
	return l, there && err == nil
}

// behindNow returns behind of the lock's present state, "" if no node answers.
func (o *lockOwn) behindNow(servers *operator.Servers) string {
	if l, there := o.present(context.Background(), servers); there {
		return behind(&l)
	}
	return ""
}

// inLine describes an owner's position in the queue and the lock's holders, or returns "" if the owner does not wait.
func inLine(l *api.Lock, owner string) string {
	place := 1 + slices.IndexFunc(l.Waiters, func(w api.Wait) bool { return w.Owner == owner })
	if place == 0 {
		return ""
	}
	return ordinal(place) + " in line" + behind(l)
}

// behind describes what a waiter of the lock waits for.
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
