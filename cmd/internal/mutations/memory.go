package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, ForTest  string
	Module                    *struct{ Main bool }
	Deps, Imports, GoFiles    []string
	TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports []string
}

// tree is what the go command says of the packages at root.
type tree struct {
	root     string
	packages map[string]listed // by the path from the root, as in fsm/locks
	deps     map[string][]string
	sums     func(dir string) string // of the files of a package
}

func (t *tree) dirs() []string {
	dirs := make([]string, 0, len(t.packages))
	for dir := range t.packages {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// readTree lists the packages below root with everything that their tests import.
func readTree(ctx context.Context, root string) (*tree, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,Dir,ForTest,Module,Deps,Imports,GoFiles,TestGoFiles,XTestGoFiles,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	t := &tree{root: root, packages: map[string]listed{}, deps: map[string][]string{}}
	dirOf := map[string]string{} // of the main module's packages, by import path
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module == nil || !p.Module.Main {
			continue
		}
		all = append(all, p)
		if dir, err := filepath.Rel(root, p.Dir); err == nil && p.ForTest == "" && !strings.HasSuffix(p.ImportPath, ".test") {
			dirOf[p.ImportPath] = filepath.ToSlash(dir)
			t.packages[filepath.ToSlash(dir)] = p
		}
	}
	for _, p := range all { // x.test depends on everything that the tests of x need
		of, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest {
			continue
		}
		dirs := []string{dirOf[of]}
		for _, d := range p.Deps {
			d, _, _ = strings.Cut(d, " ")
			if dir, ours := dirOf[d]; ours && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
		slices.Sort(dirs)
		t.deps[dirOf[of]] = dirs
	}
	var mu sync.Mutex
	sums := map[string]string{}
	t.sums = func(dir string) string {
		mu.Lock()
		defer mu.Unlock()
		if sums[dir] == "" {
			sums[dir] = sumFolder(filepath.Join(root, filepath.FromSlash(dir)))
		}
		return sums[dir]
	}
	return t, nil
}

// sumFolder is a hash of the files of a package and of its testdata; tables of mistakes do not count.
func sumFolder(dir string) string {
	h := sha256.New()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && !strings.Contains(path[len(dir):], "testdata"):
			if d.Name() != "testdata" {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || d.Name() == tableName:
			return nil
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(h, "%s\x00%d\x00", path[len(dir):], len(text))
		h.Write(text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))
}

// sum is a hash of everything that a run of the tests of a package depends on.
func (t *tree) sum(pkg string) string {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), os.Getenv("GOFLAGS"))
	for _, dir := range t.deps[strings.TrimPrefix(pkg, "./")] {
		fmt.Fprintln(h, dir, t.sums(dir))
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, _ := os.ReadFile(filepath.Join(t.root, name))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// importers are the packages with tests that import dir themselves.
func (t *tree) importers(dir string) []string {
	path := t.packages[dir].ImportPath
	var found []string
	for _, other := range t.dirs() {
		p := t.packages[other]
		if other != dir && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 &&
			(slices.Contains(p.Imports, path) || slices.Contains(p.TestImports, path) || slices.Contains(p.XTestImports, path)) {
			found = append(found, other)
		}
	}
	return found
}

// memory keeps what was proved, by a hash of everything that the proof depends on.
type memory struct {
	dir     string
	recalls bool
}

func newMemory(recalls bool) (memory, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return memory{}, err
	}
	dir := filepath.Join(cache, "holdfast-mutations")
	return memory{dir, recalls}, os.MkdirAll(dir, 0o755)
}

// rules is another number when mistakes are judged otherwise.
const rules = "2"

func keyOf(parts ...string) string {
	h := sha256.New()
	fmt.Fprintln(h, rules)
	for _, p := range parts {
		fmt.Fprintf(h, "%d\x00%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// recall returns the first line of what was kept under a key.
func (m memory) recall(key string) (string, bool) {
	if !m.recalls {
		return "", false
	}
	f, err := os.Open(filepath.Join(m.dir, key))
	if err != nil {
		return "", false
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err == nil
}

// keep writes a line; what is not written is proved again.
func (m memory) keep(key, line string) {
	temporary, err := os.CreateTemp(m.dir, "new-")
	if err != nil {
		return
	}
	_, err = temporary.WriteString(line + "\n")
	if errors.Join(err, temporary.Close()) == nil {
		err = os.Rename(temporary.Name(), filepath.Join(m.dir, key))
	}
	if err != nil {
		os.Remove(temporary.Name())
	}
}
