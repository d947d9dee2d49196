//go:build unix

package holdertest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/cmd/internal/holder/holdertest"
)

// ttl is long enough for a machine that is busy with other things.
const ttl = 3 * time.Second

// driver is a program that uses a client library: see server/clients/CONTRACT.md.
type driver struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan string
	word   string // the file with the password
}

// languages have a library. Each returns the command that runs its driver.
var languages = map[string]func(t *testing.T) []string{
	"Go": func(t *testing.T) []string {
		const dir = "../../../../server/clients/go/holdfast"
		readAll(t, dir+"/*.go", dir+"/driver/*.go")
		program := filepath.Join(t.TempDir(), "driver")
		build := exec.Command("go", "build", "-o", program, "./driver")
		build.Dir = dir
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return []string{program}
	},
	"Python": python,
	"asyncio": func(t *testing.T) []string {
		command := python(t)
		out, err := exec.Command(command[0], filepath.Dir(command[1])+"/test_aio.py").CombinedOutput()
		require.NoError(t, err, "%s", out)
		return append(command, "--asyncio")
	},
	"Java":    java,
	"futures": func(t *testing.T) []string { return append(java(t), "--async") },
	"TypeScript": func(t *testing.T) []string {
		dir := os.Getenv("HOLDFAST_TYPESCRIPT")
		if dir == "" {
			t.Skip("HOLDFAST_TYPESCRIPT does not name the built library: `make clients` builds and tests it")
		}
		readAll(t, dir+"/*.mjs", dir+"/dist/*")
		return []string{"node", dir + "/driver.mjs"}
	},
}

func java(t *testing.T) []string {
	const dir = "../../../../server/clients/java/holdfast-client"
	const library = dir + "/src/main/java/io/github/holdfast/*.java"
	readAll(t, library, dir+"/*.java")
	compiler, err := exec.LookPath("javac")
	if err != nil {
		t.Skip("javac is not installed: the Java library is not tested")
	}
	files, err := filepath.Glob(library)
	require.NoError(t, err)
	classes := t.TempDir()
	files = append(files, dir+"/Driver.java", "-Xlint:all", "-Werror", "--release", "17", "-d", classes)
	out, err := exec.Command(compiler, files...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return []string{"java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, "Driver"}
}

func python(t *testing.T) []string {
	const dir = "../../../../server/clients/python/holdfast-client"
	readAll(t, dir+"/*.py", dir+"/holdfast_client/*.py")
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed: the Python library is not tested")
	}
	return []string{program, dir + "/driver.py"}
}

// readAll reads files, so that the go command runs the test again when they change.
func readAll(t *testing.T, patterns ...string) {
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		require.NoError(t, err)
		require.NotEmpty(t, files, p)
		for _, f := range files {
			_, err := os.ReadFile(f)
			require.NoError(t, err)
		}
	}
}

// stage is a cluster, and the library that clients of it use.
type stage struct {
	*holdertest.Cluster
	command []string
}

func startDriver(t *testing.T, c stage) *driver {
	d := &driver{t: t, cmd: exec.Command(c.command[0], c.command[1:]...), events: make(chan string, 64)}
	d.word = filepath.Join(t.TempDir(), "word")
	require.NoError(t, os.WriteFile(d.word, []byte(c.Password), 0o600))
	d.cmd.Env = append(os.Environ(), "HOLDFAST_NODES="+strings.Join(c.Addrs(), ","), "HOLDFAST_TTL="+ttl.String(),
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
	select {
	case e := <-d.events:
		rest, ok := strings.CutPrefix(e, prefix)
		require.Truef(d.t, ok, "%q instead of %q", e, prefix)
		return strings.TrimSpace(rest)
	case <-time.After(20 * time.Second):
		require.FailNow(d.t, "no event "+prefix)
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

// scenarios are the rows of the table in server/clients/CONTRACT.md.
var scenarios = []struct {
	name  string
	nodes int
	play  func(t *testing.T, c stage)
}{
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
	{"timed out in line", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("job")
		a.say("lock 1 job timeout=0.2")
		a.event("refused 1 not-granted")
		awaitWaiters(t, c, "job", 0)
	}},
	{"cancelled in line", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("job")
		a.say("lock 1 job")
		awaitWaiters(t, c, "job", 1)
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
			if e := <-a.events; strings.HasPrefix(e, "granted") {
				a.say("unlock %d", i)
				a.event("released")
			}
			awaitHolder(t, c, "job", "")
			awaitWaiters(t, c, "job", 0)
		}
	}},
	{"broken by an operator", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		c.Break("job")
		a.event("lost 1 now broken")
		a.say("unlock 1")
		a.event("released 1 lost")
	}},
	{"node killed while holding", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		c.Kill(0)
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
		require.Empty(t, c.Holder("job"))
	}},
	{"node frozen while holding", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		c.Stall(0)
		a.silent() // is at the other node, and has closed the connection to this one
		a.say("unlock 1")
		require.Empty(t, a.event("released 1"))
	}},
	{"node killed while waiting", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("job")
		a.say("lock 1 job")
		awaitWaiters(t, c, "job", 1)
		c.Kill(0)
		a.silent() // is at the other node
		c.Break("job")
		a.fence("1")
	}},
	{"lost while between two nodes", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		c.Take("job") // no notice is sent
		c.Kill(0)
		a.event("lost 1 now unknown")
	}},
	{"no node for longer than the TTL", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
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
		a := startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		c.Cut("LOCK.INFO")
		a.say("look job")
		a.event("seen job 1 0")
		a.event("lost 1 now session")
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
	{"cluster away, shorter than the TTL", 2, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("taken")
		a.say("lock 1 job")
		a.fence("1")
		a.say("lock 2 taken")
		awaitWaiters(t, c, "taken", 1)
		c.Refuse("CLUSTERDOWN No leader is known, the command was not applied")
		require.Eventually(t, func() bool { return slices.Contains(c.Sent(), "SESSION.ATTACH") }, ttl/2, time.Millisecond)
		c.Refuse("")
		a.silent()
		c.Break("taken")
		a.fence("2")
	}},
	{"place in line lost", 1, func(t *testing.T, c stage) {
		a := startDriver(t, c)
		c.Take("job")
		a.say("lock 1 job")
		awaitWaiters(t, c, "job", 1)
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
		a.event("change leader 0")
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
		a := startDriver(t, c)
		a.say("lock 1 job")
		a.fence("1")
		require.NoError(t, os.WriteFile(a.word, []byte("wrong"), 0o600))
		c.Kill(0)
		a.say("look job")
		a.event("seen job 0 0 refused")
		require.NoError(t, os.WriteFile(a.word, []byte(c.Password), 0o600))
		a.say("unlock 1")
		a.event("released 1")
	}},
}

// TestContract plays each scenario with the client library of each language.
func TestContract(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs programs")
	}
	for language, driver := range languages {
		t.Run(language, func(t *testing.T) {
			command := driver(t)
			for _, s := range scenarios {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					s.play(t, stage{holdertest.Start(t, s.nodes, "secret"), command})
				})
			}
		})
	}
}
