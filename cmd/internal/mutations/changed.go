package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// changedLines are the lines that the tree has and a revision has not, by the file's path.
type changedLines map[string][]span

type span struct{ from, to int }

func (c changedLines) has(path string, line int) bool {
	for _, s := range c[path] {
		if s.from <= line && line <= s.to {
			return true
		}
	}
	return false
}

// changedSince asks git for the lines of Go files that are new since base, committed or not.
func changedSince(ctx context.Context, root, base string) (changedLines, error) {
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
		}
		return out, nil
	}
	diff, err := git("diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", "--dst-prefix=b/", base, "--",
		"*.go")
	if err != nil {
		return nil, err
	}
	changed := changedLines{}
	var file string
	for line := range strings.Lines(string(diff)) {
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			file = strings.TrimSpace(name)
		}
		if s, ok := newLines(line); ok {
			changed[file] = append(changed[file], s)
		}
	}
	untracked, err := git("ls-files", "--others", "--exclude-standard", "--", "*.go")
	for name := range strings.Lines(string(untracked)) {
		changed[strings.TrimSpace(name)] = []span{{1, 1 << 30}}
	}
	return changed, err
}

// newLines reads the second half of a line such as "@@ -3,2 +3,4 @@". Where lines went and none came, the
// line before counts as changed.
func newLines(line string) (s span, ok bool) {
	rest, ok := strings.CutPrefix(line, "@@ -")
	if !ok {
		return span{}, false
	}
	_, rest, _ = strings.Cut(rest, " +")
	rest, _, _ = strings.Cut(rest, " ")
	at, count, several := strings.Cut(rest, ",")
	from, err := strconv.Atoi(at)
	n := 1
	if several && err == nil {
		n, err = strconv.Atoi(count)
	}
	return span{from, from + max(n, 1) - 1}, err == nil
}
