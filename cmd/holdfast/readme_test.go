package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

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

// TestGeneratedDocuments keeps the tables in the documents equal to those in the code.
func TestGeneratedDocuments(t *testing.T) {
	for path, want := range map[string]string{
		"cmd/holdfast/FLAGS.md": flagDocument(),
		"protocol/COMMANDS.md":  commandDocument(),
	} {
		path := filepath.Join("..", "..", path)
		got, err := os.ReadFile(path)
		if err == nil && string(got) == want {
			continue
		}
		if !protocoltest.Rewriting() {
			t.Errorf("%s differs from the code: run 'make rewrite' and look at the change", path)
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
}

// TestREADMEDemo runs the README's transcript against three real processes.
func TestREADMEDemo(t *testing.T) {
	text, err := os.ReadFile(readme())
	require.NoError(t, err)
	_, transcript, _ := section(t, string(text), "demo")
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
			if n.dead() { // the transcript cannot know who led
				n = leaderOf(t, nodes)
			}
			got, err := ask(context.Background(), n.addr, words[3:]...)
			require.NoError(t, err)
			requireShown(t, line, want, got)
		case len(words) == 3 && words[0] == "kill":
			steps++
			leader := leaderOf(t, nodes)
			leader.kill()
			for _, n := range nodes {
				if n != leader {
					waitServing(t, n)
				}
			}
		}
	}
	require.Greater(t, steps, 8, "the transcript was not found")
}

func (n *node) dead() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
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
