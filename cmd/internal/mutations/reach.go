package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// reached is what a test of a package ran of another package, or of the same one.
type reached struct {
	Test   string
	Millis int64
	Blocks []block // in the order of the files
}

// block is a run of statements that the test has executed.
type block struct {
	File                             string // without the folder
	FromLine, FromCol, ToLine, ToCol int
}

func (b block) has(line, col int) bool {
	return (b.FromLine < line || b.FromLine == line && b.FromCol <= col) && (line < b.ToLine || line == b.ToLine &&
		col < b.ToCol)
}

// reaches reports whether the test runs the place of a mistake. The conditions of a switch belong to no block, nor does
// what follows a function literal in a statement: then a test reaches them that runs anything of the function.
func (r reached) reaches(m mutant) bool {
	s := m.source
	line, col := position(s.text, m.edits[0].start)
	file := path.Base(s.path)
	covered := func(line, col int) bool {
		return slices.ContainsFunc(r.Blocks, func(b block) bool { return b.File == file && b.has(line, col) })
	}
	if covered(line, col) {
		return true
	}
	f := m.function()
	if f == nil {
		return true
	}
	if !inCase(f, s, m.edits[0].start) && !behindLiteral(f, s, m.edits[0].start) {
		return false
	}
	from, to := s.line(f.Body.Lbrace), s.line(f.Body.Rbrace)
	return slices.ContainsFunc(r.Blocks, func(b block) bool {
		return b.File == file && from <= b.FromLine &&
			b.ToLine <= to
	})
}

// position is the line and the column, counted from 1 in bytes, of an offset.
func position(text []byte, offset int) (line, col int) {
	before := text[:offset]
	return 1 + bytes.Count(before, []byte("\n")), offset - bytes.LastIndexByte(before, '\n')
}

// reachOf runs each test of ./dir alone and notes what it runs of ./of. Tests that fail are not among them.
func (w *workshop) reachOf(ctx context.Context, dir, of string) ([]reached, error) {
	if known, ok := w.reach[[2]string{dir, of}]; ok {
		return known, nil
	}
	plain := &build{root: w.root, dir: w.dir}
	binary, err := plain.binary(ctx, "./"+dir, "-cover", "-covermode=set", "-coverpkg="+w.packages[of].ImportPath)
	if err != nil || binary == "" {
		return nil, err
	}
	list := exec.CommandContext(ctx, binary, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = filepath.Join(w.root, filepath.FromSlash(dir))
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", dir, err)
	}
	var mu sync.Mutex
	var found []reached
	tests := strings.Fields(string(out))
	w.each(ctx, len(tests), func(i int) {
		profile := filepath.Join(w.dir, fmt.Sprintf("cover-%d", i))
		begin := time.Now()
		was, _ := testRun{
			root: w.root, pkg: "./" + dir, binary: binary, tests: runPattern(tests[i]),
			args: []string{"-test.coverprofile=" + profile}, limit: 10 * time.Minute,
		}.run(ctx)
		took := time.Since(begin)
		blocks, err := readProfile(profile)
		os.Remove(profile)
		mu.Lock()
		defer mu.Unlock()
		if was == passed && err == nil && len(blocks) > 0 {
			found = append(found, reached{tests[i], took.Milliseconds(), blocks})
		}
	})
	slices.SortFunc(found, func(a, b reached) int { return int(a.Millis - b.Millis) })
	w.reach[[2]string{dir, of}] = found
	return found, ctx.Err()
}

// readProfile reads the blocks that were executed; go doc cmd/cover has the format.
func readProfile(name string) ([]block, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var blocks []block
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		colon := strings.LastIndexByte(line, ':')
		if colon < 0 || strings.HasSuffix(line, " 0") {
			continue
		}
		b := block{File: path.Base(line[:colon])}
		var statements, count int
		if _, err := fmt.Sscanf(line[colon+1:], "%d.%d,%d.%d %d %d", &b.FromLine, &b.FromCol, &b.ToLine, &b.ToCol,
			&statements, &count); err == nil {
			blocks = append(blocks, b)
		}
	}
	return blocks, lines.Err()
}
