package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// tableName is the table of a package's hand-made and accepted mistakes, beside the code.
const tableName = "mutations.txt"

// entry is a mistake in a table.
type entry struct {
	table    string // the file, from the root of the tree
	line     int
	breaks   string   // the promise; empty for an accepted mistake
	accepted string   // why the mistake breaks nothing
	killedBy []string // the package, the test, and flags for the test
	changes  []change
}

// change puts a text in the place of another one, which stands in a declaration once.
type change struct {
	anchor   string // the declaration
	old, new []string
}

func (e entry) anchor() string { return e.changes[0].anchor }

func (e entry) name() string { return fmt.Sprintf("%s:%d", e.table, e.line) }

// readTables reads the tables of the packages below root; dirs are the packages, from the root.
func readTables(root string, dirs []string) ([]entry, error) {
	var all []entry
	for _, dir := range dirs {
		name := path.Join(dir, tableName)
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries, err := parseTable(name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	return all, nil
}

// parseTable reads entries, which empty lines divide.
func parseTable(name, text string) ([]entry, error) {
	var entries []entry
	e := entry{table: name}
	end := func() error {
		if e.line == 0 {
			return nil
		}
		if err := e.check(); err != nil {
			return fmt.Errorf("%s: %w", e.name(), err)
		}
		entries = append(entries, e)
		e = entry{table: name}
		return nil
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		if e.line == 0 {
			e.line = i + 1
		}
		if err := e.read(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	return entries, end()
}

func (e *entry) read(line string) error {
	if text, ok := strings.CutPrefix(line, "# breaks nothing:"); ok {
		e.accepted = strings.TrimSpace(text)
		return nil
	}
	if text, ok := strings.CutPrefix(line, "# breaks:"); ok {
		e.breaks = strings.TrimSpace(text)
		return nil
	}
	if text, ok := strings.CutPrefix(line, "# killed by:"); ok {
		e.killedBy = strings.Fields(text)
		if len(e.killedBy) > 0 && !strings.HasPrefix(e.killedBy[0], "./") {
			e.killedBy = append([]string{"./" + packageOf(e.table)}, e.killedBy...)
		}
		return nil
	}
	switch {
	case strings.HasPrefix(line, "#"):
		return errors.New("a comment is '# breaks:', '# breaks nothing:' or '# killed by:'")
	case line == "-" || strings.HasPrefix(line, "- "):
		if len(e.changes) == 0 {
			return errors.New("the declaration comes before the lines with -")
		}
		c := &e.changes[len(e.changes)-1]
		if len(c.new) > 0 { // another place in the same declaration
			e.changes = append(e.changes, change{anchor: c.anchor})
			c = &e.changes[len(e.changes)-1]
		}
		c.old = append(c.old, strings.TrimSpace(line[1:]))
	case line == "+" || strings.HasPrefix(line, "+ "):
		if len(e.changes) == 0 || len(e.changes[len(e.changes)-1].old) == 0 {
			return errors.New("a line with + needs one with - before it")
		}
		c := &e.changes[len(e.changes)-1]
		c.new = append(c.new, strings.TrimSpace(line[1:]))
	default:
		e.changes = append(e.changes, change{anchor: strings.TrimSpace(line)})
	}
	return nil
}

func (e *entry) check() error {
	switch {
	case len(e.changes) == 0 || slices.ContainsFunc(e.changes, func(c change) bool { return len(c.old) == 0 }):
		return errors.New("it needs the name of a declaration, and a line with -")
	case (e.breaks == "") == (e.accepted == ""):
		return errors.New("it needs one of '# breaks:' and '# breaks nothing:'")
	case e.breaks != "" && len(e.killedBy) < 2:
		return errors.New("'# killed by:' needs a test")
	}
	return nil
}

// find makes a mutant of an entry: the declaration stands in the package once, and each old text in
// the declaration once.
func (e entry) find(files []*sourceFile) (mutant, error) {
	m := mutant{fn: e.anchor()}
	for _, c := range e.changes {
		src, from, to, err := declaration(files, c.anchor)
		if err != nil {
			return mutant{}, err
		}
		if m.source != nil && m.source != src {
			return mutant{}, fmt.Errorf("%s is in another file than %s", c.anchor, m.fn)
		}
		m.source = src
		start, end, err := findOnce(src.text[from:to], strings.Join(c.old, "\n"))
		if err != nil {
			return mutant{}, fmt.Errorf("%s: %w", c.anchor, err)
		}
		m.edits = append(m.edits, edit{from + start, from + end, strings.Join(c.new, "\n")})
	}
	m.line = 1 + bytes.Count(m.source.text[:m.edits[0].start], []byte("\n"))
	if err := m.check(); err != nil {
		return m, err
	}
	return m, nil
}

// check refuses a mistake that is no Go, or that is none.
func (m mutant) check() error {
	if _, err := parseSource(m.source.path, apply(m.source.text, m.edits)); err != nil {
		return err
	}
	if _, err := m.identity(); err != nil {
		return err
	}
	if m.changesNothing() {
		return errors.New("it changes nothing")
	}
	return nil
}

// declaration finds what an anchor names: a function, a method behind its type, the name of a constant, variable or
// type, or the name of a file. A file before the name, and a colon tell two of them apart.
func declaration(files []*sourceFile, anchor string) (src *sourceFile, from, to int, err error) {
	file, name, both := strings.Cut(anchor, ":")
	if !both {
		file, name = "", anchor
	}
	found := 0
	note := func(f *sourceFile, n ast.Node) {
		found++
		src, from, to = f, f.offset(n.Pos()), f.offset(n.End())
	}
	for _, f := range files {
		if path.Base(f.path) == name {
			return f, 0, len(f.text), nil
		}
		if both && path.Base(f.path) != file {
			continue
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if anchorOf(d) == name {
					note(f, d)
				}
			case *ast.GenDecl:
				i := slices.IndexFunc(d.Specs, func(s ast.Spec) bool { return declares(s, name) })
				switch {
				case i < 0:
				case d.Lparen.IsValid():
					note(f, d.Specs[i])
				default:
					note(f, d)
				}
			}
		}
	}
	if found != 1 {
		return nil, 0, 0, fmt.Errorf("%q is declared %d times in the package", anchor, found)
	}
	return src, from, to, nil
}

func declares(s ast.Spec, name string) bool {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Name.Name == name
	case *ast.ValueSpec:
		return slices.ContainsFunc(s.Names, func(id *ast.Ident) bool { return id.Name == name })
	}
	return false
}

// findOnce finds a text that stands in another one once; the blanks before a line do not count.
func findOnce(text []byte, old string) (start, end int, err error) {
	flat := make([]byte, 0, len(text))
	at := make([]int, 0, len(text)+1)
	begun := false
	for i, c := range text {
		if !begun && (c == ' ' || c == '\t') {
			continue
		}
		begun = c != '\n'
		flat, at = append(flat, c), append(at, i)
	}
	at = append(at, len(text))
	switch n := bytes.Count(flat, []byte(old)); {
	case old == "":
		return 0, 0, errors.New("the old text is empty")
	case n != 1:
		return 0, 0, fmt.Errorf("%q stands there %d times", old, n)
	}
	i := bytes.Index(flat, []byte(old))
	return at[i], at[i+len(old)-1] + 1, nil
}

// write prints an entry as a table has it.
func (e entry) write(w *strings.Builder) {
	if e.accepted != "" {
		fmt.Fprintf(w, "# breaks nothing: %s\n", e.accepted)
	} else {
		fmt.Fprintf(w, "# breaks: %s\n", e.breaks)
		by := e.killedBy
		if len(by) > 0 && by[0] == "./"+packageOf(e.table) {
			by = by[1:]
		}
		fmt.Fprintf(w, "# killed by: %s\n", strings.Join(by, " "))
	}
	for i, c := range e.changes {
		if i == 0 || c.anchor != e.changes[i-1].anchor {
			fmt.Fprintln(w, c.anchor)
		}
		for _, line := range c.old {
			fmt.Fprintln(w, strings.TrimSpace("- "+line))
		}
		for _, line := range c.new {
			fmt.Fprintln(w, strings.TrimSpace("+ "+line))
		}
	}
}
