package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// selects is the environment variable that turns a mistake of a build on, by its number.
const selects = "MUTATION"

// schema is a source file with many mistakes. The environment chooses one (mutant schemata: Untch, Offutt and Harrold,
// ISSTA 1993). Each mutant is a copy of its function behind the file's end, and the function begins with a choice: so
// that one build serves for all of them.
type schema struct {
	source *sourceFile
	choose map[*ast.FuncDecl][]choice
}

type choice struct {
	number int
	mutant mutant
}

// choosable reports whether a mistake can be one of many in a build. A declaration outside of functions
// cannot be chosen when the program runs, and recover does nothing in a function that a deferred one calls.
func choosable(m mutant) bool {
	f := m.function()
	if f == nil || f.Body == nil || m.edits[0].start < m.source.offset(f.Body.Lbrace) {
		return false
	}
	recovers := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if _, inner := n.(*ast.FuncLit); inner {
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok && isIdent(call.Fun, "recover") {
			recovers = true
		}
		return true
	})
	return !recovers
}

// schemata are the sources of a build with mistakes, by the path of the file.
type schemata map[string]*schema

func (s schemata) add(number int, m mutant) {
	f := s[m.source.path]
	if f == nil {
		f = &schema{source: m.source, choose: map[*ast.FuncDecl][]choice{}}
		s[m.source.path] = f
	}
	d := m.function()
	f.choose[d] = append(f.choose[d], choice{number, m})
}

// lines tells which mutant a line of a written file belongs to, by the file's copyOf.
type lines map[string][]numbered

// copyOf is the name of the file that stands for another one in an overlay.
func copyOf(path string) string { return strings.ReplaceAll(path, "/", "_") }

type numbered struct{ from, to, number int }

// numberAt takes the file's path, or the copy's: the compiler names either, the copy's by the shorter way.
func (l lines) numberAt(path string, line int) (number int, ok bool) {
	if !filepath.IsLocal(path) {
		path = filepath.Base(path)
	}
	for _, n := range l[copyOf(path)] {
		if n.from <= line && line <= n.to {
			return n.number, true
		}
	}
	return 0, false
}

// text is the file with its mistakes, and tells which lines are whose.
func (s *schema) text() ([]byte, []numbered) {
	var edits []edit
	var copies bytes.Buffer
	var whose []numbered
	decls := slices.SortedFunc(maps.Keys(s.choose), func(a, b *ast.FuncDecl) int { return int(a.Pos() - b.Pos()) })
	for _, d := range decls {
		call, named := s.calls(d)
		edits = append(edits, named...)
		var choices strings.Builder
		for _, c := range s.choose[d] {
			fmt.Fprintf(&choices, "case %d: %s; ", c.number, strings.ReplaceAll(call, "\x00", copyName(c.number, d)))
			from := 1 + bytes.Count(copies.Bytes(), []byte("\n"))
			copies.Write(c.mutant.renamed(d, copyName(c.number, d)))
			copies.WriteString("\n")
			whose = append(whose, numbered{from, bytes.Count(copies.Bytes(), []byte("\n")), c.number})
		}
		at := s.source.offset(d.Body.Lbrace) + 1
		edits = append(edits, edit{at, at, " switch mutationChosen { " + choices.String() + "}; "})
	}
	out := append(apply(s.source.text, edits), "\n\n"...)
	before := bytes.Count(out, []byte("\n"))
	for i := range whose {
		whose[i].from += before
		whose[i].to += before
	}
	return append(out, copies.Bytes()...), whose
}

func copyName(number int, d *ast.FuncDecl) string {
	return fmt.Sprintf("mutation%d%s", number, d.Name.Name)
}

// renamed is the function with the mistake, under another name.
func (m mutant) renamed(d *ast.FuncDecl, name string) []byte {
	with := m
	with.edits = append(slices.Clone(m.edits), edit{m.source.offset(d.Name.Pos()), m.source.offset(d.Name.End()), name})
	return with.mutated()
}

// calls is the call of a copy of d, with \x00 in the place of its name, and what has to be named for it in d.
func (s *schema) calls(d *ast.FuncDecl) (call string, named []edit) {
	n := 0
	nameAll := func(list *ast.FieldList) (names []string) {
		if list == nil {
			return nil
		}
		for _, field := range list.List {
			if len(field.Names) == 0 {
				n++
				name, at := "mutationArg"+strconv.Itoa(n), s.source.offset(field.Type.Pos())
				named, names = append(named, edit{at, at, name + " "}), append(names, name)
			}
			for _, id := range field.Names {
				name := id.Name
				if name == "_" {
					n++
					name = "mutationArg" + strconv.Itoa(n)
					named = append(named, edit{s.source.offset(id.Pos()), s.source.offset(id.End()), name})
				}
				names = append(names, name)
			}
		}
		return names
	}
	call = "\x00"
	if recv := nameAll(d.Recv); len(recv) > 0 {
		call = recv[0] + "." + call
	}
	if params := d.Type.TypeParams; params != nil {
		call += "[" + strings.Join(nameAll(params), ", ") + "]"
	}
	args := strings.Join(nameAll(d.Type.Params), ", ")
	if list := d.Type.Params.List; len(list) > 0 {
		if _, variadic := list[len(list)-1].Type.(*ast.Ellipsis); variadic {
			args += "..."
		}
	}
	call += "(" + args + ")"
	if d.Type.Results != nil && len(d.Type.Results.List) > 0 {
		return "return " + call, named
	}
	return call + "; return", named
}

// byNumber declares the choice of a mistake by its number.
const byNumber = `import (
	"os"
	"strconv"
)

var mutationChosen, _ = strconv.Atoi(os.Getenv("` + selects + `"))
`

// write puts the files into dir and returns the list for the go command's -overlay. chooser declares mutationChosen, the
// number of the mistake.
func (s schemata) write(root, dir, chooser string) (overlay string, whose lines, err error) {
	files := map[string][]byte{}
	whose = lines{}
	for path, f := range s {
		files[path], whose[copyOf(path)] = f.text()
		files[packageOf(path)+"/zz_mutation_chosen.go"] = []byte("package " + f.source.syntax.Name.Name + "\n\n" + chooser)
	}
	overlay, err = writeOverlay(root, dir, files)
	return overlay, whose, err
}

// writeOverlay writes files into dir, and for the go command the list of what they stand for.
func writeOverlay(root, dir string, files map[string][]byte) (string, error) {
	replace := make(map[string]string)
	for path, text := range files {
		copied := filepath.Join(dir, copyOf(path))
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(path))] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}
