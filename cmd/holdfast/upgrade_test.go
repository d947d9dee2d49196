//go:build unix

package main

import (
	"context"
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
)

// These tests run the release before beside this one: `make upgrade`.

// releaseBefore builds the revision that the environment names, from the history of this repository.
func releaseBefore(t *testing.T) string {
	t.Helper()
	rev := os.Getenv("HOLDFAST_UPGRADE_FROM")
	if rev == "" {
		t.Skip("HOLDFAST_UPGRADE_FROM names no revision: see 'make upgrade'")
	}
	if out, err := exec.Command("git", "cat-file", "-e", rev+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the release before cannot be built: revision %s is not in the history here, as in a shallow clone or an "+
			"archive (%s)", rev, strings.TrimSpace(string(out)))
	}
	exe, err := builtBefore()
	require.NoError(t, err)
	return exe
}

var builtBefore = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(buildFolder, "before")
	exe := filepath.Join(dir, "holdfast-before")
	const steps = `mkdir "$1" && git -C "$(git rev-parse --show-toplevel)" archive "$2" | tar -x -C "$1" && cd "$1" && go build -trimpath -o "$3" ./cmd/holdfast`
	out, err := exec.Command("sh", "-c", steps, "sh", dir, os.Getenv("HOLDFAST_UPGRADE_FROM"), exe).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return exe, err
})

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
		if exe == build(t) { // which is what the runbook waits for
			require.Eventually(t, func() bool {
				return exec.Command(exe, "cluster", "status", "--server", n.addr).Run() == nil
			}, 30*time.Second, 50*time.Millisecond)
		}
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

// TestUpgradeNodeByNode replaces the program of each node under load. On the way a node goes back, and another one
// holds the version of the cluster. Then the cluster goes over to the version of this release, and there is no way
// back: no acknowledged lock is lost, no fence is given out twice, and the states of all nodes are equal at each step.
func TestUpgradeNodeByNode(t *testing.T) {
	before, after := releaseBefore(t), build(t)
	// Nodes that come back get snapshots, from leaders of the other release, too.
	nodes := startNodes(t, before, 3, "--cluster-secret", "open sesame", "--debug",
		"--snapshot-threshold", "64", "--trailing-logs", "16")
	claims := claimAll(t, client(t, nodes[0]), "-old")
	l := newLoad(t, nodes)
	l.start(t)
	l.goesOn(t)
	l.walk(t, nodes, after, "n1", "n2")
	requireVersion(t, nodes[:2], protocol.OldestEntryVersion)
	l.walk(t, nodes, before, "n2")
	l.walk(t, nodes, after, "n2")
	nodes[2].args = append(nodes[2].args, "--hold-version", fmt.Sprint(protocol.OldestEntryVersion))
	l.walk(t, nodes, after, "n3")
	l.stop()
	l.verifyAll(t)
	requireClaims(t, nodes, claims)
	holdings(t, after, nodes)
	claims = append(claims, claimAll(t, client(t, nodes[1]), "-new")...)
	for _, n := range nodes {
		text, err := os.ReadFile(filepath.Join(*n.flag("data-dir"), "identity.json"))
		require.NoError(t, err)
		require.Contains(t, string(text), `"format": 1`, "the way back is open until members change")
	}
	requireVersion(t, nodes, protocol.OldestEntryVersion)
	require.Contains(t, tool(t, after, "cluster", "status", "--server", nodes[0].addr),
		"The cluster keeps version 5 for n3 (--hold-version 5).")

	l.start(t)
	nodes[2].drop("hold-version")
	l.walk(t, nodes, after, "n3")
	requireVersion(t, nodes, protocol.EntryVersion)
	l.goesOn(t)
	l.walk(t, nodes, after, "n1")
	l.stop()
	requireSameState(t, nodes)
	l.verifyAll(t)
	requireClaims(t, nodes, claims)
	requireVersion(t, nodes, protocol.EntryVersion)
	for range 2 { // of those that are kept, none may be one that the release before can read
		require.NoError(t, client(t, nodes[1]).Incr(t.Context(), "snapshots").Err())
		_, err := ask(t.Context(), nodes[1].addr, "DEBUG", "SNAPSHOT")
		require.NoError(t, err)
	}
	nodes[1].stop(t)
	nodes[1].exe = before
	nodes[1].start(t)
	nodes[1].fails(t, 1, "")
	require.Contains(t, nodes[1].Output(), "run the newer release on every node")
	nodes[1].exe = after
	nodes[1].start(t)
	waitServing(t, nodes[1])
	requireSameState(t, nodes)
	requireClaims(t, nodes, claims)
}

// TestUpgradeUnderFaults: clients of all workloads of the partition tests see nothing wrong while nodes get the other
// release, among kills and partitions of the leader, and at last the cluster goes over to the version of this release.
func TestUpgradeUnderFaults(t *testing.T) {
	before, after := releaseBefore(t), build(t)
	out, err := exec.Command("go", "run", "../../jepsen", "--before", before, "--binary", after, "--net", "proxies",
		"--nemesis", "release,kill-leader,partition-leader", "--time", "80s", "--seed", "5", "--store",
		filepath.Join(t.TempDir(), "store")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 8, strings.Count(string(out), "kind=release-"), "of a schedule for a whole upgrade")
}

// TestUpgradeWithTLS: nodes of both releases know each other by certificates.
func TestUpgradeWithTLS(t *testing.T) {
	before, after := releaseBefore(t), build(t)
	a, dir := newAuthority(t), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	ca := write("ca", a.text(t, "ca.crt"))
	cert, key := a.pair(t, "node")
	nodes := startNodes(t, before, 3, "--debug", "--peer-tls-ca", ca, "--peer-tls-cert", write("cert", cert),
		"--peer-tls-key", write("key", key))
	l := newLoad(t, nodes)
	l.start(t)
	l.walk(t, nodes, after)
	l.stop()
	l.verifyAll(t)
}

// TestUpgradeFolderAlone: a folder of the release before is opened by this one alone, and has all; the cluster grows.
func TestUpgradeFolderAlone(t *testing.T) {
	before, after := releaseBefore(t), build(t)
	nodes := startNodes(t, before, 1)
	n := nodes[0]
	claims := claimAll(t, client(t, n), "")
	n.Kill()
	n.exe = after
	n.start(t)
	waitServing(t, n)
	requireClaims(t, nodes, claims)
	four := newcomer(t, "n4", nodes)
	waitServing(t, four)
	four.logs(t, "this node votes")
	nodes = append(nodes, four)
	requireClaims(t, nodes, claims)

	// The release before does not know the member. Nothing is destroyed if it is started all the same.
	n.stop(t)
	n.exe = before
	n.start(t)
	n.fails(t, 1, "not of the initial cluster given")
	n.exe = after
	n.start(t)
	for _, n := range nodes {
		waitServing(t, n)
	}
	requireClaims(t, nodes, claims)
}

// TestUpgradeIsNotUndoneByAccident: the release before refuses a folder that this one has made, with a line that says
// why, and leaves the folder as it is.
func TestUpgradeIsNotUndoneByAccident(t *testing.T) {
	before, after := releaseBefore(t), build(t)
	nodes := startNodes(t, after, 1)
	n := nodes[0]
	claims := claimAll(t, client(t, n), "")
	n.stop(t)
	files := func() map[string]string {
		all := make(map[string]string)
		dir := *n.flag("data-dir")
		require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == "LOCK" {
				return err
			}
			text, err := os.ReadFile(path)
			all[path] = string(text)
			return err
		}))
		return all
	}
	kept := files()
	n.exe = before
	n.start(t)
	n.fails(t, 1, "has format 2, this release knows formats up to 1: use the release that wrote it, or a newer one")
	require.Equal(t, kept, files())
	n.exe = after
	n.start(t)
	waitServing(t, n)
	requireClaims(t, nodes, claims)
}
