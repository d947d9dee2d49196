//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/fleet"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// These tests run the next release beside this one: `make upgrade`. There is none yet, so testdata/next.txt changes
// this tree into one whose log has another version.

// nextVersion is the version of the log that the next release has.
const nextVersion = protocol.EntryVersion + 1

// nextChange is an entry of testdata/next.txt.
type nextChange struct{ file, old, new string }

func nextChanges(t *testing.T) (all []nextChange) {
	t.Helper()
	text := protocoltest.ReadFile(t, filepath.Join("testdata", "next.txt"))
	for entry := range strings.SplitSeq(text, "\n\n") {
		var c nextChange
		for line := range strings.Lines(strings.TrimRight(entry, "\n") + "\n") {
			switch mark, rest, _ := strings.Cut(line, " "); mark {
			case "#":
			case "-":
				c.old += rest
			case "+":
				c.new += rest
			default:
				c.file = strings.TrimSpace(line)
			}
		}
		if c.file != "" {
			c.old, c.new = strings.TrimSuffix(c.old, "\n"), strings.TrimSuffix(c.new, "\n")
			all = append(all, c)
		}
	}
	return all
}

// writeNext writes the files of the next release into dir, and an overlay for the go command that has them in the place
// of this tree's.
func writeNext(t *testing.T, dir string) (overlay string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	texts := make(map[string]string)
	for _, c := range nextChanges(t) {
		if texts[c.file] == "" {
			text := protocoltest.ReadFile(t, filepath.Join(root, c.file))
			texts[c.file] = text
		}
		require.Equal(t, 1, strings.Count(texts[c.file], c.old), "testdata/next.txt, %s: %q", c.file, c.old)
		texts[c.file] = strings.Replace(texts[c.file], c.old, c.new, 1)
	}
	var files struct{ Replace map[string]string }
	files.Replace = make(map[string]string)
	for file, text := range texts { // unordered: fills another map
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		files.Replace[filepath.Join(root, file)] = path
	}
	text, err := json.Marshal(files)
	require.NoError(t, err)
	overlay = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	return overlay
}

// TestNextReleaseApplies: every entry of testdata/next.txt has its place in this tree.
func TestNextReleaseApplies(t *testing.T) { writeNext(t, t.TempDir()) }

// releases builds this release and the next one, and returns the overlay of the next one, too.
func releases(t *testing.T) (this, next, overlay string) {
	t.Helper()
	if os.Getenv("HOLDFAST_UPGRADE") == "" {
		t.Skip("HOLDFAST_UPGRADE is not set: see 'make upgrade'")
	}
	dir := filepath.Join(buildFolder, "next")
	next, overlay = filepath.Join(dir, "holdfast-next"), filepath.Join(dir, "overlay.json")
	if _, err := os.Stat(next); err != nil { // the first of these tests
		require.NoError(t, os.MkdirAll(dir, 0o700))
		overlay = writeNext(t, dir)
		require.NoError(t, fleet.Build(t.Context(), ".", next, ".", "-overlay="+overlay))
	}
	return build(t), next, overlay
}

// TestUpgradeOfTheVersion runs the tests of package replica that need two versions of the log, and are skipped in this
// tree.
func TestUpgradeOfTheVersion(t *testing.T) {
	_, _, overlay := releases(t)
	out, err := exec.Command("go", "test", "-count=1", "-v", "-overlay="+overlay, "-run",
		"^(TestVersionWaits.*|TestOutdatedMembersDoNotAnswer)$", "../../server/replica").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "--- SKIP")
	require.GreaterOrEqual(t, strings.Count(string(out), "--- PASS"), 4, "%s", out)
}

// claim is what a command that takes, or looks, said. The same is said ever after.
type claim struct{ words, want string }

// claimAll takes locks of every kind, for an hour, and returns how each is asked for.
func claimAll(t *testing.T, c *redis.Client, mark string) (claims []claim) {
	t.Helper()
	do := func(words string) any {
		v, err := c.Do(t.Context(), redisWords(strings.ReplaceAll(words, "$", mark))...).Result()
		require.NoError(t, err, words)
		return v
	}
	keep := func(format string, args ...any) {
		words := strings.ReplaceAll(fmt.Sprintf(format, args...), "$", mark)
		claims = append(claims, claim{words, fmt.Sprint(do(words))})
	}
	for take, checks := range map[string][]string{ // unordered: of different keys
		"LOCK.ACQUIRE alone$ me PX 3600000 NOTE why":            {"LOCK.CHECK alone$ me"},
		"LOCK.ACQUIRE shared$ me PX 3600000 SHARED":             {"LOCK.CHECK shared$ me"},
		"LOCK.ACQUIRE shared$ you PX 3600000 SHARED":            {"LOCK.CHECK shared$ you"},
		"LOCK.ACQUIRE places$ me PX 3600000 LIMIT 5 PERMITS 2":  {"LOCK.CHECK places$ me"},
		"LOCK.ACQUIRE places$ you PX 3600000 LIMIT 5 PERMITS 3": {"LOCK.CHECK places$ you"},
		"LOCK.ACQUIRE again$ me PX 3600000 REENTRANT CALL 1":    {"LOCK.CHECK again$ me"},
		"LOCK.ACQUIRE late$ me PX 3600000 DELAY 1000":           {"LOCK.CHECK late$ me"},
		"LOCK.ACQUIREALL 3 all1$ all2$ all3$ me PX 3600000":     {"LOCK.CHECK all1$ me", "LOCK.CHECK all3$ me"},
		"FENCE.PASS resource$ 77": {
			"FENCE.GET resource$",
			"FENCE.PASS resource$ 76",
		},
		"SET plain$ token NX PX 3600000": {"GET plain$"},
		"HINCRBY redisson$ thread:1 1":   {"HGETALL redisson$"},
		"RPUSH queue$ a b c":             {"LRANGE queue$ 0 -1"},
		"ZADD order$ 1 a 2 b":            {"ZRANGE order$ 0 -1 WITHSCORES"},
		"SADD set$ a b":                  {"SCARD set$"},
		"EVAL return(redis.call('set',KEYS[1],'s','px','3600000')) 1 script$": {"GET script$"},
	} {
		do(take)
		for _, check := range checks {
			keep("%s", check)
		}
	}
	session := do("SESSION.OPEN PX 3600000 NAME job$")
	do(fmt.Sprintf("LOCK.ACQUIRE held$ me SESSION %v", session))
	keep("LOCK.CHECK held$ me")
	return claims
}

func redisWords(line string) (words []any) {
	for _, word := range strings.Fields(line) {
		words = append(words, word)
	}
	return words
}

// requireClaims finds all claims, through every node.
func requireClaims(t *testing.T, nodes []*node, claims []claim) {
	t.Helper()
	for _, n := range nodes {
		c := client(t, n)
		for _, claim := range claims {
			v, err := c.Do(t.Context(), redisWords(claim.words)...).Result()
			require.NoError(t, err, "%s of %s", claim.words, n.name)
			require.Equal(t, claim.want, fmt.Sprint(v), "%s of %s", claim.words, n.name)
		}
	}
}

// load is clients that take locks on all nodes, and what they were told.
type load struct {
	*acknowledged
	clients []*redis.Client

	mu     sync.Mutex
	native map[string]int64 // fences of native locks, by key
	meant  int              // acknowledged RPUSHXs of the key means
	fences map[int64]int    // grants of a lock for which clients stand in line

	rounds  int // starts so far
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

func newLoad(t *testing.T, nodes []*node) *load {
	l := &load{
		acknowledged: &acknowledged{locks: map[string]string{}, fence: map[int64]int{}},
		native:       map[string]int64{}, fences: map[int64]int{},
	}
	for _, n := range nodes {
		l.clients = append(l.clients, client(t, n))
	}
	require.NoError(t, l.clients[0].RPush(t.Context(), "means", "a").Err())
	return l
}

func (l *load) start(t *testing.T) {
	l.rounds++
	round := strings.Repeat("r", l.rounds)
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	for w := range 3 {
		l.workers.Go(func() { l.lockUntil(ctx, 100*len(round)+w, l.clients) })
		l.workers.Go(func() { l.nativeUntil(ctx, fmt.Sprint(round, w), l.clients[w]) })
		l.workers.Go(func() { l.pushUntil(ctx, l.clients[w]) })
		l.workers.Go(func() { l.standInLineUntil(ctx, fmt.Sprint(round, w), l.clients[w]) })
	}
}

func (l *load) stop() {
	l.cancel()
	l.workers.Wait()
}

func (l *load) nativeUntil(ctx context.Context, owner string, c *redis.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprint("native:", owner, ":", i)
		if fence, err := c.Do(ctx, "LOCK.ACQUIRE", key, owner, "PX", "3600000").Int64(); err == nil {
			l.mu.Lock()
			l.native[owner+" "+key] = fence
			l.mu.Unlock()
		}
	}
}

// pushUntil writes what means another thing in entries of the next version.
func (l *load) pushUntil(ctx context.Context, c *redis.Client) {
	for ctx.Err() == nil {
		if c.RPushX(ctx, "means", "a").Err() == nil {
			l.mu.Lock()
			l.meant++
			l.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// standInLineUntil takes each turn as another owner: who asks again for what it holds gets the same fence.
func (l *load) standInLineUntil(ctx context.Context, name string, c *redis.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		owner := fmt.Sprint(name, ":", i)
		fence, err := c.Do(ctx, "LOCK.ACQUIRE", "line", owner, "PX", "2000", "WAIT", "1000").Int64()
		if err != nil || fence == 0 {
			continue
		}
		l.mu.Lock()
		l.fences[fence]++
		l.mu.Unlock()
		_ = c.Do(ctx, "FENCE.PASS", "guarded", fence).Err()
		_ = c.Do(ctx, "LOCK.RELEASE", "line", owner).Err()
	}
}

// goesOn waits until the load has taken more locks of each kind.
func (l *load) goesOn(t *testing.T) {
	t.Helper()
	counts := func() [3]int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return [3]int{l.count(), len(l.native), len(l.fences)}
	}
	before := counts()
	require.Eventually(t, func() bool {
		now := counts()
		return now[0] > before[0]+20 && now[1] > before[1]+20 && now[2] > before[2]+5
	}, 60*time.Second, 10*time.Millisecond, "%v", before)
}

// verifyAll finds what was acknowledged, through every node. Requires: the load has stopped.
func (l *load) verifyAll(t *testing.T) {
	t.Helper()
	for _, c := range l.clients { // a client may not have noticed yet that its node was started again
		require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, 10*time.Second, 10*time.Millisecond)
	}
	l.verify(t, l.clients)
	for fence, times := range l.fences {
		require.Equal(t, 1, times, "fence %d", fence)
	}
	all, err := l.clients[0].LRange(t.Context(), "means", 0, -1).Result()
	require.NoError(t, err)
	means := strings.Join(all, "")
	require.Regexp(t, `^a*(\+a)*$`, means, "no entry has the older meaning behind one that has the newer")
	require.GreaterOrEqual(t, strings.Count(means, "a"), l.meant)
	for _, c := range l.clients {
		_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for name := range l.native {
				owner, key, _ := strings.Cut(name, " ")
				p.Do(t.Context(), "LOCK.CHECK", key, owner)
			}
			return nil
		})
		require.NoError(t, err)
		for name, fence := range l.native {
			owner, key, _ := strings.Cut(name, " ")
			got, err := c.Do(t.Context(), "LOCK.CHECK", key, owner).Int64()
			require.NoError(t, err)
			require.Equal(t, fence, got, name)
		}
	}
}

// walk gives the nodes named another program, one after the other, under load. In each step the leader is killed, and
// the states of all nodes are compared.
func (l *load) walk(t *testing.T, nodes []*node, exe string, names ...string) {
	t.Helper()
	for i, n := range nodes {
		if len(names) > 0 && !slices.Contains(names, n.name) {
			continue
		}
		if i == 1 {
			n.Kill()
		} else {
			n.stop(t)
		}
		n.exe = exe
		n.start(t)
		waitServing(t, n)
		waitFollowing(t, n, nodes)
		require.Eventually(t, func() bool { // which is what the runbook waits for
			return exec.Command(exe, "cluster", "status", "--server", n.addr).Run() == nil
		}, 30*time.Second, 50*time.Millisecond)
		leader := leaderOf(t, nodes)
		leader.Kill()
		l.goesOn(t)
		leader.start(t)
		waitServing(t, leader)
		l.stop()
		requireSameState(t, nodes)
		l.start(t)
	}
}

// requireSameState waits until all nodes are as far as each other, and finds their states equal. Requires: nobody
// writes.
func requireSameState(t *testing.T, nodes []*node) {
	t.Helper()
	require.Eventually(t, func() bool {
		var first protocol.Value
		for _, n := range nodes {
			digest, err := ask(t.Context(), n.addr, "DEBUG", "DIGEST")
			switch {
			case err != nil || len(digest.Elems) != 2:
				return false
			case n == nodes[0]:
				first = digest
			case digest.Elems[0].Num != first.Elems[0].Num:
				return false
			}
			require.Equal(t, first.Elems[1].Str, digest.Elems[1].Str, "%s and %s behind entry %d", nodes[0].name, n.name,
				first.Elems[0].Num)
		}
		return true
	}, 30*time.Second, time.Millisecond)
}

// requireVersion waits until all nodes say that the cluster has a version.
func requireVersion(t *testing.T, nodes []*node, want int) {
	t.Helper()
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			info, err := ask(t.Context(), n.addr, "INFO", "holdfast")
			return err == nil && infoField(info.Str, "cluster_version") == fmt.Sprint(want)
		}, 10*time.Second, 10*time.Millisecond, "%s, version %d", n.name, want)
	}
}

// waitFollowing is what operating/MEMBERS.md says to wait for between two nodes.
func waitFollowing(t *testing.T, n *node, nodes []*node) {
	t.Helper()
	applied := func(n *node) (index int) {
		info, err := ask(t.Context(), n.addr, "INFO", "holdfast")
		if err == nil {
			_, _ = fmt.Sscan(infoField(info.Str, "raft_applied_index"), &index)
		}
		return index
	}
	most := 0
	for _, other := range nodes {
		most = max(most, applied(other))
	}
	require.Eventually(t, func() bool { return applied(n) >= most }, 30*time.Second, 10*time.Millisecond,
		"%s does not keep up", n.name)
}

// holdings are what the nodes hold, as far as it does not depend on time: the same on all.
func holdings(t *testing.T, exe string, nodes []*node) {
	t.Helper()
	var first string
	for _, n := range nodes {
		file := filepath.Join(t.TempDir(), "backup")
		tool(t, exe, "backup", "--server", n.addr, file)
		var same []string
		for line := range strings.Lines(tool(t, exe, "inspect", file)) {
			switch name, _, _ := strings.Cut(line, " "); name {
			case "taken", "checksums", "log", "leases":
			default:
				same = append(same, line)
			}
		}
		if first == "" {
			first = strings.Join(same, "")
		}
		require.Equal(t, first, strings.Join(same, ""), n.name)
	}
}

// requireWithoutNext finds that nodes do not have what comes with the next version: those of the next release refuse it
// by name, and those of this one do not know it. Scripts meet the same on all nodes, whichever leads.
func requireWithoutNext(t *testing.T, nodes []*node, next string) {
	t.Helper()
	for _, n := range nodes {
		c := client(t, n)
		refused := func(ofNext, ofThis, words string) {
			t.Helper()
			want := ofThis
			if n.exe == next {
				want = ofNext
			}
			require.ErrorContains(t, c.Do(t.Context(), redisWords(words)...).Err(), want, "%s: %s", n.name, words)
		}
		refused("unknown command 'fence.next': it comes with version 2 of the cluster, which has version 1 (see RAFT.STATUS)",
			"unknown command 'FENCE.NEXT'", "FENCE.NEXT later")
		refused("the option 'MUTE' of 'lock.acquire' comes with version 2 of the cluster, which has version 1",
			"syntax error", "LOCK.ACQUIRE later me PX 60000 MUTE")
		for _, script := range []string{
			"EVAL return(redis.call('fence.next','later')) 1 later",
			"EVAL return(redis.call('lock.acquire','later','me','PX','60000','MUTE')) 1 later",
		} {
			require.Error(t, c.Do(t.Context(), redisWords(script)...).Err(), "%s: %s", n.name, script)
		}
		require.Zero(t, c.Exists(t.Context(), "later").Val(), n.name)
	}
}

// requireNext finds that all nodes have what comes with the next version.
func requireNext(t *testing.T, nodes []*node) {
	t.Helper()
	for i, n := range nodes {
		c := client(t, n)
		fence, err := c.Do(t.Context(), "FENCE.NEXT", "next").Int()
		require.NoError(t, err, n.name)
		require.Equal(t, 1, fence, n.name)
		passed, err := c.Do(t.Context(), "FENCE.GET", "next").Int()
		require.NoError(t, err, n.name)
		require.Equal(t, i+1, passed, n.name)
		key := "mute-" + n.name
		for _, words := range []string{
			"LOCK.ACQUIRE " + key + " me PX 3600000 NOTE why MUTE",
			"EVAL return(redis.call('fence.next','next-script')) 1 next-script",
		} {
			require.NoError(t, c.Do(t.Context(), redisWords(words)...).Err(), "%s: %s", n.name, words)
		}
		info, err := c.Do(t.Context(), "LOCK.INFO", key).Result()
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprint(info), "why")
	}
}

// TestUpgradeNodeByNode replaces the program of each node under load. On the way a node goes back, and another one
// holds the version of the cluster. Then the cluster goes over to the version of the next release, and there is no way
// back: no acknowledged lock is lost, no fence is given out twice, and the states of all nodes are equal at each step.
func TestUpgradeNodeByNode(t *testing.T) {
	this, next, _ := releases(t)
	// Nodes that come back get snapshots, from leaders of the other release, too.
	nodes := startNodes(t, this, 3, "--cluster-secret", "open sesame", "--debug",
		"--snapshot-threshold", "64", "--trailing-logs", "16")
	claims := claimAll(t, client(t, nodes[0]), "-old")
	l := newLoad(t, nodes)
	l.start(t)
	l.goesOn(t)
	l.walk(t, nodes, next, "n1", "n2")
	requireVersion(t, nodes, protocol.EntryVersion)
	requireWithoutNext(t, nodes, next)
	l.walk(t, nodes, this, "n2")
	requireWithoutNext(t, nodes, next)
	l.walk(t, nodes, next, "n2")
	nodes[2].args = append(nodes[2].args, "--hold-version", fmt.Sprint(protocol.EntryVersion))
	l.walk(t, nodes, next, "n3")
	l.stop()
	l.verifyAll(t)
	requireClaims(t, nodes, claims)
	holdings(t, next, nodes)
	claims = append(claims, claimAll(t, client(t, nodes[1]), "-new")...)
	requireVersion(t, nodes, protocol.EntryVersion)
	requireWithoutNext(t, nodes, next)
	require.Contains(t, tool(t, next, "cluster", "status", "--server", nodes[0].addr),
		"The cluster keeps version 1 for n3 (--hold-version 1).")

	l.start(t)
	nodes[2].drop("hold-version")
	l.walk(t, nodes, next, "n3")
	requireVersion(t, nodes, nextVersion)
	l.goesOn(t)
	l.walk(t, nodes, next, "n1")
	l.stop()
	requireNext(t, nodes)
	require.Equal(t, "+a", client(t, nodes[0]).LIndex(t.Context(), "means", -1).Val())
	requireSameState(t, nodes)
	l.verifyAll(t)
	requireClaims(t, nodes, claims)
	requireVersion(t, nodes, nextVersion)
	requireGoesNotBack(t, nodes[1], this, next)
	requireSameState(t, nodes)
	requireClaims(t, nodes, claims)
}

// requireGoesNotBack finds that this release refuses the folder of a node that has the next version, and that the
// folder stays good.
func requireGoesNotBack(t *testing.T, n *node, this, next string) {
	t.Helper()
	n.stop(t)
	n.exe = this
	n.start(t)
	n.fails(t, 1, "version 2, this node knows 1: the cluster went over to a newer release, and does not go back: run "+
		"the newer release on every node")
	n.exe = next
	n.start(t)
	waitServing(t, n)
}

// TestUpgradeUnderFaults: clients of all workloads of the partition tests see nothing wrong while nodes get the next
// release, among kills and partitions of the leader, and at last the cluster goes over to the version of that.
func TestUpgradeUnderFaults(t *testing.T) {
	this, next, overlay := releases(t)
	out, err := exec.Command("go", "run", "-overlay="+overlay, "../../jepsen", "--before", this, "--binary", next, "--net",
		"proxies", "--nemesis", "release,kill-leader,partition-leader", "--time", "80s", "--seed", "5", "--store",
		filepath.Join(t.TempDir(), "store")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 8, strings.Count(string(out), "kind=release-"), "of a schedule for a whole upgrade")
}

// TestUpgradeAlone: a node without others goes over at once, and has all; the cluster grows.
func TestUpgradeAlone(t *testing.T) {
	this, next, _ := releases(t)
	nodes := startNodes(t, this, 1)
	n := nodes[0]
	claims := claimAll(t, client(t, n), "")
	n.Kill()
	n.exe = next
	n.start(t)
	waitServing(t, n)
	requireVersion(t, nodes, nextVersion)
	requireClaims(t, nodes, claims)
	four := newcomer(t, "n4", nodes)
	waitServing(t, four)
	four.logs(t, "this node votes")
	nodes = append(nodes, four)
	requireNext(t, nodes)
	requireClaims(t, nodes, claims)

	n.stop(t)
	n.exe = this
	n.start(t)
	n.fails(t, 1, "run the newer release on every node")
	n.exe = next
	n.start(t)
	waitServing(t, nodes...)
	requireClaims(t, nodes, claims)
}

// TestUpgradeOfBackups: the next release restores a backup of this one. This one refuses a backup of the next with the
// line of the book, and the folder that the next has founded a cluster with.
func TestUpgradeOfBackups(t *testing.T) {
	this, next, _ := releases(t)
	source := startNodes(t, this, 1)
	claims := claimAll(t, client(t, source[0]), "")
	file := filepath.Join(t.TempDir(), "file")
	tool(t, this, "backup", "--server", source[0].addr, file)
	restored := plan(t, next, 1)
	restore := func(exe string, n *node) *exec.Cmd {
		return exec.Command(exe, "restore", file, "--data-dir", *n.flag("data-dir"), "--name", n.name,
			"--initial-cluster", *n.flag("initial-cluster"))
	}
	out, err := restore(next, restored[0]).CombinedOutput()
	require.NoError(t, err, "%s", out)
	restored[0].start(t)
	waitServing(t, restored[0])
	requireVersion(t, restored, nextVersion)
	requireNext(t, restored)
	requireClaims(t, restored, claims)

	tool(t, this, "backup", "--server", restored[0].addr, file+"2")
	file += "2"
	out, err = restore(this, plan(t, this, 1)[0]).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "version 2, this node knows 1")
	requireGoesNotBack(t, restored[0], this, next)
	requireClaims(t, restored, claims)

	founded := startNodes(t, next, 1)
	requireVersion(t, founded, nextVersion)
	requireGoesNotBack(t, founded[0], this, next)
}
