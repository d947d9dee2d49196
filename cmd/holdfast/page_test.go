package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/api"
)

// withPages starts nodes with a port for monitoring each, and returns its address by the node.
func withPages(t *testing.T, count int, flags ...string) ([]*node, map[*node]string) {
	t.Helper()
	nodes, ports := plan(t, build(t), count, flags...), make(map[*node]string)
	for i, addr := range freeAddrs(t, count) {
		nodes[i].args = append(nodes[i].args, "--http-addr", addr)
		ports[nodes[i]] = addr
	}
	for _, n := range nodes {
		n.start(t)
	}
	return nodes, ports
}

// asked is the document with which a node answers.
func asked[D any](t *testing.T, addr, path string) (doc D, status int) {
	t.Helper()
	answer, err := http.Get("http://" + addr + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &doc), "%s", body)
	return doc, answer.StatusCode
}

// take has an owner hold a native lock for an hour, or stand in line if more says so.
func take(t *testing.T, c *redis.Client, key, owner string, more ...any) int64 {
	t.Helper()
	fence, err := c.Do(t.Context(), append([]any{"LOCK.ACQUIRE", key, owner, "PX", 3_600_000}, more...)...).Int64()
	require.NoError(t, err)
	return fence
}

// queue has an owner wait for a lock in the background, and returns when it stands in line.
func queue(t *testing.T, n *node, key, owner string, more ...any) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: n.addr, MaxRetries: -1, ReadTimeout: -1})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Do(ctx, append([]any{"LOCK.ACQUIRE", key, owner, "PX", 3_600_000, "WAIT", 0}, more...)...).Err()
	}()
	t.Cleanup(func() {
		cancel()
		c.Close()
		<-ended
	})
	require.Eventually(t, func() bool {
		v, err := ask(t.Context(), n.addr, "LOCK.LIST", "MATCH", key, "OWNER", owner, "WAITING")
		return err == nil && len(v.Elems) == 2 && len(v.Elems[1].Elems) == 1
	}, 20*time.Second, 20*time.Millisecond)
}

// TestDocumentsOfNodes: leader and followers tell the same of locks, and go on when no leader is left.
func TestDocumentsOfNodes(t *testing.T) {
	protocoltest.SkipShort(t, "three processes")
	nodes, ports := withPages(t, 3)
	waitServing(t, nodes...)
	leader := leaderOf(t, nodes)
	fence := take(t, client(t, nodes[0]), "job", "vm-1")
	queue(t, nodes[1], "job", "vm-2")
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			doc, status := asked[api.Locks](t, ports[n], "/api/locks?sort=queue")
			return status == 200 && len(doc.Locks) == 1 && doc.Locks[0].Key == "job" && doc.Node == n.name
		}, 20*time.Second, 50*time.Millisecond)
		one, _ := asked[api.OneLock](t, ports[n], "/api/lock?key=job")
		require.Equal(t, fence, one.Lock.Holders[0].Fence)
		require.Equal(t, "n1", one.Lock.Holders[0].Client.Node)
		require.Equal(t, "vm-2", one.Lock.Waiters[0].Owner)
		require.Eventually(t, func() bool {
			members, _ := asked[api.Cluster](t, ports[n], "/api/members")
			return members.Node == n.name && members.Leader == leader.name && members.LiveVoters == 3 &&
				len(members.Members) == 3
		}, 20*time.Second, 50*time.Millisecond)
		history, _ := asked[api.History](t, ports[n], "/api/history")
		var grants uint64
		for _, step := range history.Steps {
			grants += step.Grants
		}
		require.EqualValues(t, 1, grants, "each node counts for all")
	}
	last := others(nodes, leader)[0]
	for _, n := range others(nodes, last) {
		n.Kill()
	}
	require.Eventually(t, func() bool {
		members, _ := asked[api.Cluster](t, ports[last], "/api/members")
		return members.Leader == "" && members.Margin < 0
	}, 30*time.Second, 50*time.Millisecond)
	doc, status := asked[api.Locks](t, ports[last], "/api/locks")
	require.Equal(t, 200, status)
	require.Equal(t, "job", doc.Locks[0].Key)
}

// hostile are names that mean harm to a page, a terminal or a shell.
var hostile = []string{
	"<img src=x onerror=alert(1)>", "\"><script>alert(2)</script>", "javascript:alert(3)", "rtl\u202egnp.exe",
	"nul\x00bell\a\x1b[31m",
	"\xff\xfe no utf-8 '\\\"", "-n --fence 9", "a;touch broken & `touch broken` $(touch broken) 'x' \"y\"", "line\nbreak",
	"{{.}} ${x}", " ", "%3Cb%3E", "a//../b?c#d&e=f",
	strings.Repeat("long", 1000),
}

// TestPage: a browser shows who holds, who waits and who leads, on a wide screen and on a phone, follows by itself, and
// the commands that it names do what they say.
func TestPage(t *testing.T) {
	protocoltest.SkipShort(t, "a browser and three processes")
	b := newBrowser(t)
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip("SKIP: no redis-cli here, which some commands of the page need (apt-get install redis-tools)")
	}
	nodes, ports := withPages(t, 3)
	waitServing(t, nodes...)
	leader, c := leaderOf(t, nodes), client(t, nodes[0])
	take(t, c, "jobs:nightly", "vm-14:16510", "NOTE", "report --full")
	for i := range 3 {
		queue(t, nodes[1], "jobs:nightly", fmt.Sprint("vm-", 20+i))
	}
	for _, name := range hostile {
		take(t, c, name, "owner of "+name[:min(len(name), 900)], "NOTE", name[:min(len(name), 900)])
	}
	seen := others(nodes, leader)[0] // a follower that stays
	port := ports[seen]
	page := b.open("http://"+port+"/", 1440, 900, false)
	page.waits(`document.querySelectorAll("#list tbody tr").length >= 15`)
	page.waits(`document.querySelector("#verdict").textContent == "OK"`) // every member has answered
	require.Contains(t, page.text("#sentence"), leader.name+" leads in term ")
	require.Contains(t, page.text("#sentence"), "3 of 3 voters answer, 1 may fail.")
	require.Equal(t, "3", page.eval(`document.querySelectorAll("#member-list tbody tr").length`))
	require.Contains(t, page.text("#sums"), "15 locks · 15 holders · 3 waiting")
	require.Equal(t, "jobs:nightly", page.text("#list tbody button"), "held longest")
	require.Equal(t, "jobs:nightly", page.text("#queue-list tbody button"))
	require.Equal(t, "0", page.eval(`document.querySelectorAll("main img, main script, main b, main iframe").length`))
	require.Contains(t, page.text("#list tbody"), hostile[0])
	require.Contains(t, page.text("#list tbody"), `rtl\u202egnp.exe`)
	require.Contains(t, page.text("#list tbody"), `nul\x00bell\x07\x1b[31m`)
	fits(page)

	pageFinds(t, page)
	pageCommands(t, page, c)
	pageOfStock(t, page, c)
	pageOnPhone(t, b, port)
	pageOfMany(t, page, c)
	pageRests(t, page)
	for _, n := range others(nodes, seen) {
		n.Kill()
	}
	page.waits(`document.querySelector("#verdict").innerText === "NO LEADER"`)
	require.Contains(t, page.text("#member-list"), "NO")
	require.NotEqual(t, "0", page.eval(`document.querySelectorAll("#list tbody tr").length`))
	seen.Kill()
	page.waits(`document.querySelector("#verdict").innerText === "NO ANSWER"`)
	require.Contains(t, page.text("#trouble"), "What is shown is of ")
	b.noTroubles(port)
}

// TestPageTellsTheTruth: the verdict on the page is that of `holdfast cluster status`, on the page of a member in
// quarantine, too; what is wrong stands above all else, on a phone as well: with members, with clients that poll, and
// with locks that are lost again and again.
func TestPageTellsTheTruth(t *testing.T) {
	protocoltest.SkipShort(t, "a browser and three processes")
	b := newBrowser(t)
	nodes, ports := withPages(t, 3, "--debug", "--consistency-check-interval", "10s")
	waitServing(t, nodes...)
	wrong, other, _ := parts(t, nodes)
	c := client(t, other)
	page := b.open("http://"+ports[other]+"/", 1440, 900, false)
	page.waits(`document.querySelector("#verdict").innerText === "OK"`)
	require.Equal(t, "true", page.eval(`document.querySelector("#troubles").hidden`))

	require.NoError(t, c.SetNX(t.Context(), "crowded", "holder", time.Hour).Err())
	var pollers []*redis.Client
	for range 6 {
		p := redis.NewClient(&redis.Options{Addr: other.addr, PoolSize: 1})
		t.Cleanup(func() { p.Close() })
		pollers = append(pollers, p)
	}
	require.Eventually(t, func() bool {
		for i, p := range pollers {
			require.False(t, p.SetNX(t.Context(), "crowded", fmt.Sprint("poller-", i), time.Hour).Val())
		}
		return strings.Contains(page.text("#troubles"), "crowded: 6 clients poll for it, about ")
	}, time.Minute, 100*time.Millisecond)
	for range 12 {
		require.NoError(t, c.Do(t.Context(), "LOCK.ACQUIRE", "flaps", "x", "PX", 1).Err())
		require.Eventually(t, func() bool { return c.Do(t.Context(), "LOCK.INFO", "flaps").Err() == redis.Nil },
			20*time.Second, time.Millisecond)
	}
	page.waits(`document.querySelector("#troubles").innerText.includes("flaps: lost 12 times in the last minute")`)
	require.Contains(t, page.text("#loss-list"), "×12, 12 in the last minute")
	require.Equal(t, "1", page.eval(`document.querySelectorAll("#loss-list tbody tr").length`))

	keep(t, "troubles.png", page.picture())

	_, err := ask(t.Context(), wrong.addr, "DEBUG", "CORRUPT")
	require.NoError(t, err)
	inQuarantine := wrong.name + " is in quarantine, as its state differs"
	for _, n := range []*node{other, wrong} {
		page := b.open("http://"+ports[n]+"/", 390, 844, true)
		page.waits(`document.querySelector("#troubles").innerText.includes(` + quoted(inQuarantine) + `)`)
		require.Equal(t, "NOT WELL", page.text("#verdict"))
		_, out, _ := clusterOf(build(t), n.addr, "status")
		require.Contains(t, out, page.text("#sentence"))
		require.Contains(t, out, "Not well: "+inQuarantine)
		require.Equal(t, "3", page.eval(`document.querySelectorAll("#member-list tbody tr").length`))
		above := func(a, b string) bool {
			top := func(s string) string { return `document.querySelector("` + s + `").getBoundingClientRect().top` }
			return page.eval(top(a)+" < "+top(b)) == "true"
		}
		require.True(t, above("#troubles", ".members"), "troubles come first")
		require.True(t, above(".members", ".locks"), "while something is wrong, members come before locks")
		troublesStay(page)
		fits(page)
		keep(t, "quarantine-"+map[bool]string{true: "own", false: "other"}[n == wrong]+".png", page.picture())
		if n == wrong {
			page.waits(`!document.querySelector("#trouble").hidden`)
			require.Contains(t, page.text("#trouble"), "No answer about locks: this node has no usable state; ask another node")
			require.NotContains(t, page.text("body"), "belongs to no cluster")
		}
	}
	b.noTroubles(ports[other], ports[wrong])
}

// troublesStay: looks of the page leave a trouble that is the same where it is, and any in which text is selected.
func troublesStay(p *tab) {
	p.t.Helper()
	p.eval(`{ window.lines = document.querySelectorAll("#troubles li"); window.ask = window.fetch; "" }`)
	p.eval(`{ window.fetch = (at, ...more) => { looks += at.endsWith("/api/members"); return ask(at, ...more); }; "" }`)
	looked := func() { // three looks begin, so one is whole
		p.eval(`{ window.looks = 0; "" }`)
		p.waits(`window.looks > 2`)
	}
	looked()
	require.Equal(p.t, "true", p.eval(`lines[0].isConnected`), "the same trouble")
	p.eval(`{ lines[0].title = "other"; getSelection().selectAllChildren(lines[0]); "" }`)
	looked()
	require.Equal(p.t, "true", p.eval(`lines[0].isConnected && !getSelection().isCollapsed`), "selected")
	p.eval(`{ getSelection().removeAllRanges(); "" }`)
	p.waits(`!lines[0].isConnected`)
}

// fits: nothing is wider than the window.
func fits(p *tab) {
	p.t.Helper()
	require.Equal(p.t, "true", p.eval(`document.documentElement.scrollWidth <= innerWidth`), "the page is %s wide",
		p.eval(`document.documentElement.scrollWidth`))
}

// types puts a text into the search, as a person does.
func (p *tab) types(text string) {
	p.t.Helper()
	p.eval(`{ const f = document.querySelector("#find"); f.value = ` + quoted(text) +
		`; f.dispatchEvent(new Event("input")); "" }`)
}

func pageFinds(t *testing.T, page *tab) {
	page.types("jobs:ni")
	page.waits(`document.querySelectorAll("#list tbody tr").length === 1`)
	require.Equal(t, "jobs:nightly", page.text("#list tbody button"))
	page.types("*night*")
	page.waits(`document.querySelectorAll("#list tbody tr").length === 1`)
	page.types("nope")
	page.waits(`!document.querySelector("#list-empty").hidden`)
	require.Contains(t, page.text("#list-empty"), "No lock matches.")
	page.types("")
	page.waits(`document.querySelectorAll("#list tbody tr").length >= 15`)
}

// chosen opens a lock by a click on its row, and waits for what there is to know of it.
func (p *tab) chosen(row string) {
	p.t.Helper()
	p.waits(row)
	p.eval(`{ (` + row + `).click(); "" }`)
	p.waits(`document.querySelector("#one .hold, #one .cmd")`)
}

// pageCommands: what the page names for breaking a lock is run, and breaks that lock alone; the page shows who is next.
func pageCommands(t *testing.T, page *tab, c *redis.Client) {
	page.chosen(`document.querySelector("#list tbody button")`)
	require.Equal(t, "jobs:nightly", page.text("#one-title"))
	one := page.text("#one")
	for _, said := range []string{
		"vm-14:16510", "report --full", "heard of ", "127.0.0.1:", "connection ", "of n1",
		"1 holder", "3 waiting",
	} {
		require.Contains(t, one, said)
	}
	require.Regexp(t, `(?s)vm-20.*vm-21.*vm-22`, page.text("#one ol"))
	breakLock := func() {
		t.Helper()
		see := page.eval(`(Array.from(document.querySelectorAll("#one .cmd code"), (c) => c.innerText).find((c) => c.startsWith("holdfast locks --")) || "")`)
		if see != "" && page.text("#one-title") != "jobs:nightly" { // a name with a zero byte is no word of a command
			out, err := inShell(t, see)
			require.NoError(t, err, see)
			require.Equal(t, 1, strings.Count(out, "exclusive"), "%s: one hold, of this lock: %s", see, out)
		}
		command := page.eval(`Array.from(document.querySelectorAll("#one .cmd code"), (c) => c.innerText).find((c) => /locks break|LOCK.BREAK/.test(c))`)
		out, err := inShell(t, command)
		require.NoError(t, err, "%s: %s", command, out)
		require.NotContains(t, out, "ERR")
	}
	breakLock()
	page.waits(`document.querySelector("#one .hold .who").innerText === "vm-20"`)
	require.Contains(t, page.text("#one"), "2 waiting")
	page.waits(`/jobs:nightly.*vm-14:16510.*broken.*why, for the holder and the log/s.test(document.querySelector("#loss-list").innerText)`)
	page.eval(`{ document.querySelector("#one-close").click(); "" }`)

	for range hostile {
		n, err := c.DBSize(t.Context()).Result()
		require.NoError(t, err)
		page.chosen(`Array.from(document.querySelectorAll("#list tbody button")).find((b) => b.innerText !== "jobs:nightly")`)
		title := page.text("#one-title")
		breakLock()
		after, err := c.DBSize(t.Context()).Result()
		require.NoError(t, err)
		require.Equal(t, n-1, after, title)
		page.waits(`document.querySelector("#one-facts").innerText.startsWith("Nobody holds this lock")`)
		page.eval(`{ document.querySelector("#one-close").click(); "" }`)
		page.waits(fmt.Sprintf(`document.querySelectorAll("#list tbody tr").length === %d`, after))
	}
}

// pageOfStock: locks of libraries are shown with their token and lease, and the command of the page deletes such a
// lock, unless another has it by then.
func pageOfStock(t *testing.T, page *tab, c *redis.Client) {
	const redisson = `redis.call('hincrby',KEYS[1],ARGV[1],1) redis.call('pexpire',KEYS[1],60000) return nil`
	require.NoError(t, c.SetNX(t.Context(), "stock'a", "token \"1\"", time.Hour).Err())
	for range 3 {
		require.False(t, c.SetNX(t.Context(), "stock'a", "other", time.Hour).Val())
	}
	require.ErrorIs(t, c.Eval(t.Context(), redisson, []string{"stock:b"}, "uuid:7").Err(), redis.Nil)
	for key, owner := range map[string]string{"stock'a": "token \"1\"", "stock:b": "uuid:7"} {
		page.chosen(`Array.from(document.querySelectorAll("#list tbody button")).find((b) => b.innerText === ` +
			quoted(key) + `)`)
		require.Equal(t, owner, page.text("#one .hold .who"))
		require.Contains(t, page.text("#one-facts"), "stock")
		require.Contains(t, page.text("#one .hold"), "never renewed")
		if key == "stock'a" { // seen to poll for some seconds
			require.NoError(t, c.SetNX(t.Context(), key, "other", time.Hour).Err())
			page.waits(`/other waits for .* in vain/.test(document.querySelector("#one-body").innerText)`)
		}
		command := page.eval(`Array.from(document.querySelectorAll("#one .cmd code"), (c) => c.innerText).find((c) => /locks break|EVAL|DELEX/.test(c))`)
		out, err := inShell(t, strings.Replace(strings.Replace(command, "uuid:7", "uuid:8", 1), `"1"`, `"2"`, 1))
		require.Error(t, err, "another has it: %s", out)
		out, err = inShell(t, command)
		require.NoError(t, err, "%s: %s", command, out)
		require.Zero(t, c.Exists(t.Context(), key).Val())
		page.waits(`document.querySelector("#one-facts").innerText.startsWith("Nobody holds this lock")`)
		page.eval(`{ document.querySelector("#one-close").click(); "" }`)
	}
}

// inShell runs a command of the page in bash, with the program that is tested.
func inShell(t *testing.T, command string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(build(t), filepath.Join(dir, "holdfast")))
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	_, broken := os.Stat(filepath.Join(dir, "broken"))
	require.Error(t, broken, "a name became a command")
	return string(out), err
}

// pageOnPhone: all of it is there on a narrow window, in the dark as well, with a label for each number.
func pageOnPhone(t *testing.T, b *browser, port string) {
	phone := b.open("http://"+port+"/#"+url.Values{"key": {"jobs:nightly"}, "db": {"0"}}.Encode(), 390, 844, true)
	phone.waits(`document.querySelector("#one .hold")`)
	fits(phone)
	require.Equal(t, "jobs:nightly", phone.text("#one-title"))
	require.Contains(t,
		phone.eval(`getComputedStyle(document.querySelector("#list tbody td:nth-child(3)"), "::before").content`), "Held for")
	light := phone.eval(`getComputedStyle(document.body).backgroundColor`)
	phone.do("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}}, nil)
	require.NotEqual(t, light, phone.eval(`getComputedStyle(document.body).backgroundColor`))
	keep(t, "phone.png", phone.picture())
	phone.do("Page.close", nil, nil)
}

// pageOfMany: of 100,000 locks the page shows the first, counts all, and finds each.
func pageOfMany(t *testing.T, page *tab, c *redis.Client) {
	const many = 100_000
	for i := 0; i < many; {
		_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 2000 {
				p.Do(t.Context(), "LOCK.ACQUIRE", fmt.Sprint("shard:", i), "w", "PX", 3_600_000)
				i++
			}
			return nil
		})
		require.NoError(t, err)
	}
	page.waits(`document.querySelector("#sums").innerText.startsWith("100,001 locks")`)
	require.Equal(t, "50", page.eval(`document.querySelectorAll("#list tbody tr").length`))
	require.Contains(t, page.text("#list-more"), "The first 50 of 100,001.")
	page.types("shard:77777")
	page.waits(`document.querySelectorAll("#list tbody tr").length === 1`)
	require.Equal(t, "shard:77777", page.text("#list tbody button"))
	page.types("")
	page.waits(`document.querySelectorAll("#list tbody tr").length === 50`)
	keep(t, "many.png", page.picture())
}

// pageRests: a page that nobody sees asks for nothing, and asks at once when it is seen again.
func pageRests(t *testing.T, page *tab) {
	asked := func() int {
		page.mu.Lock()
		defer page.mu.Unlock()
		return len(page.requests)
	}
	see := func(hidden bool) {
		page.eval(fmt.Sprintf(`{ Object.defineProperty(document, "hidden", { value: %t, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); "" }`, hidden))
	}
	see(true)
	before := -1
	require.Eventually(t, func() bool { // two looks long nothing is asked
		same := asked() == before
		before = asked()
		return same
	}, time.Minute, 4500*time.Millisecond)
	see(false)
	require.Eventually(t, func() bool { return asked() > before }, 20*time.Second, 50*time.Millisecond)
}

// TestPageWithPassword: with the password the page comes, and its script asks with it; without there is nothing.
func TestPageWithPassword(t *testing.T) {
	protocoltest.SkipShort(t, "a browser and a process")
	b := newBrowser(t)
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("open sesame\n"), 0o600))
	nodes, ports := withPages(t, 1, "--password-file", file)
	addr := ports[nodes[0]]
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == 200
	}, 30*time.Second, 50*time.Millisecond)
	page := b.open("http://default:open%20sesame@"+addr+"/", 1200, 800, false)
	page.waits(`document.querySelector("#verdict") && document.querySelector("#verdict").innerText === "OK"`)
	require.Contains(t, page.text("#list-empty"), "Nobody holds a lock")
	b.noTroubles(addr)
}

// TestPagePicture draws the README's picture, of a cluster that was busy for as long as HOLDFAST_PAGE_SCENE says.
func TestPagePicture(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv("HOLDFAST_PAGE_SCENE"))
	if err != nil {
		t.Skip("make page-picture draws it")
	}
	b := newBrowser(t)
	nodes, ports := withPages(t, 3)
	waitServing(t, nodes...)
	c := redis.NewClient(&redis.Options{Addr: nodes[0].addr, PoolSize: 1, ReadTimeout: -1, ClientName: "billing"})
	t.Cleanup(func() { _ = c.Close() })
	id, err := c.Do(t.Context(), "SESSION.OPEN", "PX", 10_000, "CONNECTION", "NAME", "nightly-report").Int64()
	require.NoError(t, err)
	_, err = c.Do(t.Context(), "LOCK.ACQUIRE", "jobs:nightly-report", "vm-14:16510", "SESSION", id, "NOTE",
		"report --full, since Monday").Result()
	require.NoError(t, err)
	for _, owner := range []string{"vm-15:2041", "vm-16:977", "vm-11:30214"} {
		queue(t, nodes[1], "jobs:nightly-report", owner)
	}
	for i := range 3 {
		take(t, c, "pool:exports", fmt.Sprint("exporter-", i+1), "LIMIT", 3)
	}
	queue(t, nodes[2], "pool:exports", "exporter-7", "LIMIT", 3)
	take(t, c, "config:rates", "reader-a", "SHARED")
	take(t, c, "config:rates", "reader-b", "SHARED")
	take(t, c, "migrations", "deploy-4711", "NOTE", "add index to invoices")
	for i := range 9 {
		require.NoError(t, c.SetNX(t.Context(), fmt.Sprint("sidekiq:unique:", i+1),
			fmt.Sprintf("%08x-7c1e", (i+3)*2654435761), time.Hour).Err())
	}
	ended := time.Now().Add(lasts)
	for i := 0; time.Now().Before(ended); i++ {
		busy := 20 + 15*math.Sin(float64(i)/170) + 10*math.Sin(float64(i)/31)
		key := fmt.Sprint("orders:", i%7)
		lease := 3_000
		if i%397 == 0 {
			key, lease = fmt.Sprint("import:", i%3), 40 // which nobody renews
		}
		_ = c.Do(t.Context(), "LOCK.ACQUIRE", key, "api-3", "PX", lease).Err()
		if i%11 == 0 {
			waiter := client(t, nodes[1])
			go func() {
				defer waiter.Close()
				if waiter.Do(context.Background(), "LOCK.ACQUIRE", key, "api-5", "PX", lease, "WAIT", 2000).Err() == nil {
					_ = waiter.Do(context.Background(), "LOCK.RELEASE", key, "api-5").Err()
				}
			}()
		}
		<-time.After(time.Duration(1000/busy) * time.Millisecond)
		if lease > 100 {
			_ = c.Do(t.Context(), "LOCK.RELEASE", key, "api-3").Err()
		}
		if i == 400 {
			take(t, c, "reports:weekly", "vm-09:811")
			_, err := ask(t.Context(), nodes[1].addr, "LOCK.BREAK", "reports:weekly", "REASON", "the host is gone, ticket 2231")
			require.NoError(t, err)
		}
	}
	page := b.open("http://"+ports[nodes[0]]+"/#key=jobs:nightly-report&db=0", 1600, 860, false)
	page.waits(`document.querySelector("#one .hold") && document.querySelector("#hour svg")`)
	small := fewColours(t, page.picture())
	require.Less(t, len(small), 150_000)
	keep(t, "page.png", small)
}

// fewColours is a PNG with the 256 colours that it has most of.
func fewColours(t *testing.T, from []byte) []byte {
	t.Helper()
	src, err := png.Decode(bytes.NewReader(from))
	require.NoError(t, err)
	count, size := make(map[color.Color]int), src.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			count[src.At(x, y)]++
		}
	}
	all := slices.Collect(maps.Keys(count))
	slices.SortFunc(all, func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	few := image.NewPaletted(size, all[:min(256, len(all))])
	draw.Draw(few, size, src, image.Point{}, draw.Src)
	var b bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few))
	return b.Bytes()
}

// keep writes a picture into the folder that HOLDFAST_PAGE_PICTURES names, for people to look at.
func keep(t *testing.T, name string, picture []byte) {
	t.Helper()
	require.Equal(t, "\x89PNG", string(picture[:4]))
	if dir := os.Getenv("HOLDFAST_PAGE_PICTURES"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), picture, 0o644))
	}
}
