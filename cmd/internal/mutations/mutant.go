package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// sourceFile is a file of the tree as it is.
type sourceFile struct {
	path   string // slash-separated, from the root of the tree
	text   []byte
	syntax *ast.File
	set    *token.FileSet
}

func parseSource(path string, text []byte) (*sourceFile, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, path, text, parser.ParseComments)
	return &sourceFile{path, text, syntax, set}, err
}

func (s *sourceFile) offset(p token.Pos) int { return s.set.Position(p).Offset }
func (s *sourceFile) line(p token.Pos) int   { return s.set.Position(p).Line }
func (s *sourceFile) span(from, to token.Pos) string {
	return string(s.text[s.offset(from):s.offset(to)])
}
func (s *sourceFile) pkg() string  { return packageOf(s.path) }
func packageOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// edit puts text in the place of the bytes from start to end.
type edit struct {
	start, end int
	text       string
}

// apply makes edits that do not overlap.
func apply(text []byte, edits []edit) []byte {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return b.start - a.start })
	out := slices.Clone(text)
	for _, e := range edits {
		out = slices.Replace(out, e.start, e.end, []byte(e.text)...)
	}
	return out
}

// mutant is a mistake in one function or other declaration.
type mutant struct {
	source *sourceFile
	fn     string // the declaration, as a table names it
	line   int
	op     string // the operator; empty for a hand-made mistake
	edits  []edit
}

// functionAt is the function around an offset, or nil.
func functionAt(s *sourceFile, at int) *ast.FuncDecl {
	for _, d := range s.syntax.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && s.offset(f.Pos()) <= at && at <= s.offset(f.End()) {
			return f
		}
	}
	return nil
}

// anchorOf is the name of a function in a table: Name, or Type.Name for a method.
func anchorOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// function is the function that all edits are in, or nil.
func (m mutant) function() *ast.FuncDecl {
	f := functionAt(m.source, m.edits[0].start)
	for _, e := range m.edits {
		if functionAt(m.source, e.start) != f {
			return nil
		}
	}
	return f
}

// mutated is the function with the mistake, as text. For a mistake that is not in one function it is the file.
func (m mutant) mutated() []byte {
	f := m.function()
	if f == nil {
		return apply(m.source.text, m.edits)
	}
	from, to := m.source.offset(f.Pos()), m.source.offset(f.End())
	edits := slices.Clone(m.edits)
	for i := range edits {
		edits[i].start -= from
		edits[i].end -= from
	}
	return apply(m.source.text[from:to], edits)
}

// identity is equal for mistakes that make the same program of the same declaration: a term that is
// dropped may be written in several ways.
func (m mutant) identity() (string, error) {
	normal, err := normalForm(m.mutated())
	if err != nil {
		return "", err
	}
	return idOf(m.source.path, m.fn, normal), nil
}

// changesNothing reports whether the program is the same with the mistake.
func (m mutant) changesNothing() bool {
	is, err := m.identity()
	m.edits = []edit{{start: m.edits[0].start, end: m.edits[0].start}}
	was, errWas := m.identity()
	return err == nil && errWas == nil && is == was
}

func idOf(path, fn string, normal []byte) string {
	sum := sha256.Sum256(append([]byte(path+"\x00"+fn+"\x00"), normal...))
	return hex.EncodeToString(sum[:16])
}

// normalForm prints a declaration without comments and with what a constant condition decides decided.
func normalForm(text []byte) ([]byte, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("package ")) && !bytes.Contains(text, []byte("\npackage ")) {
		text = append([]byte("package p\n"), text...)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	simplify(file)
	var out bytes.Buffer
	if err := format.Node(&out, token.NewFileSet(), file); err != nil {
		return nil, err
	}
	return bytes.Join(bytes.Fields(out.Bytes()), []byte(" ")), nil
}

// inCase reports whether an offset is in the condition of a case.
func inCase(f *ast.FuncDecl, s *sourceFile, at int) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CaseClause); ok && s.offset(c.Pos()) <= at && at <= s.offset(c.Colon) {
			found = true
		}
		return true
	})
	return found
}

// behindLiteral reports whether a place follows a function literal in its own statement.
func behindLiteral(f *ast.FuncDecl, s *sourceFile, at int) bool {
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			found = found || s.offset(n.End()) <= at
		case *ast.BlockStmt:
		case ast.Stmt:
			if s.offset(n.Pos()) <= at && at < s.offset(n.End()) {
				found = false // what stands before is not in this statement
			}
		}
		return true
	})
	return found
}
