package model

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// Environment variables: the path of TLC's jar, the number of its threads, and "large" for explorations that take
// hours.
const (
	jarEnv     = "HOLDFAST_TLC"
	workersEnv = "HOLDFAST_TLC_WORKERS"
	sizeEnv    = "HOLDFAST_MODEL"
)

// atMost bounds the time, in seconds, in which TLC explores a module. The exploration of a large one may be incomplete.
const atMost = 20 * 60

// settings has the constants of a module by name.
type settings map[string]string

// with returns s, in which others take precedence.
func (s settings) with(others settings) settings {
	all := maps.Clone(s)
	maps.Copy(all, others)
	return all
}

// module is a model: its default bounds, its rules and its invariants.
type module struct {
	bounds     settings
	rules      []string
	invariants []string
	symmetry   bool
}

var modules = map[string]module{
	"Log": {
		bounds: settings{
			"Server": "{n1, n2, n3}", "Nil": "Nil", "MaxTerm": "2", "MaxLen": "2", "MaxCrash": "0", "MaxSnapshot": "0",
			"MaxRound": "0", "MaxRead": "0", "MaxCandidates": "3", "Led": "0", "Lag": "0", "Refusals": "0", "MaxNotify": "0",
		},
		rules: []string{
			"HoldAcks", "SettleRequest", "SyncFollower", "SyncFound", "StableTerm", "OwnTerm", "CutCommit", "LateSnapshot",
			"SkipSnapshot", "SkipNoMore", "FromFirst", "KeepTail", "CheckRound", "CountRound", "NextRound", "LeadsAfter",
			"FirstEntry", "AwaitIndex", "LeaderSends",
		},
		invariants: []string{
			"ElectionSafety", "LeaderCompleteness", "LogMatching", "StateMachineSafety", "CommittedStays", "Durable",
			"AcknowledgedIsOnDisk", "NeverBack", "ReadsAreLinearizable", "CanFollow",
		},
		symmetry: true,
	},
	"Sessions": {
		bounds: settings{
			"Replica": "{r1, r2}", "Nil": "Nil", "MaxLife": "2", "MaxBatch": "2", "MaxLog": "3", "MaxSnapshot": "1",
		},
		rules: []string{
			"Dedup", "OldLife", "NewLife", "LifeStored", "SessionInSnapshot", "HandedIsUncertain", "FirstHasLow",
		},
		invariants: []string{"AtMostOnce", "Agree", "AnsweredIsDone", "RefusedIsNotDone", "NothingLost"},
	},
	"Incarnations": {
		bounds: settings{
			"Member": "{m1, m2}", "Folder": "{f1, f2}", "Nil": "Nil", "MaxStart": "4", "MaxCopy": "1", "MaxLost": "1",
		},
		rules:      []string{"Follows", "Random", "NumberFirst", "KnownStored", "ProveFirst", "CutOff", "InTime"},
		invariants: []string{"OneAtATime", "NoBranch", "NeverAlone"},
	},
}

// configuration returns TLC's configuration file, with all rules of the module except one.
func configuration(name string, bounds settings, without string) string {
	m := modules[name]
	var b strings.Builder
	b.WriteString("SPECIFICATION Spec\nCHECK_DEADLOCK FALSE\nCONSTANTS\n")
	all := m.bounds.with(bounds)
	for _, constant := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "  %s = %s\n", constant, all[constant])
	}
	for _, rule := range m.rules {
		fmt.Fprintf(&b, "  %s = %s\n", rule, strings.ToUpper(strconv.FormatBool(rule != without)))
	}
	fmt.Fprintf(&b, "INVARIANTS %s\n", strings.Join(m.invariants, " "))
	if m.symmetry {
		b.WriteString("SYMMETRY Symmetry\n")
	}
	return b.String()
}

// verdict is the result of TLC.
type verdict struct {
	violated string // the violated invariant, or ""
	states   int    // of the counterexample
	distinct string // number of states that were explored
	left     string // number of states that were found and not explored
}

var (
	violation = regexp.MustCompile(`Invariant (\w+) is violated`)
	explored  = regexp.MustCompile(`(\d+) distinct states found`)
	unseen    = regexp.MustCompile(`(\d+) states left on queue`)
)

// needTLC skips a test if TLC is not installed.
func needTLC(t *testing.T) {
	t.Helper()
	if os.Getenv(jarEnv) == "" {
		t.Skip(jarEnv + " names no jar of TLC: run make model")
	}
}

// tlc explores a module, and requires that TLC came to a verdict.
func tlc(t *testing.T, name, config string) (verdict, string) {
	t.Helper()
	needTLC(t)
	v, text, err := explore(t, name, config, nil)
	if v.violated == "" {
		require.NoError(t, err, text)
		require.Contains(t, text, "No error has been found", text)
	}
	return v, text
}

// explore runs TLC over the modules of this folder and more files, in a folder of their own.
func explore(t *testing.T, name, config string, more map[string]string) (v verdict, text string, err error) {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob("*.tla")
	require.NoError(t, err)
	for _, file := range files {
		module := protocoltest.ReadFile(t, file)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(module), 0o644))
	}
	for file, module := range more {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(module), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".cfg"), []byte(config), 0o644))
	cmd := exec.Command("java", "-Djava.io.tmpdir="+dir, fmt.Sprint("-Dtlc2.TLC.stopAfter=", atMost), "-XX:+UseSerialGC",
		"-Xss64m", "-cp", os.Getenv(jarEnv), "tlc2.TLC", "-workers", cmp.Or(os.Getenv(workersEnv), "1"), "-config", name+
			".cfg", name)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	text = string(out)
	v.distinct, v.left = last(explored, text), last(unseen, text)
	if m := violation.FindStringSubmatch(text); m != nil {
		v.violated, v.states = m[1], strings.Count(text, "\nState ")
	}
	return v, text, err
}

// last returns the last match of an expression's group, or "".
func last(of *regexp.Regexp, text string) string {
	all := of.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// rule is a rule on which the code relies. Without it, the model violates an invariant.
type rule struct {
	module, name string
	bounds       settings
	violated     string
	states       int // of the shortest counterexample, including the first
}

// TestRulesAreNeeded shows that without any one rule TLC finds the counterexample of rules.
func TestRulesAreNeeded(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			v, _ := tlc(t, r.module, configuration(r.module, r.bounds, r.name))
			t.Logf("%s after %d states, of %s", v.violated, v.states, v.distinct)
			require.Equal(t, r.violated, v.violated)
			require.Equal(t, r.states, v.states)
		})
	}
}

// TestModels shows that with all rules no invariant is violated.
func TestModels(t *testing.T) {
	for _, e := range explorations {
		t.Run(e.name, func(t *testing.T) {
			if e.large && os.Getenv(sizeEnv) != "large" {
				t.Skip("explored at night")
			}
			v, text := tlc(t, e.module, configuration(e.module, e.bounds, ""))
			require.Empty(t, v.violated, text)
			require.True(t, e.large || v.left == "0", "%s states left", v.left)
			t.Logf("%s distinct states, %s not explored", v.distinct, v.left)
		})
	}
}

// TestEveryRuleIsTried shows that each rule of each module is in rules, and in the table of the README, with a function
// that exists.
func TestEveryRuleIsTried(t *testing.T) {
	readme := protocoltest.ReadFile(t, "README.md")
	rows := map[string][]string{}
	for line := range strings.Lines(readme) {
		cells := strings.Split(line, "|")
		if len(cells) == 7 {
			rows[strings.Trim(cells[1], " `")] = cells
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		all = append(all, modules[name].rules...)
	}
	var tried []string
	for _, r := range rules {
		tried = append(tried, r.name)
		cells := rows[r.name]
		require.NotNil(t, cells, r.name)
		require.Contains(t, cells[5], fmt.Sprintf("`%s`, %d", r.violated, r.states), r.name)
		for _, place := range regexp.MustCompile("`([\\w/]+\\.go)` ([\\w.]+)").FindAllStringSubmatch(cells[3], -1) {
			source, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(place[1])))
			require.NoError(t, err, r.name)
			function := place[2][strings.LastIndex(place[2], ".")+1:]
			require.Regexp(t, `(?m)^func (\(\w+ \*?\w+\) )?`+function+`\(`, string(source), r.name)
		}
	}
	require.ElementsMatch(t, all, tried)
}

// rules has all rules of all modules, each with bounds in which its absence violates an invariant.
var rules = []rule{
	{"Log", "HoldAcks", settings{}, "Durable", 7},
	{"Log", "SettleRequest", settings{}, "AcknowledgedIsOnDisk", 10},
	{"Log", "SyncFollower", settings{}, "AcknowledgedIsOnDisk", 6},
	{"Log", "SyncFound", settings{"MaxCrash": "1", "MaxLen": "1"}, "AcknowledgedIsOnDisk", 11},
	{"Log", "StableTerm", settings{"MaxCrash": "1"}, "ElectionSafety", 7},
	{"Log", "OwnTerm", settings{"MaxTerm": "4", "Led": "2", "Refusals": "1"}, "LeaderCompleteness", 10},
	{"Log", "CutCommit", settings{"MaxNotify": "1", "Led": "1"}, "StateMachineSafety", 11},
	{"Log", "LateSnapshot", settings{"MaxTerm": "1", "MaxSnapshot": "1"}, "NeverBack", 13},
	{"Log", "SkipSnapshot", settings{"MaxSnapshot": "2"}, "CanFollow", 10},
	{"Log", "SkipNoMore", settings{"MaxSnapshot": "1", "MaxNotify": "1"}, "AcknowledgedIsOnDisk", 12},
	{"Log", "FromFirst", settings{"MaxTerm": "1", "MaxSnapshot": "1"}, "CanFollow", 10},
	{"Log", "KeepTail", settings{"MaxLen": "3", "MaxSnapshot": "1", "Led": "1"}, "CanFollow", 14},
	{"Log", "CheckRound", settings{"MaxRead": "1", "Led": "1"}, "ReadsAreLinearizable", 11},
	{"Log", "CountRound", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 12},
	{"Log", "NextRound", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 11},
	{"Log", "LeadsAfter", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 13},
	{"Log", "FirstEntry", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 13},
	{
		"Log", "AwaitIndex",
		settings{"MaxTerm": "1", "MaxRead": "1", "MaxRound": "1", "Lag": "1", "Led": "1"},
		"ReadsAreLinearizable", 12,
	},
	{"Log", "LeaderSends", settings{"MaxTerm": "4", "Led": "2", "Refusals": "1"}, "LogMatching", 12},

	{"Sessions", "Dedup", settings{}, "AtMostOnce", 7},
	{"Sessions", "OldLife", settings{}, "AtMostOnce", 12},
	{"Sessions", "NewLife", settings{}, "NothingLost", 10},
	{"Sessions", "LifeStored", settings{}, "NothingLost", 10},
	{"Sessions", "SessionInSnapshot", settings{}, "Agree", 7},
	{"Sessions", "HandedIsUncertain", settings{}, "RefusedIsNotDone", 6},
	{"Sessions", "FirstHasLow", settings{}, "NothingLost", 5},

	{"Incarnations", "Follows", settings{}, "OneAtATime", 10},
	{"Incarnations", "Random", settings{}, "OneAtATime", 10},
	{"Incarnations", "NumberFirst", settings{}, "NeverAlone", 5},
	{"Incarnations", "KnownStored", settings{}, "OneAtATime", 11},
	{"Incarnations", "ProveFirst", settings{}, "OneAtATime", 6},
	{"Incarnations", "CutOff", settings{}, "NoBranch", 6},
	{"Incarnations", "InTime", settings{}, "OneAtATime", 8},
}

// exploration is a module with all its rules, within bounds.
type exploration struct {
	name, module string
	bounds       settings
	large        bool // takes more than minutes
}

var explorations = []exploration{
	{"elections and disks", "Log", settings{"MaxLen": "1", "MaxCrash": "1", "Refusals": "1"}, false},
	{"conflicts", "Log", settings{"MaxCandidates": "1", "Refusals": "1", "MaxNotify": "1"}, false},
	{"snapshots", "Log", settings{"MaxSnapshot": "1", "MaxCandidates": "1", "Led": "1"}, false},
	{"reads", "Log", settings{"MaxRead": "1", "MaxRound": "1", "MaxCandidates": "1", "Led": "1"}, false},
	{"sessions", "Sessions", settings{}, false},
	{"incarnations", "Incarnations", settings{}, false},

	{"three terms", "Log", settings{"MaxTerm": "3", "MaxCrash": "1"}, true},
	{"crashes", "Log", settings{"MaxCrash": "2", "Refusals": "1", "MaxNotify": "1"}, true},
	{"tails", "Log", settings{"MaxTerm": "3", "MaxLen": "3", "MaxSnapshot": "2", "Led": "1"}, true},
	{"crashes and snapshots", "Log", settings{"MaxSnapshot": "1", "MaxCrash": "1", "Led": "1", "Lag": "1"}, true},
	{
		"reads over three terms", "Log",
		settings{"MaxTerm": "3", "MaxRead": "1", "MaxRound": "2", "Led": "1", "Lag": "1"},
		true,
	},
	{"longer sessions", "Sessions", settings{"MaxBatch": "3", "MaxLog": "4", "MaxSnapshot": "2"}, true},
	{"more copies", "Incarnations", settings{"MaxStart": "5", "MaxCopy": "2"}, true},
}
