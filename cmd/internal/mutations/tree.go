package main

import (
	"context"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

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
