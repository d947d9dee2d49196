package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/backup"
)

const restoreUsage = `usage: holdfast restore FILE|- --data-dir DIR [flags]
       holdfast restore FILE|- --drill

Makes the data folder of a node that is a new cluster of its own, of a backup. The node is started by 'serve' with the
same --name and --data-dir; other nodes, with empty folders, join it. Leases begin anew: they only get longer. Native
locks keep their holders. No fence of theirs is given out twice, also if the same file is restored again.
`

// renewalOwn are the flags of commands that create a new cluster from a state.
type renewalOwn struct {
	minLease              time.Duration
	dropLeases, keepLocks bool
	raise                 []string
	at                    string
	fencesAbove           int64
}

// defaultMinLease is longer than the leases of common libraries.
const defaultMinLease = time.Minute

func (o *renewalOwn) rows() []option {
	return []option{
		{heading: renewalHeading},
		{
			name: "min-lease", value: &o.minLease,
			help: "least time to live that a key has left: no shorter than the leases that your clients ask for",
		},
		{name: "drop-leases", value: &o.dropLeases, help: "drop all keys with a time to live"},
		{name: "keep-locks", value: &o.keepLocks, help: "keep holds and sessions of native locks, with their full leases"},
		{
			name: "raise", value: &o.raise,
			help: "PATTERN[=BY]: add BY to the integers in keys that match, else what the fences of native locks grow by; " +
				"may be given several times",
		},
		{
			name: "at", value: &o.at,
			help: "time of this command, such as 2026-11-24T05:00:00Z, if it is not now: the later, the more the fences of " +
				"native locks grow",
		},
		{name: "fences-above", value: &o.fencesAbove, help: "let no fence of native locks be this number or less"},
	}
}

const renewalHeading = "The new cluster"

// renewal returns the renewal of the flags.
func (o *renewalOwn) renewal() (fsm.Renewal, error) {
	r := fsm.Renewal{
		MinLeaseMillis: o.minLease.Milliseconds(), DropLeases: o.dropLeases, KeepLocks: o.keepLocks,
		AtMillis: time.Now().UnixMilli(), FencesAbove: uint64(o.fencesAbove),
	}
	switch at, err := time.Parse(time.RFC3339, o.at); {
	case o.minLease < 0:
		return r, usageError{fmt.Errorf("min-lease %v: not negative", o.minLease)}
	case o.fencesAbove < 0:
		return r, usageError{fmt.Errorf("fences-above %d: not negative", o.fencesAbove)}
	case o.at != "" && err != nil:
		return r, usageError{fmt.Errorf("at %q: use a time such as %s", o.at, time.Now().UTC().Format(time.RFC3339))}
	case o.at != "":
		r.AtMillis = at.UnixMilli()
	}
	for _, word := range o.raise {
		raise := fsm.Raise{Pattern: word}
		if at := strings.LastIndexByte(word, '='); at >= 0 {
			by, err := strconv.ParseInt(word[at+1:], 10, 64)
			if err != nil || by < 1 || by > math.MaxInt64/2 {
				return r, usageError{fmt.Errorf("raise %q: BY is a positive integer", word)}
			}
			raise.Pattern, raise.By = word[:at], by
		}
		if raise.Pattern == "" {
			return r, usageError{fmt.Errorf("raise %q: use PATTERN[=BY]", word)}
		}
		r.Raises = append(r.Raises, raise)
	}
	return r, nil
}

// restoreOwn are the flags of `holdfast restore`.
type restoreOwn struct {
	renewalOwn
	name, peerAddr, dataDir, initialCluster string
	drill                                   bool
}

func newRestoreOwn() *restoreOwn {
	c := server.DefaultConfig()
	return &restoreOwn{
		renewalOwn: renewalOwn{minLease: defaultMinLease, keepLocks: true},
		name:       c.Name, peerAddr: c.PeerAddr,
	}
}

const restoreHeading = "The node"

func (o *restoreOwn) rows() []option {
	return append([]option{
		{heading: restoreHeading},
		{name: "data-dir", value: &o.dataDir, help: "folder to make: it must be empty, or not be there"},
		{
			name: "drill", value: &o.drill,
			help: "prove that the file can be restored, and leave nothing: a node starts on it in a temporary folder, on " +
				"loopback, and is asked for its keys and for a fence",
		},
		{name: "name", value: &o.name, help: "name of the node, as for serve"},
		{name: "peer-addr", value: &o.peerAddr, help: "where other nodes dial the node, as for serve"},
		{
			name: "initial-cluster", value: &o.initialCluster,
			help: "as for serve, instead of peer-addr: all nodes restored from the file with the same flags found one " +
				"cluster, or one of them takes in the others with empty folders",
		},
	}, o.renewalOwn.rows()...)
}

// restoration returns the restoration of the flags.
func (o *restoreOwn) restoration() (backup.Restoration, error) {
	if o.dataDir == "" {
		return backup.Restoration{}, usageError{errors.New("say where to: --data-dir")}
	}
	c := server.DefaultConfig()
	c.Name, c.PeerAddr, c.InitialCluster, c.DataDir = o.name, o.peerAddr, o.initialCluster, o.dataDir
	c.Insecure = true // nothing listens
	if err := c.Validate(); err != nil {
		return backup.Restoration{}, usageError{err}
	}
	peers, err := c.Peers()
	if err != nil {
		return backup.Restoration{}, usageError{err}
	}
	renewal, err := o.renewal()
	who, host := whoAndWhere()
	return backup.Restoration{
		DataDir: o.dataDir, Name: o.name, Addr: peers[o.name], Together: len(peers) > 1,
		User: who, Host: host, Renewal: renewal,
	}, err
}

// checkDrill refuses flags of a node to be created.
func (o *restoreOwn) checkDrill() error {
	unset := newRestoreOwn()
	switch {
	case o.dataDir != "":
		return usageError{errors.New("--drill makes no data folder: leave out --data-dir")}
	case o.name != unset.name || o.peerAddr != unset.peerAddr || o.initialCluster != "":
		return usageError{errors.New("--drill makes no node: leave out --name, --peer-addr and --initial-cluster")}
	}
	return nil
}

// restore is `holdfast restore`.
func restore(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o := newRestoreOwn()
	path, err := parseFile(o.rows(), args, stdout, restoreUsage, fileOrPipe("restore"))
	if err != nil {
		return err
	}
	if o.drill {
		if err := o.checkDrill(); err != nil {
			return err
		}
		return restoreDrill(ctx, path, path, o, stdout)
	}
	r, err := o.restoration()
	if err != nil {
		return err
	}
	f, err := openFile(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close()
	r.FenceKeys = shownFences
	r.Begins = func(_ backup.Report, done fsm.Renewed) error { return raisedSome(&r.Renewal, &done) }
	done, err := backup.Restore(bufio.NewReaderSize(f, 1<<20), r)
	if err != nil {
		return aboutFile(path, aboutTime(err))
	}
	p := &paper{w: stdout}
	p.source(done.Report.Meta)
	p.renewed(&r.Renewal, &done.Renewed)
	p.fences(&done.Report.Survey)
	if r.Together {
		p.line("folder", "%s: node %s, of a cluster that is founded when all nodes of --initial-cluster run", o.dataDir,
			done.NodeID)
		p.line("next",
			"start this node, and the others with empty folders and the same --initial-cluster; or restore all others, too, "+
				"from the same file with the same flags and --at %s",
			time.UnixMilli(r.Renewal.AtMillis).UTC().Format(atFormat))
	} else {
		p.line("folder", "%s: node %s, the only member of cluster %s, at %s", o.dataDir, done.NodeID, done.ClusterID, r.Addr)
		p.line("next", "start this node, then others with empty folders and --join %s", r.Addr)
	}
	return p.err
}

// atFormat is the format of --at, with milliseconds.
const atFormat = "2006-01-02T15:04:05.000Z07:00"

// aboutTime adds the flags that correct a wrong clock to an error.
func aboutTime(err error) error {
	if errors.Is(err, fsm.ErrEarlier) {
		return fmt.Errorf("%w: say --at with the right time, or a later one, or --fences-above", err)
	}
	return err
}

// whoAndWhere returns the user and the machine of this program, for the log of a node.
func whoAndWhere() (name, host string) {
	host, _ = os.Hostname()
	name = fmt.Sprint("uid ", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if who := os.Getenv("SUDO_USER"); who != "" {
		name = who + " as " + name
	}
	return printable(name), printable(host)
}

// renewed adds the changes of a renewed state.
func (p *paper) renewed(r *fsm.Renewal, done *fsm.Renewed) {
	if r.DropLeases {
		p.line("leases", "%d keys with a time to live dropped", done.Dropped)
	} else {
		p.line("leases", "%d keys were given more time, so that each has %v left at least", done.Extended,
			millis(r.MinLeaseMillis))
	}
	p.line("locks", "%d of %d holds and %d of %d sessions kept; the fences of native locks go on %d higher",
		done.Kept.Holds, done.Locks.Holds, done.Kept.Sessions, done.Locks.Sessions, done.Jump)
	p.line("dropped", "%d clients that waited, what %d nodes had sent", done.Waiters+done.Locks.Waiting, done.Nodes)
	for i, raise := range r.Raises {
		passed := ""
		if n := done.Passed[i]; n > 0 {
			passed = fmt.Sprintf("; %d more keys match and hold no integer", n)
		}
		p.line("raised", "%d keys that match %s, by %d%s", done.Raised[i], printable(cmp.Or(raise.Pattern, "(none)")),
			cmp.Or(raise.By, done.Jump), passed)
	}
}

// raisedSome returns an error if a pattern has raised no counter: it is probably a mistake, after which fences could
// repeat.
func raisedSome(r *fsm.Renewal, done *fsm.Renewed) error {
	for i, raise := range r.Raises {
		if done.Raised[i] == 0 {
			return fmt.Errorf("raise %q: no key that matches holds an integer", raise.Pattern)
		}
	}
	return nil
}
