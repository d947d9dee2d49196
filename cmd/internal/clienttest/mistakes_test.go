//go:build unix

package clienttest_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// edit puts a text of a library's file, which stands there once, in the place of another.
type edit struct {
	file     string // below server/clients
	old, new string
	only     string // the library of the file's that is wrong then; empty: all that have the file
}

// mistakes are made in the libraries on purpose, and the scenario must notice.
var mistakes = []struct {
	breaks, scenario string
	edits            []edit
}{
	{"a loss is told", "broken by an operator", []edit{
		{file: "go/holdfast/lock.go", old: "h.lose(lost)", new: "_ = lost"},
		{file: pythonClient, old: "self.lose(words[1], text, by)", new: "pass"},
		{
			file: "python/holdfast-client/holdfast_client/aio.py", only: "asyncio",
			old: "= lock.check, lock.on_lost", new: "= lock.check, id",
		},
		{file: javaGrant, old: "lose(push.word(5), push.word(6), push.word(7), 0);"},
		{file: typescriptSession, old: "this.lose(hold, hold.lossBy(reason ??", new: "void (hold.lossBy(reason ??"},
	}},
	{"a former connection is closed when the session is attached elsewhere", "node frozen while holding", []edit{
		{file: "go/holdfast/client.go", old: "c.former = append(c.former, cn)", new: "cn.close()"},
		{file: pythonClient, old: "self._former.append(conn)", new: "conn.close()"},
		{file: javaSession, old: "former.add(connection);", new: "connection.close();"},
		{file: typescriptSession, old: "this.former.push(conn)", new: "conn.close()"},
	}},
	{"a grant behind the cancel is given back", "grant on its way when it is cancelled", []edit{
		{file: "go/holdfast/lock.go", old: "_, err = cn.do(c.ctx, h.releaseWords()...)", new: "err = c.ctx.Err()"},
		{
			file: pythonClient,
			old:  "\n                conn.do(*hold.release_words())", new: "",
		},
		{
			file: javaGrant,
			old:  "session.start(new Session.Call(askedIn, false, this::releaseWords, (ended, why) -> { }));",
		},
		{file: typescriptSession, old: ", attached.conn.do(hold.releaseWords()),", new: ","},
	}},
	{"a cancelled call gives up its place", "cancelled in line", []edit{
		{file: "go/holdfast/lock.go", old: "if asked {", new: "if asked && c.session == \"\" {"},
		{
			file: pythonClient,
			old:  "if hold.session and not self._closed:", new: "if hold.session and self._closed:",
		},
		{
			file: "python/holdfast-client/holdfast_client/aio.py", only: "asyncio",
			old: "            self._lock.cancel()\n",
		},
		{
			file: javaGrant,
			old:  "if (askedIn != null) {", new: "if (askedIn == null) {",
		},
		{file: typescriptSession, old: "if (--hold.handles === 0) this.abandon(hold)", new: "--hold.handles"},
	}},
	{"a late release ends no later hold", "release on its way behind its repetition", []edit{
		{file: "go/holdfast/lock.go", old: `c.id + ":" + strconv.FormatUint(counter.Add(1), 10)`, new: "c.id"},
		{
			file: pythonClient,
			old:  `f"{client._id}:{next(client._numbers)}"`, new: "client._id",
		},
		{file: javaFiles + "HoldfastClient.java", old: `id + ":" + numbers.incrementAndGet()`, new: "id"},
		{file: typescriptSession, old: "${++this.owners}", new: "${this.owners}"},
	}},
	{"a wait that failed is asked for again", "wait failed", []edit{
		{file: "go/holdfast/lock.go", old: `(kind == "timeout" || kind == "failed")`, new: `kind == "timeout"`},
		{
			file: pythonClient,
			old:  `kind in ("timeout", "failed")`, new: `kind == "timeout"`,
		},
		{file: javaGrant, old: `case "timeout", "failed" ->`, new: `case "timeout" ->`},
		{file: typescriptSession, old: "(event === 'timeout' || event === 'failed')", new: "event === 'timeout'"},
	}},
	{"a hold ends for its holder before it ends for others", "no node for longer than the TTL", []edit{
		{file: "go/holdfast/client.go", old: "c.goodUntil = t\n", new: "t = t.Add(c.config.TTL)\nc.goodUntil = t\n"},
		{
			file: pythonClient,
			old:  "left = self._good_until - self._ttl / 3", new: "left = self._good_until + self._ttl",
		},
		{
			file: javaSession,
			old:  "return goodUntil - ttl / 3 - System.nanoTime();", new: "return goodUntil + ttl - System.nanoTime();",
		},
		{
			file: typescriptSession,
			old:  "this.goodUntil - this.options.ttl / 3 - now()", new: "this.goodUntil + this.options.ttl - now()",
		},
	}},
	{"holds are proved at another node", "lost while between two nodes", []edit{
		{file: "go/holdfast/client.go", old: "v.num != h.fence", new: "v.num > h.fence"},
		{file: pythonClient, old: "if fence != hold.fence:", new: "if fence == -1:"},
		{
			file: javaSession,
			old:  "!Long.valueOf(proof.grant.fence()).equals(fence)", new: "Long.valueOf(-1).equals(fence)",
		},
		{file: typescriptSession, old: "if (fence !== hold.fence)", new: "if (fence === -1)"},
	}},
	{"a child has no lock of its parent", forked, []edit{{
		file: pythonClient, only: "Python",
		old: "if client._pid != os.getpid():", new: "if client._closed:",
	}}},
}

const (
	pythonClient      = "python/holdfast-client/holdfast_client/_client.py"
	typescriptSession = "node/holdfast-client/src/session.ts"
	javaFiles         = "java/holdfast-client/src/main/java/io/github/holdfast/"
	javaGrant         = javaFiles + "Grant.java"
	javaSession       = javaFiles + "Session.java"
)

// mistakeVar names a mistake, as row and edit, to a run of TestContract.
const mistakeVar = "HOLDFAST_MISTAKE"

func theMistake() edit {
	var row, i int
	if _, err := fmt.Sscanf(os.Getenv(mistakeVar), "%d/%d", &row, &i); err != nil {
		return edit{}
	}
	return mistakes[row].edits[i]
}

// in returns the text of a file with the mistake.
func (e edit) in(path, text string) string {
	if path != clients+e.file {
		return text
	}
	return strings.Replace(text, e.old, e.new, 1)
}

// TestMistakes finds that each mistake has its place, and, where all libraries are played, that the scenario notices.
func TestMistakes(t *testing.T) {
	for row, m := range mistakes {
		named := func(s scenario) bool { return s.name == m.scenario }
		require.True(t, slices.ContainsFunc(scenarios, named), m.scenario)
		for i, e := range m.edits {
			text := protocoltest.ReadFile(t, clients+e.file)
			require.Equal(t, 1, strings.Count(text, e.old), "%s: %s", e.file, e.old)
			for _, l := range libraries {
				if !strings.HasPrefix(e.file, l.dir) || e.only != "" && e.only != l.name {
					continue
				}
				t.Run(m.breaks+"/"+l.name, func(t *testing.T) {
					if os.Getenv(playAll) == "" {
						t.Skip(playAll + " is not set: `make clients` sets it at night")
					}
					t.Parallel()
					name := "TestContract/" + l.name + "/" + strings.ReplaceAll(m.scenario, " ", "_")
					only := strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^")
					var out []byte
					for range 3 { // as the tool for mutations does: a client may recover by chance on a busy machine
						cmd := exec.Command(os.Args[0], "-test.run", "^"+only+"$")
						cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d", mistakeVar, row, i))
						if out, _ = cmd.CombinedOutput(); strings.Contains(string(out), "--- FAIL: "+name) {
							return
						}
					}
					require.Fail(t, "no run of "+name+" has noticed", "%s", out)
				})
			}
		}
	}
}
