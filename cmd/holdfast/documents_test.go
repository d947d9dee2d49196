package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// The documents, held to what they say of each other and of the tree.

// document is a file whose text people read: Markdown, or Go with its comments.
type document struct{ path, text string }

func documents(t *testing.T) []document {
	t.Helper()
	root := filepath.Join("..", "..")
	var found []document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || ext != ".md" && ext != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		found = append(found, document{filepath.ToSlash(rel), string(text)})
		return err
	})
	require.NoError(t, err)
	return found
}

func TestREADMEIsShort(t *testing.T) {
	text := protocoltest.ReadFile(t, readme())
	if lines := strings.Count(text, "\n"); lines > 150 {
		t.Errorf("README.md has %d lines: move what not everybody needs to the document of its room (limit 150)", lines)
	}
}

// TestLinks: what a document links to is in the tree, and a heading of a document is one that it has.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	all := documents(t)
	text := make(map[string]string)
	for _, d := range all {
		text[d.path] = d.text
	}
	for _, d := range all {
		if !strings.HasSuffix(d.path, ".md") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(d.text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := path.Join(path.Dir(d.path), m[1])
			if m[1] == "" {
				to = d.path
			}
			if _, err := os.Stat(filepath.Join("..", "..", to)); err != nil {
				t.Errorf("%s links to %s, which is not there", d.path, m[1])
			} else if m[2] != "" && !slices.Contains(anchors(text[to]), m[2]) {
				t.Errorf("%s links to %s#%s, and there is no such heading", d.path, m[1], m[2])
			}
		}
	}
}

// anchors are what GitHub makes of the headings of a document.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, headingAnchor(m[1]))
	}
	return all
}

// TestReferences: comments and documents name no page that is not in the tree, nor a paragraph of one.
func TestReferences(t *testing.T) {
	page, paragraph := regexp.MustCompile(`[\w./*-]*\w\.md\b`), regexp.MustCompile(`\b[A-Z][A-Za-z]+(?:\.md)? §`)
	all := documents(t)
	there := make(map[string]bool)
	for _, d := range all {
		there[filepath.Base(d.path)] = true
	}
	for _, d := range all {
		if m := paragraph.FindString(d.text); m != "" {
			t.Errorf("%s: %q: name the document, and the heading if need be", d.path, m)
		}
		if strings.HasPrefix(d.path, "cmd/internal/mdwrap/") {
			continue
		}
		for _, m := range page.FindAllString(d.text, -1) {
			if !there[filepath.Base(m)] || strings.HasPrefix(m, "facts/") {
				t.Errorf("%s refers to %s, which is not in the repository: say what is in it", d.path, m)
			}
		}
	}
}

// TestSnippets: what the pages show is what suites run: the lines between <name> and </name> in comments of a program.
func TestSnippets(t *testing.T) {
	for name, least := range map[string]int{"clients/CONNECT.md": 26, "operating/MOVING.md": 7} {
		page := filepath.Join("..", "..", "server", filepath.FromSlash(name))
		text := protocoltest.ReadFile(t, page)
		found := 0
		got := regexp.MustCompile("(?ms)^<!-- snippet ([^ ]+) ([^\n]+) -->\n```(\\w+)\n.*?^```$").ReplaceAllStringFunc(text, func(block string) string {
			found++
			head, rest, _ := strings.Cut(block, "\n")
			file, part, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(head, "<!-- snippet "), " -->"), " ")
			fence, _, _ := strings.Cut(rest, "\n")
			return head + "\n" + fence + "\n" + snippet(t, filepath.Join(filepath.Dir(page), filepath.FromSlash(file)), part) +
				"```"
		})
		require.Equal(t, strings.Count(text, "<!-- snippet"), found)
		require.GreaterOrEqual(t, found, least)
		if protocoltest.Rewriting() {
			require.NoError(t, os.WriteFile(page, []byte(got), 0o644))
			continue
		}
		require.Equal(t, got, text, "%s differs from the programs: 'make rewrite' takes the programs' lines", name)
	}
}

// snippet is what stands between two comments, as far to the left as it goes.
func snippet(t *testing.T, file, name string) string {
	t.Helper()
	text := protocoltest.ReadFile(t, file)
	m := regexp.MustCompile(`(?ms)^[ \t]*(?:#|//) <` + name + `>\n(.*?)\n*^[ \t]*(?:#|//) </` + name +
		`>$`).FindStringSubmatch(text)
	require.NotNil(t, m, "%s has no snippet <%s>", file, name)
	lines := strings.Split(strings.Trim(m[1], "\n"), "\n")
	margin := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " \t"))]
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimPrefix(line, margin) + "\n")
	}
	return b.String()
}

// TestREADMEPerformance: the README's figures are bench/RESULTS.md's.
func TestREADMEPerformance(t *testing.T) {
	text := protocoltest.ReadFile(t, readme())
	results := protocoltest.ReadFile(t, filepath.Join("..", "..", "bench", "RESULTS.md"))
	_, section, found := strings.Cut(text, "\n## Performance\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := make(map[string]string) // of the results, by peer
	table, _, _ := strings.Cut(results, "<!-- /performance -->")
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); len(cells) > 8 && strings.Contains(line, "±") {
			rows[strings.Trim(strings.SplitN(cells[0], ":", 2)[0], "| `")] = line
		}
	}
	var peers []string
	figures := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		switch {
		case !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-"):
		case peers == nil:
			for _, c := range cells {
				peers = append(peers, strings.Trim(c, "| `"))
			}
			peers = peers[len(peers)-3:]
		default:
			for i, figure := range cells[len(cells)-3:] {
				require.Contains(t, rows[peers[i]], "| "+strings.TrimSpace(figure)+" ±", "%s: %s", peers[i], line)
				figures++
			}
		}
	}
	require.Equal(t, 15, figures)
	for _, m := range regexp.MustCompile(`\d\.\d\d ×`).FindAllString(section, -1) {
		require.Contains(t, results, "| "+m, "a target that is not met")
	}
}

func readme() string { return filepath.Join("..", "..", "README.md") }

// section finds what stands between <!-- name --> and <!-- /name -->.
func section(t *testing.T, text, name string) (before, inside, after string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, ok := strings.Cut(text, begin)
	require.True(t, ok, "README has no %s", begin)
	inside, after, ok = strings.Cut(rest, end)
	require.True(t, ok, "README has no %s", end)
	return before + begin, inside, end + after
}

// fenced are the blocks of code in a text that are marked as of a kind.
func fenced(text, kind string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// TestREADMEDemo runs the README's transcript against three real processes.
func TestREADMEDemo(t *testing.T) {
	text := protocoltest.ReadFile(t, readme())
	_, transcript, _ := section(t, text, "demo")
	nodes := startNodes(t, build(t), 3)
	byPort := map[string]*node{"6379": nodes[0], "6380": nodes[1], "6381": nodes[2]}
	steps := 0
	for step := range strings.SplitSeq(transcript, "$ ") {
		line, want, _ := strings.Cut(strings.TrimSpace(step), "\n")
		want, _, _ = strings.Cut(want, "\n```")
		words := shellWords(line)
		switch {
		case len(words) > 3 && words[0] == "redis-cli":
			steps++
			n := byPort[words[2]]
			if !n.Running() { // the transcript cannot know who led
				n = leaderOf(t, nodes)
			}
			got, err := ask(context.Background(), n.addr, words[3:]...)
			require.NoError(t, err)
			requireShown(t, line, want, got)
		case len(words) == 3 && words[0] == "kill":
			steps++
			leader := leaderOf(t, nodes)
			leader.Kill()
			waitServing(t, others(nodes, leader)...)
		}
	}
	require.Greater(t, steps, 7, "the transcript was not found")
}

// requireShown compares a reply with what redis-cli shows of it; a TTL may differ by the time that passed.
func requireShown(t *testing.T, line, want string, got protocol.Value) {
	t.Helper()
	if strings.Contains(line, "PTTL") {
		require.Equal(t, protocol.KindInteger, got.Kind)
		require.Positive(t, got.Num)
		require.LessOrEqual(t, got.Num, int64(30000))
		return
	}
	require.Equal(t, want, shown(got), "$ %s", line)
}

func shown(v protocol.Value) string {
	switch {
	case v.Kind == protocol.KindInteger:
		return fmt.Sprintf("(integer) %d", v.Num)
	case v.IsNull():
		return "(nil)"
	case v.Kind == protocol.KindBulk:
		return strconv.Quote(v.Str)
	case v.IsError():
		return "(error) " + v.Str
	default:
		return v.Str
	}
}

// shellWords splits a line at blanks outside double quotes, which is all that the transcript needs.
func shellWords(line string) []string {
	var words []string
	quoted := false
	for i, part := range strings.Split(line, `"`) {
		if quoted = i%2 == 1; quoted {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}
