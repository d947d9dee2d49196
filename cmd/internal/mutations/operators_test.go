package main

import (
	"go/ast"
	gobuild "go/build"
	"go/importer"
	"go/token"
	"go/types"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// made lists the mistakes in the function f of a file, each as its operator and the changed lines.
func made(t *testing.T, text string) []string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output() // which a test that was built with -trimpath does not know
	require.NoError(t, err)
	gobuild.Default.GOROOT = strings.TrimSpace(string(root))
	f, err := parseSource("a/a.go", []byte(text))
	require.NoError(t, err)
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: importer.ForCompiler(token.NewFileSet(), "source", nil)}
	_, err = config.Check("a", f.set, []*ast.File{f.syntax}, info)
	require.NoError(t, err)
	_, from, to, err := declaration([]*sourceFile{f}, "f")
	require.NoError(t, err)
	var all []string
	for _, m := range machineMade(f, functionAt(f, from), info) {
		require.NotEqual(t, string(f.text[from:to]), string(m.mutated()), m.op)
		was, is := strings.Split(string(f.text[from:to]), "\n"), strings.Split(string(m.mutated()), "\n")
		if len(was) != len(is) { // lines have become one
			was, is = make([]string, 1), []string{strings.Join(strings.Fields(string(m.mutated())), " ")}
		}
		line := m.op + ":"
		for i := range was {
			if was[i] != is[i] {
				line += " " + strings.TrimSpace(is[i])
			}
		}
		all = append(all, line)
	}
	return all
}

// TestOperators shows each operator at work.
func TestOperators(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"func f(a, b bool) {\nif a && !b {\nprint(1)\n}\n}", []string{
			"branch emptied: if (a && !b) && false {",
			"condition always true: if (a && !b) || true {",
			"term dropped: if (true || (a)) && !b {",
			"term negated: if !(a) && !b {",
			"term dropped: if a && (true || (!b)) {",
			"term negated: if a && b {",
			"statement removed: if false { print(1) }",
			"argument zeroed: print(0)",
			"constant off by one: print(2)",
			"constant off by one: print(0)",
		}},
		{"func f(a, b int) int {\nreturn a - b\n}", []string{
			"early return: func f(a, b int) int { if true { return *new(int) };",
			"operator changed: return a + b",
			"operand dropped: return a",
		}},
		{"func f(a []int) (n int) {\nfor _, x := range a {\nn += x\n}\nreturn\n}", []string{
			"early return: func f(a []int) (n int) { if true { return *new(int) };",
			"statement removed: if false { for _, x := range a { } }",
			"loop runs once: ; break }",
			"statement removed: if false { n += x }",
			"assignment turned: n -= x",
			"assignment not added: n = x",
		}},
		{
			"func f(a, b string, n int) bool {\nreturn g(a, b) && n < len(a)\n}\nfunc g(a, b string) bool { return a < b }",
			[]string{
				"early return: func f(a, b string, n int) bool { if true { return *new(bool) };",
				"result always true: return (g(a, b) && n < len(a)) || true",
				"result always false: return (g(a, b) && n < len(a)) && false",
				"term dropped: return (true || (g(a, b))) && n < len(a)",
				"term negated: return !(g(a, b)) && n < len(a)",
				"term dropped: return g(a, b) && (true || (n < len(a)))",
				"term negated: return g(a, b) && !(n < len(a))",
				"argument zeroed: return g(\"\", b) && n < len(a)",
				"arguments swapped: return g(b, a) && n < len(a)",
				"argument zeroed: return g(a, \"\") && n < len(a)",
				"comparison changed: return g(a, b) && n <= len(a)",
				"comparison changed: return g(a, b) && n > len(a)",
				"argument zeroed: return g(a, b) && n < len(\"\")",
			},
		},
		{"func f(n int) (err error) {\nswitch n {\ncase 1, 2:\nerr = g()\ndefault:\n}\nreturn err\n}\nfunc g() error { " +
			"return nil }", []string{
			"early return: func f(n int) (err error) { if true { return *new(error) };",
			"statement removed: if false { err = g() }",
			"value not kept: _ = g()",
			"case emptied: if false { err = g() }",
			"case dropped: case 2:",
			"case dropped: case 1:",
			"constant off by one: case 2, 2:",
			"constant off by one: case 0, 2:",
			"constant off by one: case 1, 3:",
			"constant off by one: case 1, 1:",
			"error swallowed: return nil",
		}},
		{"type p struct{ a, b int }\nfunc f(x p) p {\nx.a, x.b = x.b, min(x.a, 7)\nreturn p{a: x.a, b: -x.b}\n}", []string{
			"early return: func f(x p) p { if true { return *new(p) };",
			"statement removed: if false { x.a, x.b = x.b, min(x.a, 7) }",
			"value not kept: x.b = min(x.a, 7)",
			"value not kept: x.a = x.b",
			"least and greatest exchanged: x.a, x.b = x.b, max(x.a, 7)",
			"argument zeroed: x.a, x.b = x.b, min(0, 7)",
			"call left out: x.a, x.b = x.b, x.a",
			"argument zeroed: x.a, x.b = x.b, min(x.a, 0)",
			"call left out: x.a, x.b = x.b, 7",
			"constant off by one: x.a, x.b = x.b, min(x.a, 8)",
			"constant off by one: x.a, x.b = x.b, min(x.a, 6)",
			"field left out: return p{b: -x.b}",
			"field left out: return p{a: x.a}",
			"sign dropped: return p{a: x.a, b: x.b}",
		}},
		{
			"import \"sync\"\nvar mu sync.Mutex\nfunc f(a []int) []int {\nmu.Lock()\ndefer mu.Unlock()\nreturn a[1:]\n}",
			[]string{
				"early return: func f(a []int) []int { if true { return *new([]int) };",
				"lock not taken: if false { mu.Lock() } if false { defer mu.Unlock() }",
				"statement removed: if false { mu.Lock() }",
				"statement removed: if false { defer mu.Unlock() }",
				"bound of a slice dropped: return a[:]",
				"constant off by one: return a[2:]",
				"constant off by one: return a[0:]",
			},
		},
		{"import \"container/list\"\nfunc f(l *list.List) {\nfor {\nif l.PushBack(true); l.Len() == 0 {\nbreak\n} else " +
			"{\ncontinue\n}\n}\n}", []string{
			"statement removed: if false { for { } }",
			"loop runs once: ; break }",
			"branch emptied: if l.PushBack(true); (l.Len() == 0) && false {",
			"condition always true: if l.PushBack(true); (l.Len() == 0) || true {",
			"term negated: if l.PushBack(true); !(l.Len() == 0) {",
			"other branch dropped: func f(l *list.List) { for { if l.PushBack(true); l.Len() == 0 { break } else {} } }",
			"opposite called: if l.PushFront(true); l.Len() == 0 {",
			"argument zeroed: if l.PushBack(false); l.Len() == 0 {",
			"constant turned: if l.PushBack(false); l.Len() == 0 {",
			"constant off by one: if l.PushBack(true); l.Len() == 1 {",
			"statement removed: if false { break }",
			"break and continue exchanged: continue",
			"statement removed: if false { continue }",
			"break and continue exchanged: break",
		}},
	} {
		require.Equal(t, c.want, made(t, "package a\n"+c.text), c.text)
	}
}

// TestIdentity: a mistake is the same however it is written, and another one is not.
func TestIdentity(t *testing.T) {
	identity := func(body string) string {
		f, err := parseSource("a.go", []byte("package a\nfunc f(a, b, c bool, t []int) bool {\n"+body+"\n}\n"))
		require.NoError(t, err)
		id, err := mutant{source: f, fn: "f", edits: []edit{{start: 12, end: 12}}}.identity()
		require.NoError(t, err)
		return id
	}
	for _, same := range [][]string{
		{
			"return a && b", "return a &&\n b // or not", "return a && (b)", "return a && b && (true || (c))",
			"return a && !(!b)",
		},
		{
			"if a { f() }; return b", "if (a && c) && false { b = c }; if a { f() }; return b",
			"if a { f() }; _, _ = a, b; return b",
		},
		{"f(); return a", "if true { f() }; return a", "if (b) || true { f() }; return a"},
		{"return len(t) != 0", "return !(len(t) == 0)"},
		{"return a", "if false { return b }; return a", "if b && false { f() }; return a"},
		{"return (a || b) && c", "return (true || (a)) && (a || b) && c"},
	} {
		for _, body := range same {
			require.Equal(t, identity(same[0]), identity(body), body)
		}
	}
	require.NotEqual(t, identity("return a && b || c"), identity("return a && (b || c)"))
	require.NotEqual(t, identity("if a { return b }; return c"), identity("if a && c { return b }; return c"))
}

// TestReaches: a test runs what is in its blocks, and what is in no block of a function that it runs.
func TestReaches(t *testing.T) {
	const text = `package a

func f(s []int) bool {
	if i := index(s, func(x int) bool { return x > 0 }); i >= 0 {
		s[i] = 1
	}
	switch {
	case len(s) > 1:
		return true
	}
	return false
}
`
	f, err := parseSource("a/a.go", []byte(text))
	require.NoError(t, err)
	first := reached{Blocks: []block{{"a.go", 4, 2, 4, 36}}}
	other := reached{Blocks: []block{{"a.go", 20, 2, 24, 3}}}
	for place, want := range map[string]bool{
		"index(s": true, "x > 0": false, "i >= 0": true, "s[i] = 1": false, "len(s) > 1": true, "return true": false,
	} {
		m := mutant{source: f, edits: []edit{{strings.Index(text, place), strings.Index(text, place) + 1, "?"}}}
		require.Equal(t, want, first.reaches(m), place)
		require.False(t, other.reaches(m), place)
	}
}
