package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// build is a tree with mistakes. One can be chosen when a test runs.
type build struct {
	root, dir string
	overlay   string
	unbuilt   map[int]string // the numbers of mistakes that do not compile, with what the compiler says
}

// newBuild writes the sources of mutants, which the numbers choose, and leaves those out that do not compile.
func newBuild(ctx context.Context, root, dir string, mutants map[int]mutant) (*build, error) {
	b := &build{root: root, dir: dir, unbuilt: map[int]string{}}
	for {
		s := schemata{}
		packages := map[string]bool{}
		for number, m := range sorted(mutants) {
			if b.unbuilt[number] == "" {
				s.add(number, m)
				packages["./"+m.source.pkg()] = true
			}
		}
		var whose lines
		var err error
		if b.overlay, whose, err = s.write(root, dir, byNumber); err != nil {
			return nil, err
		}
		if len(packages) == 0 {
			return b, nil
		}
		before := len(b.unbuilt)
		out, err := b.compile(ctx, packages)
		if err == nil {
			return b, nil
		}
		b.blame(out, whose)
		if len(b.unbuilt) == before {
			return nil, fmt.Errorf("the tree does not build with the mistakes: %w\n%s", err, out)
		}
	}
}

// sorted ranges over a map in the order of its numbers, so that the same mistakes make the same sources.
func sorted[T any](all map[int]T) func(func(int, T) bool) {
	return func(yield func(int, T) bool) {
		for _, n := range slices.Sorted(maps.Keys(all)) {
			if !yield(n, all[n]) {
				return
			}
		}
	}
}

func (b *build) compile(ctx context.Context, packages map[string]bool) ([]byte, error) {
	args := append([]string{"build", "-gcflags=-e", "-overlay=" + b.overlay}, slices.Sorted(maps.Keys(packages))...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.root
	return cmd.CombinedOutput()
}

var compilerError = regexp.MustCompile(`^(?:\./)?([^:\s]+\.go):(\d+):(?:\d+:)? (.*)$`)

// blame notes to which mistakes the lines belong that the compiler refuses.
func (b *build) blame(out []byte, whose lines) {
	for line := range bytes.Lines(out) {
		match := compilerError.FindSubmatch(bytes.TrimSpace(line))
		if match == nil {
			continue
		}
		at, _ := strconv.Atoi(string(match[2]))
		if number, ok := whose.numberAt(filepath.ToSlash(string(match[1])), at); ok {
			b.unbuilt[number] = string(match[3])
		}
	}
}

// alone is a build with one mistake that cannot be one of many.
func alone(root, dir string, m mutant) (*build, error) {
	overlay, err := writeOverlay(root, dir, map[string][]byte{m.source.path: apply(m.source.text, m.edits)})
	return &build{root: root, dir: dir, overlay: overlay}, err
}

// binary builds the tests of a package, as in ./fsm, and returns the file's name.
func (b *build) binary(ctx context.Context, pkg string, flags ...string) (string, error) {
	file := filepath.Join(b.dir, strings.NewReplacer("/", "_", ".", "").Replace(pkg)+".test")
	args := append([]string{"test", "-c", "-vet=off", "-tags", "invariants", "-o", file}, flags...)
	if b.overlay != "" {
		args = append(args, "-overlay="+b.overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	if _, err := os.Stat(file); err != nil {
		return "", nil // the package has no tests
	}
	return file, nil
}
