//go:build unix

package clienttest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/clienttest"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// The TTLs are long enough for a machine that is busy with other things. A cluster of three may have to elect a leader.
const (
	ttl      = 3 * time.Second
	ttlThree = 10 * time.Second
)

// driver is a program that uses a client library: see server/clients/CONTRACT.md.
type driver struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan string
	word   string // the file with the password
}

// library is a client library.
type library struct {
	name    string
	dir     string   // below server/clients
	needs   []string // programs
	isCheap bool     // played by every run, and not only where HOLDFAST_LIBRARIES is set
	own     string   // the one of ownScenarios that it plays
	// build returns the command that runs the driver of the library in source, a copy of dir. out is an empty folder.
	build func(t *testing.T, source, out string) []string
}

var libraries = []library{
	{name: "Go", dir: "go/holdfast", needs: []string{"go"}, isCheap: true, build: goDriver},
	{name: "Python", dir: pythonDir, needs: []string{"python3"}, own: forked, build: python},
	{name: "asyncio", dir: pythonDir, needs: []string{"python3"}, build: asyncio},
	{name: "Java", dir: javaDir, needs: []string{"java", "javac"}, own: leased, build: java},
	{name: "futures", dir: javaDir, needs: []string{"java", "javac"}, build: futures},
	{name: "TypeScript", dir: "node/holdfast-client", needs: []string{"node"}, build: typescript},
}

// playAll names a folder in which npm has installed what builds TypeScript's library. Where it is set, libraries in all
// languages are played.
const playAll = "HOLDFAST_LIBRARIES"

func goDriver(t *testing.T, source, out string) []string {
	runIn(t, source, "go", "build", "-o", out+"/driver", "./driver")
	return []string{out + "/driver"}
}

func python(_ *testing.T, source, _ string) []string {
	return []string{"python3", source + "/driver.py"}
}

func asyncio(t *testing.T, source, out string) []string {
	runIn(t, source, "python3", "test_client.py")
	return append(python(t, source, out), "--asyncio")
}

func typescript(t *testing.T, source, _ string) []string {
	packages := filepath.Join(os.Getenv(playAll), "node_modules")
	if _, err := os.Stat(packages); err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.Symlink(packages, source+"/node_modules"))
	runIn(t, source, "node", "node_modules/typescript/bin/tsc")
	return []string{"node", source + "/driver.mjs"}
}

func futures(t *testing.T, source, out string) []string {
	return append(java(t, source, out), "--async")
}

func java(t *testing.T, source, out string) []string {
	files, err := filepath.Glob(source + "/src/main/java/io/github/holdfast/*.java")
	require.NoError(t, err)
	runIn(t, source, "javac", append(files, "Driver.java", "-Xlint:all", "-Werror", "--release", "17", "-d", out)...)
	return []string{"java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", out, "Driver"}
}

func runIn(t *testing.T, dir, program string, words ...string) {
	t.Helper()
	cmd := exec.Command(program, words...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const (
	clients   = "../../../server/clients/"
	pythonDir = "python/holdfast-client"
	javaDir   = "java/holdfast-client"
)

// prepare builds the driver, of a library that has the mistake if there is one, and returns the command that runs it.
func (l library) prepare(t *testing.T) []string {
	if !l.isCheap && os.Getenv(playAll) == "" {
		t.Skip(playAll + " is not set: `make clients` sets it")
	}
	for _, program := range l.needs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	source, wrong := t.TempDir(), theMistake()
	require.NoError(t, filepath.WalkDir(clients+l.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(source, strings.TrimPrefix(path, clients+l.dir))
		switch {
		case slices.Contains([]string{"node_modules", "dist", "__pycache__"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(to, []byte(wrong.in(path, string(text))), 0o600)
		}
		return err
	}))
	return l.build(t, source, t.TempDir())
}

// stage is a cluster, and the library that clients of it use.
type stage struct {
	*clienttest.Cluster
	command []string
	ttl     time.Duration
}

func startDriver(t *testing.T, c stage) *driver {
	d := &driver{t: t, cmd: exec.Command(c.command[0], c.command[1:]...), events: make(chan string, 64)}
	d.word = filepath.Join(t.TempDir(), "word")
	require.NoError(t, os.WriteFile(d.word, []byte(c.Password), 0o600))
	d.cmd.Env = append(os.Environ(), "HOLDFAST_NODES="+strings.Join(c.Addrs(), ","), "HOLDFAST_TTL="+c.ttl.String(),
		"HOLDFAST_PASSWORD_FILE="+d.word)
	d.cmd.Stderr = os.Stderr
	var err error
	d.in, err = d.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			d.events <- lines.Text()
		}
		close(d.events)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	})
	return d
}

func (d *driver) say(format string, args ...any) {
	d.t.Helper()
	_, err := fmt.Fprintf(d.in, format+"\n", args...)
	require.NoError(d.t, err)
}

// event returns the next event, which begins with prefix, without it.
func (d *driver) event(prefix string) string {
	d.t.Helper()
	e := d.next(prefix)
	rest, ok := strings.CutPrefix(e, prefix)
	require.Truef(d.t, ok, "%q instead of %q", e, prefix)
	return strings.TrimSpace(rest)
}

// both takes the next two events, which two threads of the client may tell of in any order.
func (d *driver) both(one, other string) {
	d.t.Helper()
	require.ElementsMatch(d.t, []string{one, other}, []string{d.next(one), d.next(other)})
}

func (d *driver) next(wanted string) string {
	d.t.Helper()
	select {
	case e := <-d.events:
		return e
	case <-time.After(20 * time.Second):
		require.FailNow(d.t, "no event "+wanted)
		return ""
	}
}

// fence is of a grant.
func (d *driver) fence(call string) int64 {
	d.t.Helper()
	n, err := strconv.ParseInt(d.event("granted "+call), 10, 64)
	require.NoError(d.t, err)
	return n
}

// silent reports that nothing has happened, after what was sent before has been executed.
func (d *driver) silent() {
	d.t.Helper()
	d.say("look nothing")
	d.event("seen nothing 0 0")
}

// freeze stops the program, as a debugger or a suspended machine does, until thaw.
func (d *driver) freeze() { require.NoError(d.t, d.cmd.Process.Signal(syscall.SIGSTOP)) }
func (d *driver) thaw()   { require.NoError(d.t, d.cmd.Process.Signal(syscall.SIGCONT)) }

func awaitWaiters(t *testing.T, c stage, name string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Waiters(name) == n }, 20*time.Second, time.Millisecond)
}

func awaitHolder(t *testing.T, c stage, name, owner string) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Holder(name) == owner }, 20*time.Second, time.Millisecond)
}

// threeNodes is for nodes: real ones, each behind a door.
const threeNodes = 0

type scenario struct {
	name  string
	nodes int // doors to one node, or threeNodes
	play  func(t *testing.T, c stage)
}

// scenarios are the rows of the table in server/clients/CONTRACT.md.
var scenarios = []scenario{
	{"one after the other", 1, func(t *testing.T, c stage) {
		a, b := startDriver(t, c), startDriver(t, c)
		a.say("lock 1 job")
		first := a.fence("1")
		a.say("try 2 job") // as another owner
		a.event("refused 2 not-granted")
		b.say("try 1 job")
		b.event("refused 1 not-granted")
		b.say("lock 2 job")
		awaitWaiters(t, c, "job", 1)
		a.say("unlock 1")
		a.event("released 1")
		require.Greater(t, b.fence("2"), first)
		require.NoError(t, b.in.Close()) // closes the client
		b.event("closed")
		awaitHolder(t, c, "job", "")
	}},
	{"shared, counted, several, reentrant", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		for i, words := range []string{
			"book shared", "book shared", "seats semaphore=2/3", "seats semaphore=1/3", "re reentrant=x", "re reentrant=x",
		} {
			a.say("lock %d %s", i, words)
			a.fence(strconv.Itoa(i))
		}
		a.say("try 6 seats semaphore=1/3")
		a.event("refused 6 not-granted")
		a.say("unlock 4")
		a.event("released 4")
		a.say("try 7 re reentrant=y")
		a.event("refused 7 not-granted")
		a.say("unlock 5")
		a.event("released 5")
		a.say("all 8 re one two")
		a.fence("8")
		require.NotEmpty(t, c.Holder("two"))
		a.say("unlock 8")
		a.event("released 8")
		require.Empty(t, c.Holder("one"))
	}},
	// From kazoo's tests of locks and elections, and etcd's of mutexes.
	{"many in line", 1, func(t *testing.T, c stage) {
		at := []*driver{startDriver(t, c), startDriver(t, c)}
		const many = 6
		leave := []int{2, 3}
		for i := range many {
			at[i%2].say("lock %d job", i)
			if i == 0 {
				at[0].fence("0")
			}
			awaitWaiters(t, c, "job", i)
		}
		for _, i := range leave {
			at[i%2].say("cancel %d", i)
			at[i%2].event(fmt.Sprintf("refused %d cancelled", i))
		}
		fence := int64(0)
		for i := range many {
			if slices.Contains(leave, i) {
				continue
			}
			if i > 0 {
				next := at[i%2].fence(strconv.Itoa(i))
				require.Greater(t, next, fence)
				fence = next
			}
			at[0].silent()
			at[1].silent()
			at[i%2].say("unlock %d", i)
			require.Empty(t, at[i%2].event("released "+strconv.Itoa(i)))
		}
		require.Empty(t, c.Holder("job"))
	}},
	// From etcd's tests of mutexes.
	{"client closed in line", 1, func(t *testing.T, c stage) {
		a, b, next := startHolder(t, c), startDriver(t, c), startDriver(t, c)
		b.say("lock 1 job")
		awaitWaiters(t, c, "job", 1)
		next.say("lock 1 job")
		awaitWaiters(t, c, "job", 2)
		require.NoError(t, b.in.Close())
		awaitWaiters(t, c, "job", 1)
		next.silent()
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
		next.fence("1")
	}},
	// From the tests of locks for readers and writers of kazoo, etcd and Curator.
	{"readers and a writer", 1, func(t *testing.T, c stage) {
		a, b := startDriver(t, c), startDriver(t, c)
		a.say("lock 1 book shared")
		a.fence("1")
		b.say("lock 1 book shared")
		b.fence("1")
		a.say("lock 2 book") // a reader does not become the writer
		awaitWaiters(t, c, "book", 1)
		b.say("try 2 book shared") // no reader overtakes a writer
		b.event("refused 2 not-granted")
		b.say("lock 3 book shared")
		awaitWaiters(t, c, "book", 2)
		for _, d := range []*driver{a, b} {
			d.silent()
			d.say("unlock 1")
			require.Empty(t, d.event("released 1"))
		}
		a.fence("2")
		b.silent()
		a.say("unlock 2")
		require.Empty(t, a.event("released 2"))
		b.fence("3")
	}},
	// From Curator's tests of locks over several names.
	{"several, one of them taken", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("two")
		for call, end := range []func(){
			func() { a.say("cancel 0") },
			func() { c.Break("two") },
		} {
			a.say("all %d one two", call)
			awaitWaiters(t, c, "two", 1)
			require.Empty(t, c.Holder("one"), "none is held before all are")
			end()
			if call == 0 {
				a.event("refused 0 cancelled")
				awaitWaiters(t, c, "one", 0)
				awaitWaiters(t, c, "two", 0)
			}
		}
		a.fence("1")
		require.Equal(t, c.Holder("one"), c.Holder("two"))
	}},
	// From kazoo's test of semaphores with several limits.
	{"refused by the node", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Answer("LOCK.ACQUIRE", "LOCKMODE The owner holds the lock in another mode")
		a.say("lock 1 job")
		a.event("refused 1 refused ")
		c.Answer("LOCK.ACQUIRE", "NOPERM No permissions to access a key")
		a.say("try 2 job")
		a.event("refused 2 refused ")
		require.Equal(t, 2, c.Sent("LOCK.ACQUIRE"), "asked again")
		a.say("lock 3 job")
		a.fence("3")
	}},
	{"port out of range", 1, func(t *testing.T, c stage) {
		for _, node := range []string{"127.0.0.1:0", "127.0.0.1:65536"} {
			cmd := exec.Command(c.command[0], c.command[1:]...)
			cmd.Env = append(os.Environ(), "HOLDFAST_NODES="+node, "HOLDFAST_TTL="+c.ttl.String())
			out, err := cmd.CombinedOutput()
			require.ErrorAs(t, err, new(*exec.ExitError), "%s", out)
			require.Contains(t, string(out), node)
		}
	}},
	// From the tests of sessions that end of Curator and kazoo.
	{"session of the holder and of the next in line closed", 1, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		a.say("lock 2 job")
		awaitWaiters(t, c, "job", 1)
		c.CloseSession("job")
		a.both("lost 1 now session", "granted 2 2")
		a.say("unlock 1")
		a.event("released 1 lost")
		a.say("unlock 2")
		require.Empty(t, a.event("released 2"))
	}},
	{"timed out in line", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("job")
		a.say("lock 1 job timeout=0.2")
		a.event("refused 1 not-granted")
		awaitWaiters(t, c, "job", 0)
	}},
	{"cancelled in line", 1, func(t *testing.T, c stage) {
		a := startWaiter(t, c)
		a.say("cancel 1")
		a.event("refused 1 cancelled")
		awaitWaiters(t, c, "job", 0)
	}},
	{"cancelled at the instant of the grant", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		for i := range 20 {
			c.Take("job")
			a.say("lock %d job", i)
			awaitWaiters(t, c, "job", 1)
			a.say("cancel %d", i)
			c.Break("job")
			if e := a.event(""); strings.HasPrefix(e, "granted") {
				a.say("unlock %d", i)
				a.event("released")
			}
			awaitHolder(t, c, "job", "")
			awaitWaiters(t, c, "job", 0)
		}
	}},
	{"grant on its way when it is cancelled", 1, func(t *testing.T, c stage) {
		a := startWaiter(t, c)
		c.HoldBack("granted")
		c.Break("job")
		require.Eventually(t, c.IsHeldBack, 20*time.Second, time.Millisecond)
		require.NotEmpty(t, c.Holder("job"))
		a.say("cancel 1")
		a.event("refused 1 cancelled")
		c.Deliver()
		awaitHolder(t, c, "job", "")
		a.silent()
	}},
	{"cancel on its way when it is granted", 1, func(t *testing.T, c stage) {
		a := startWaiter(t, c)
		c.HoldBack("LOCK.CANCEL")
		a.say("cancel 1")
		a.event("refused 1 cancelled")
		require.Eventually(t, c.IsHeldBack, 20*time.Second, time.Millisecond)
		c.Break("job")
		require.NotEmpty(t, c.Holder("job"))
		c.Deliver()
		awaitHolder(t, c, "job", "")
		a.silent()
	}},
	{"broken by an operator", 1, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		c.Break("job", "REASON", "night shift")
		said := a.event("lost 1 now broken by operator ")
		require.True(t, strings.HasSuffix(said, ": night shift"), said)
		a.say("unlock 1")
		a.event("released 1 lost")
	}},
	{"node not there yet", 1, func(t *testing.T, c stage) {
		c.Kill(0)
		a := startDriver(t, c)
		a.say("try 0 job")
		a.event("refused 0 error")
		a.say("lock 1 job")
		c.Revive(0)
		a.fence("1")
	}},
	{"node killed while holding", 2, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		c.Kill(0)
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
		require.Empty(t, c.Holder("job"))
	}},
	{"node frozen while holding", 2, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		c.Stall(0)
		a.silent() // is at the other node, and has closed the connection to this one
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
	}},
	{"node killed while waiting", 2, func(t *testing.T, c stage) {
		a := startWaiter(t, c)
		c.Kill(0)
		a.silent() // is at the other node
		c.Break("job")
		a.fence("1")
	}},
	{"lost while between two nodes", 2, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		c.Take("job") // no notice is sent
		c.Kill(0)
		a.event("lost 1 now unknown")
	}},
	{"no node for longer than the TTL", 1, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		c.Freeze(0)
		a.event("lost 1 later no node could be reached")
		require.NotEmpty(t, c.Holder("job"), "the holder is told before the lock is free")
		awaitHolder(t, c, "job", "")
		c.Thaw(0)
		a.say("lock 2 job")
		a.fence("2")
	}},
	{"client frozen for longer than the TTL", 1, func(t *testing.T, c stage) {
		a, b := startDriver(t, c), startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		b.say("lock 0 kept")
		b.fence("0")
		a.freeze()
		b.say("lock 1 job")
		b.fence("1")
		b.say("unlock 0") // held for longer than the TTL, too
		require.Empty(t, b.event("released 0"))
		a.thaw()
		a.event("lost 1 ")
		a.say("lock 2 other")
		a.fence("2")
	}},
	{"connection cut alone", 1, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		c.Cut("LOCK.INFO", "job")
		a.say("look job")
		a.both("seen job 1 0", "lost 1 now session")
		a.say("lock 2 job")
		a.fence("2")
	}},
	{"reply to the acquire lost", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		a.silent()
		c.Swallow("LOCK.ACQUIRE")
		a.say("lock 1 job")
		a.fence("1")
	}},
	{"reply to the release lost", 2, func(t *testing.T, c stage) {
		a, b := startDriver(t, c), startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		b.say("lock 1 job")
		awaitWaiters(t, c, "job", 1)
		c.Swallow("LOCK.RELEASE")
		a.say("unlock 1")
		a.event("released 1")
		b.fence("1")
		a.say("lock 2 job")
		awaitWaiters(t, c, "job", 1)
		c.Swallow("LOCK.RELEASE")
		b.say("unlock 1")
		require.Empty(t, b.event("released 1"))
		a.fence("2")
		a.say("unlock 2") // neither repeated release has ended the hold
		require.Empty(t, a.event("released 2"))
	}},
	{"release on its way behind its repetition", 2, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		c.HoldBack("LOCK.RELEASE")
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
		a.say("lock 2 job")
		a.fence("2")
		c.Deliver()
		a.say("unlock 2")
		require.Empty(t, a.event("released 2"))
	}},
	{"cluster away, shorter than the TTL", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("taken")
		a.say("lock 1 job")
		a.fence("1")
		a.say("lock 2 taken")
		awaitWaiters(t, c, "taken", 1)
		c.Refuse("CLUSTERDOWN No leader is known, the command was not applied")
		require.Eventually(t, func() bool { return c.Sent("SESSION.ATTACH") > 0 }, ttl/2, time.Millisecond)
		c.Refuse("")
		a.silent()
		c.Break("taken")
		a.fence("2")
	}},
	{"grant lost with its connection", 2, func(t *testing.T, c stage) {
		a := startWaiter(t, c)
		c.Swallow("granted")
		c.Break("job")
		a.fence("1")
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
	}},
	{"errors that pass", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		for i, line := range []string{
			"UNCERTAIN The outcome is not known", "TRYAGAIN Not now", "CLUSTERDOWN No leader is known",
			"LOADING The node is starting", "MASTERDOWN No leader is known", "ERR max number of clients reached",
		} {
			c.Answer("LOCK.ACQUIRE", line)
			a.say("lock %d job", i)
			a.fence(strconv.Itoa(i))
			c.Answer("LOCK.RELEASE", line)
			a.say("unlock %d", i)
			require.Empty(t, a.event("released "+strconv.Itoa(i)))
			require.Empty(t, c.Holder("job"))
		}
	}},
	{"wait failed", 1, func(t *testing.T, c stage) {
		a := startWaiter(t, c)
		asked := c.Sent("LOCK.ACQUIRE")
		c.Fail("job", c.Waiter("job"))
		require.Eventually(t, func() bool { return c.Sent("LOCK.ACQUIRE") > asked }, 20*time.Second, time.Millisecond)
		c.Break("job")
		a.fence("1")
	}},
	{"place in line lost", 1, func(t *testing.T, c stage) {
		a := startWaiter(t, c)
		c.Cancel("job", c.Waiter("job"))
		awaitWaiters(t, c, "job", 1)
		c.Break("job")
		a.fence("1")
	}},
	{"session closed by an operator", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("taken")
		a.say("lock 1 job")
		a.fence("1")
		a.say("lock 2 taken")
		awaitWaiters(t, c, "taken", 1)
		c.CloseSession("job")
		a.event("lost 1 now session")
		awaitWaiters(t, c, "taken", 1)
		c.Break("taken")
		a.fence("2")
	}},
	{"watched by another", 2, func(t *testing.T, c stage) {
		a, b := startDriver(t, c), startDriver(t, c)
		a.say("watch leader")
		a.event("change leader 0")
		b.say("lock 1 leader note=b:80")
		b.fence("1")
		a.event("change leader 1 b:80")
		c.Kill(0)
		b.say("unlock 1")
		b.event("released 1")
		if seen := a.event("change leader"); seen != "0" { // the holder's new connection is a change, too
			require.Equal(t, "1 b:80", seen)
			a.event("change leader 0")
		}
	}},
	{"a stale holder", 1, func(t *testing.T, c stage) {
		a, b := startDriver(t, c), startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		c.Break("job")
		a.event("lost 1 now broken")
		b.say("lock 1 job")
		b.fence("1")
		b.say("pass disk 1")
		b.event("passes disk true")
		a.say("pass disk 1")
		a.event("passes disk false")
	}},
	{"password changed", 2, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		require.NoError(t, os.WriteFile(a.word, []byte("wrong"), 0o600))
		c.Kill(0)
		a.say("look job")
		a.event("seen job 0 0 refused")
		require.NoError(t, os.WriteFile(a.word, []byte(c.Password), 0o600))
		a.say("unlock 1")
		a.event("released 1")
	}},
	{leased, 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		a.silent()
		c.Refuse("UNCERTAIN The outcome is not known")
		a.say("lease 1 job")
		a.event("refused 1 error")
		require.NotEmpty(t, c.Holder("job"))
		c.Refuse("")
		awaitHolder(t, c, "job", "")
	}},
	{"node cut off from the others", threeNodes, func(t *testing.T, c stage) {
		a := holdAndWait(t, c)
		c.Isolate(0)
		a.silent() // is at another node
		goOn(t, c, a)
	}},
	{"all nodes restarted in turn", threeNodes, func(t *testing.T, c stage) {
		a := holdAndWait(t, c)
		for i := range 3 {
			c.Restart(i)
			a.silent()
		}
		goOn(t, c, a)
	}},
	{forked, 1, func(t *testing.T, c stage) {
		a := startHolder(t, c)
		a.say("fork 1 job")
		a.event("child 1 lost lost closed not-granted")
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
	}},
}

const (
	forked = "forked while holding"
	leased = "lease without an answer in time"
)

// ownScenarios are about what not every library has.
var ownScenarios = []string{forked, leased}

// startHolder starts a client that holds job by its call 1.
func startHolder(t *testing.T, c stage) *driver {
	a := startDriver(t, c)
	a.say("lock 1 job")
	a.fence("1")
	return a
}

// startWaiter starts a client whose call 1 stands in line for job, which another holds.
func startWaiter(t *testing.T, c stage) *driver {
	a := startDriver(t, c)
	c.Take("job")
	a.say("lock 1 job")
	awaitWaiters(t, c, "job", 1)
	return a
}

// holdAndWait returns a client that holds job and stands in line for taken.
func holdAndWait(t *testing.T, c stage) *driver {
	a := startHolder(t, c)
	c.Take("taken")
	a.say("lock 2 taken")
	awaitWaiters(t, c, "taken", 1)
	return a
}

// goOn finds that nothing has happened to the client of holdAndWait.
func goOn(t *testing.T, c stage, a *driver) {
	c.Break("taken")
	a.fence("2")
	a.say("unlock 1")
	require.Empty(t, a.event("released 1"))
}

// TestContract plays each scenario with each client library.
func TestContract(t *testing.T) {
	page := protocoltest.ReadFile(t, clients+"CONTRACT.md")
	for _, s := range scenarios {
		require.Regexp(t, `(?m)^\| (.*; )?`+regexp.QuoteMeta(s.name)+`(; .*)? \|`, page)
	}
	protocoltest.SkipShort(t, "builds and runs programs")
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			command := l.prepare(t)
			for _, s := range scenarios {
				t.Run(s.name, func(t *testing.T) {
					if slices.Contains(ownScenarios, s.name) && s.name != l.own {
						t.Skip("the library has no such thing")
					}
					t.Parallel()
					if s.nodes == threeNodes {
						s.play(t, stage{clienttest.StartThree(t, "secret"), command, ttlThree})
					} else {
						s.play(t, stage{clienttest.Start(t, s.nodes, "secret"), command, ttl})
					}
				})
			}
		})
	}
}
