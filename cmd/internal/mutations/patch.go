package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutation is a patch file: a mistake made on purpose, and the test that notices it.
type mutation struct {
	name     string // the file's, without .patch
	breaks   string
	killedBy []string // arguments for go test
	files    []fileDiff
}

// fileDiff is the part of a patch that is about one file. An empty before or after
// means that the patch makes or removes the file.
type fileDiff struct {
	before, after string // slash-separated, from the root of the tree
	hunks         []hunk
}

type hunk struct {
	line     int // where the old lines begin, counted from 1
	old, new []string
}

// readMutation reads and checks a patch file.
func readMutation(path string) (mutation, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return mutation{}, err
	}
	m := mutation{name: strings.TrimSuffix(filepath.Base(path), ".patch")}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for len(lines) > 0 && !strings.HasPrefix(lines[0], "diff ") && !strings.HasPrefix(lines[0], "--- ") {
		if err := m.header(lines[0]); err != nil {
			return m, err
		}
		lines = lines[1:]
	}
	switch {
	case m.breaks == "":
		return m, errors.New("the header has no '# breaks: …'")
	case len(m.killedBy) == 0:
		return m, errors.New("the header has no '# killed by: …'")
	}
	if m.files, err = parseDiff(lines); err != nil {
		return m, err
	}
	return m, nil
}

func (m *mutation) header(line string) error {
	if text, ok := strings.CutPrefix(line, "# breaks:"); ok {
		m.breaks = strings.TrimSpace(text)
	}
	if text, ok := strings.CutPrefix(line, "# killed by:"); ok {
		words, err := shellWords(text)
		if err != nil {
			return fmt.Errorf("'# killed by:': %w", err)
		}
		m.killedBy = words
	}
	return nil
}

// shellWords splits a line as a shell does, which is allowed to quote and nothing else.
func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	begun := false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// parseDiff reads a unified diff.
func parseDiff(lines []string) ([]fileDiff, error) {
	var files []fileDiff
	for i := 0; i < len(lines); i++ {
		switch line := lines[i]; {
		case strings.HasPrefix(line, "--- ") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "+++ "):
			files = append(files, fileDiff{before: diffPath(line), after: diffPath(lines[i+1])})
			i++
		case strings.HasPrefix(line, "@@ "):
			if len(files) == 0 {
				return nil, fmt.Errorf("%q comes before a file", line)
			}
			h, rest, err := parseHunk(line, lines[i+1:])
			if err != nil {
				return nil, err
			}
			f := &files[len(files)-1]
			f.hunks = append(f.hunks, h)
			i = len(lines) - len(rest) - 1
		}
	}
	if len(files) == 0 {
		return nil, errors.New("no unified diff after the header")
	}
	return files, nil
}

// diffPath is the path of a line such as "+++ b/fsm/set.go"; empty for /dev/null.
func diffPath(line string) string {
	path, _, _ := strings.Cut(line[4:], "\t")
	if path = strings.TrimSpace(path); path == os.DevNull {
		return ""
	}
	_, path, _ = strings.Cut(path, "/")
	return path
}

// parseHunk reads as many lines as the hunk's head says, and returns what is behind them.
func parseHunk(head string, lines []string) (h hunk, rest []string, err error) {
	var counts [2]int
	words := strings.Fields(head)
	if len(words) < 3 {
		return h, nil, fmt.Errorf("%q is not @@ -line,count +line,count @@", head)
	}
	for i := range counts {
		line, count, found := strings.Cut(words[i+1][1:], ",")
		at, err := strconv.Atoi(line)
		if err != nil {
			return h, nil, fmt.Errorf("%q: %w", head, err)
		}
		if i == 0 {
			h.line = at
		}
		counts[i] = 1
		if found {
			if counts[i], err = strconv.Atoi(count); err != nil {
				return h, nil, fmt.Errorf("%q: %w", head, err)
			}
		}
	}
	for len(h.old) < counts[0] || len(h.new) < counts[1] {
		if len(lines) == 0 {
			return h, nil, fmt.Errorf("%q: lines are missing", head)
		}
		line := lines[0]
		lines = lines[1:]
		if line == "" {
			line = " " // an editor took the blank of an empty line
		}
		if strings.ContainsRune(" -", rune(line[0])) {
			h.old = append(h.old, line[1:])
		}
		if strings.ContainsRune(" +", rune(line[0])) {
			h.new = append(h.new, line[1:])
		}
		if !strings.ContainsRune(" +-\\", rune(line[0])) {
			return h, nil, fmt.Errorf("%q: %q is not a line of a hunk", head, line)
		}
	}
	return h, lines, nil
}

// apply returns the new contents of the files that m changes, by path; nil for a file
// that m removes. The tree stays as it is.
func (m mutation) apply(root string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, f := range m.files {
		var text []byte
		if f.before != "" {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, f.before)); err != nil {
				return nil, err
			}
		}
		if f.after == "" {
			changed[f.before] = nil
			continue
		}
		text, err := f.apply(text)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(f.after, ".go") {
			if _, err := parser.ParseFile(token.NewFileSet(), f.after, text, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
		}
		changed[f.after] = text
	}
	return changed, nil
}

// apply finds each hunk's old lines, next to where the hunk says they are.
func (f fileDiff) apply(text []byte) ([]byte, error) {
	lines := strings.Split(string(text), "\n")
	moved := 0
	for _, h := range f.hunks {
		want := max(h.line-1, 0) + moved
		if len(h.old) == 0 {
			want = min(h.line+moved, len(lines)) // pure insertion: behind the line named
		}
		at := find(lines, h.old, want)
		if at < 0 {
			return nil, fmt.Errorf("%s has changed: its lines near %d are not the patch's", f.after, h.line)
		}
		lines = slices.Replace(lines, at, at+len(h.old), h.new...)
		moved = at - max(h.line-1, 0) + len(h.new) - len(h.old)
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// find returns the place of old in lines that is nearest to want, or -1.
func find(lines, old []string, want int) int {
	best := -1
	for at := 0; at+len(old) <= len(lines); at++ {
		nearer := best < 0 || abs(at-want) < abs(best-want)
		if nearer && slices.Equal(lines[at:at+len(old)], old) {
			best = at
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }
