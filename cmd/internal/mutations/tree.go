package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
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
	packages map[string]listed   // by the path from the root, as in fsm/locks
	deps     map[string][]string // import paths of all that the tests of a package need, by the package's path from root
}

func (t *tree) dirs() []string { return slices.Sorted(maps.Keys(t.packages)) }

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
	var tests []listed
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
		if strings.HasSuffix(p.ImportPath, ".test") {
			tests = append(tests, p)
		} else if dir, err := filepath.Rel(root, p.Dir); err == nil && p.ForTest == "" {
			dirOf[p.ImportPath] = filepath.ToSlash(dir)
			t.packages[filepath.ToSlash(dir)] = p
		}
	}
	for _, p := range tests { // x.test depends on everything that the tests of x need
		for i, d := range p.Deps {
			p.Deps[i], _, _ = strings.Cut(d, " ") // behind a blank, the tests that a package was built for
		}
		t.deps[dirOf[strings.TrimSuffix(p.ImportPath, ".test")]] = p.Deps
	}
	return t, nil
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

// unit is a package of the tree with the types of its expressions.
type unit struct {
	path  string // as imported
	dir   string // slash-separated, from the root of the tree
	files []*sourceFile
	info  *types.Info
}

// load reads packages of the tree, without their tests.
func load(ctx context.Context, root string, patterns ...string) ([]*unit, error) {
	config := &packages.Config{
		Context: ctx, Dir: root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
	}
	loaded, err := packages.Load(config, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load the packages: %w", err)
	}
	var units []*unit
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("load %s: %w", p.PkgPath, p.Errors[0])
		}
		u := &unit{path: p.PkgPath, info: p.TypesInfo}
		for i, syntax := range p.Syntax {
			name, err := filepath.Rel(root, p.CompiledGoFiles[i])
			if err != nil || strings.HasPrefix(name, "..") {
				continue // made by cgo
			}
			text, err := os.ReadFile(p.CompiledGoFiles[i])
			if err != nil {
				return nil, err
			}
			if ast.IsGenerated(syntax) {
				continue
			}
			u.files = append(u.files, &sourceFile{filepath.ToSlash(name), text, syntax, p.Fset})
		}
		if len(u.files) > 0 {
			u.dir = packageOf(u.files[0].path)
			units = append(units, u)
		}
	}
	slices.SortFunc(units, func(a, b *unit) int { return strings.Compare(a.dir, b.dir) })
	return units, nil
}

// parsePackage reads the files of a package that this system builds, without their types.
func parsePackage(root, dir string) ([]*sourceFile, error) {
	listed, err := gobuild.ImportDir(filepath.Join(root, filepath.FromSlash(dir)), 0)
	if err != nil {
		return nil, err
	}
	var files []*sourceFile
	for _, name := range listed.GoFiles {
		text, err := os.ReadFile(filepath.Join(listed.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parseSource(path.Join(dir, name), text)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// machineMade returns the mistakes that the operators make in a package and that choose takes.
func (u *unit) machineMade(choose func(mutant) bool) []mutant {
	var found []mutant
	for _, f := range u.files {
		for _, d := range f.syntax.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, m := range machineMade(f, decl, u.info) {
				if choose(m) {
					found = append(found, m)
				}
			}
		}
	}
	return found
}
