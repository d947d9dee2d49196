package lua

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// generator writes random programs that end: loops are short, functions are not recursive. A
// program returns the table out, which holds all results.
type generator struct {
	*rand.Rand
	out    strings.Builder
	names  []string // local variables in scope
	depth  int
	loops  int
	nextID int
	vararg bool
}

func generateProgram(seed uint64) string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), vararg: true}
	g.out.WriteString("local out = {}\nlocal function p(...) for i = 1, select('#', ...) do local v = select(i, ...)\n" +
		"local s = type(v) if s ~= 'table' and s ~= 'function' then s = tostring(v) end out[#out+1] = s end return ... end\n")
	g.names = append(g.names, "out", "p")
	g.block(8)
	g.out.WriteString("return table.concat(out, ' ')")
	return g.out.String()
}

func (g *generator) oneOf(choices ...string) string { return choices[g.IntN(len(choices))] }

// fresh declares a variable.
func (g *generator) fresh() string {
	g.nextID++
	return fmt.Sprintf("v%d", g.nextID)
}

func (g *generator) block(n int) {
	scope := len(g.names)
	for range 1 + g.IntN(n) {
		g.statement()
	}
	g.names = g.names[:scope]
}

func (g *generator) line(format string, args ...any) {
	g.out.WriteString(strings.Repeat(" ", g.depth))
	fmt.Fprintf(&g.out, format, args...)
	g.out.WriteString("\n")
}

func (g *generator) nested(n int) {
	g.depth++
	g.block(n)
	g.depth--
}

// writable is a variable that programs may assign to.
func (g *generator) writable() string {
	if len(g.names) <= 2 {
		return ""
	}
	return g.names[2+g.IntN(len(g.names)-2)]
}

func (g *generator) statement() {
	kind := g.IntN(20)
	if g.depth > 4 && kind > 8 {
		kind = g.IntN(9)
	}
	switch kind {
	case 0, 1, 2:
		e := g.expr(3)
		v := g.fresh()
		g.line("local %s = %s", v, e)
		g.names = append(g.names, v)
	case 3:
		a, b, c := g.expr(2), g.expr(2), g.expr(2)
		v, w := g.fresh(), g.fresh()
		g.line("local %s, %s = %s", v, w, g.oneOf(a, a+", "+b, a+", "+b+", "+c, "p("+a+", "+b+")"))
		g.names = append(g.names, v, w)
	case 4, 5:
		if v := g.writable(); v != "" {
			g.line("%s = %s", v, g.expr(3))
		}
	case 6:
		v, w := g.writable(), g.writable()
		if v != "" && v != w {
			g.line("%s, %s = %s, %s", v, w, g.expr(2), g.expr(2))
		}
	case 7, 8:
		g.line("p(%s)", g.expr(3))
	case 9:
		g.conditional()
	case 10, 11:
		g.loop()
	case 12, 13:
		g.function()
	case 14:
		g.line("do")
		g.nested(3)
		g.line("end")
	case 15:
		vararg := g.vararg
		g.vararg = false
		g.line("p(pcall(function() return %s end))", g.expr(3))
		g.vararg = vararg
	case 16:
		g.line("p((pcall(function()")
		vararg, loops := g.vararg, g.loops
		g.vararg, g.loops = false, 0
		g.nested(3)
		g.vararg, g.loops = vararg, loops
		g.line("end)))")
	case 17:
		v := g.fresh()
		g.line("local %s = {%s, %s, k = %s, [%s] = %s}", v, g.expr(1), g.expr(1), g.expr(1),
			g.oneOf("'x'", "1", "2.5", "true"), g.expr(1))
		g.names = append(g.names, v)
	case 18:
		if v := g.writable(); v != "" {
			g.line("p(pcall(function() %s.k = %s %s[1], %s.x = %s end))", v, g.expr(1), v, v, g.expr(2))
		}
	default:
		if g.loops > 0 {
			g.line("if %s then break end", g.expr(2))
		}
	}
}

func (g *generator) conditional() {
	g.line("if %s then", g.expr(3))
	g.nested(3)
	if g.IntN(2) == 0 {
		g.line("elseif %s then", g.expr(2))
		g.nested(2)
	}
	if g.IntN(2) == 0 {
		g.line("else")
		g.nested(3)
	}
	g.line("end")
}

func (g *generator) loop() {
	if g.loops > 1 {
		return
	}
	g.loops++
	switch v := g.fresh(); g.IntN(4) {
	case 0:
		g.line("for %s = %s do", v, g.oneOf("1, 3", "3, 1, -1", "'1', 2", "1, 2, 0.5", "2, 1"))
		g.names = append(g.names, v)
		g.nested(3)
		g.names = g.names[:len(g.names)-1]
	case 1:
		w := g.fresh()
		g.line("for %s, %s in %s do", v, w, g.oneOf("ipairs({1, 'a', {}})", "pairs({a = 1, 2, b = 3})", "next, {x = 1}",
			"('a=1,b=2'):gmatch('(%w)=(%w)')"))
		g.names = append(g.names, v, w)
		g.nested(3)
		g.names = g.names[:len(g.names)-2]
	case 2:
		g.line("local %s = 0 while %s < 3 do %s = %s + 1", v, v, v, v)
		g.nested(3)
	default:
		g.line("local %s = 0 repeat %s = %s + 1 local w%s = %s", v, v, v, v, g.expr(1))
		g.nested(2)
		g.line("until %s >= 3 or w%s", v, v)
		g.loops--
		return
	}
	g.line("end")
	g.loops--
}

func (g *generator) function() {
	v := g.fresh()
	loops, vararg, names := g.loops, g.vararg, len(g.names)
	a, b := g.fresh(), g.fresh()
	g.loops = 0
	params := g.oneOf("", a, a+", "+b, a+", ...", "...")
	g.vararg = strings.HasSuffix(params, "...")
	g.line("local %s = function(%s)", v, params)
	if strings.Contains(params, a) {
		g.names = append(g.names, a)
	}
	if strings.Contains(params, b) {
		g.names = append(g.names, b)
	}
	g.nested(3)
	g.line(" return %s", g.oneOf(g.expr(2), g.expr(2)+", "+g.expr(1), "p("+g.expr(1)+")", ""))
	g.line("end")
	g.loops, g.vararg, g.names = loops, vararg, g.names[:names]
	g.line("p(pcall(%s, %s))", v, g.oneOf(g.expr(1), g.expr(1)+", "+g.expr(1)+", 3", "p(4, 5)"))
	g.names = append(g.names, v)
}

func (g *generator) expr(depth int) string {
	if depth == 0 || g.IntN(4) == 0 {
		return g.atom()
	}
	a := func() string { return g.expr(depth - 1) }
	switch g.IntN(16) {
	case 0, 1:
		return "(" + a() + " " + g.oneOf("and", "or") + " " + a() + ")"
	case 2:
		return a() + " " + g.oneOf("and", "or") + " " + a() + " " + g.oneOf("and", "or") + " " + a()
	case 3:
		return "not " + a()
	case 4:
		return "(" + a() + " " + g.oneOf("==", "~=") + " " + a() + ")"
	case 5:
		return "(#tostring(" + a() + "):sub(1, 5) " + g.oneOf("<", ">", "<=", ">=") + " #tostring(" + a() + "):sub(1, 5))"
	case 6:
		return "(tostring(" + a() + "):sub(1, 4) .. '" + g.oneOf("a", "1", "") + "' .. #tostring(" + g.atom() + "):sub(1, 5))"
	case 7, 8:
		return "((tonumber(" + g.scalar() + ") or " + g.oneOf("1", "2", "-0.5") + ") " + g.oneOf("+", "-", "*", "/", "%",
			"^") + " " + g.oneOf("2", "3", "-1.5", "0.25") + ")"
	case 9:
		return "(" + g.oneOf("-", "") + g.oneOf("1", "2.5", "'3'") + " " + g.oneOf("+", "*", "-") + " " +
			g.oneOf("4", "'5'", "0x10") + ")"
	case 10:
		return "(p(" + a() + ", " + a() + "))"
	case 11:
		return "select('#', " + a() + ", p(" + g.atom() + ", 2))"
	case 12:
		return "(function(...) return " + g.oneOf("...", "select('#', ...)", "(...)", "1, ...") + " end)(" + a() + ", " +
			a() + ")"
	case 13:
		return "({" + a() + ", " + a() + ", n = " + a() + "})" + g.oneOf("[1]", ".n", "[2]", ".zz")
	case 14:
		return "(#{" + a() + ", " + a() + "})"
	default:
		return "(" + g.atom() + ")" + g.oneOf(" + 1", " .. 'x'", ".k", "[1]", "()", " < 2", ":m(1)", " == nil")
	}
}

// scalar is an expression whose text has no address.
func (g *generator) scalar() string { return g.oneOf("1", "'2'", "'x'", "2.5", "nil", "true", "''") }

func (g *generator) atom() string {
	if g.vararg && g.IntN(12) == 0 {
		return "(...)"
	}
	if len(g.names) > 2 && g.IntN(2) == 0 {
		return g.writable()
	}
	return g.oneOf("nil", "true", "false", "0", "1", "-7", "1.5", "1e20", "'s'", "''", "'10'", "{}", "{1, 2}",
		"math.huge", "KEYS[1]", "ARGV[2]", "p", "string.len")
}

// withoutAddresses cuts the programs' results where a table's or function's text stands.
func withoutAddresses(reply string) string {
	for _, kind := range []string{"table: 0x", "function: 0x", "tabl", "func"} {
		reply = strings.ReplaceAll(reply, kind, "")
	}
	return reply
}

const generatedPrograms = 4000

// TestDifferentialPrograms compares with a real Redis on generated programs.
func TestDifferentialPrograms(t *testing.T) {
	redis := startRedis(t)
	for seed := range uint64(generatedPrograms) {
		program := generateProgram(seed)
		want, got := redis.eval(program), runSnippet(program)
		if withoutAddresses(got) != withoutAddresses(want) {
			t.Errorf("seed %d\n%s\n got %s\nwant %s", seed, program, got, want)
			if t.Failed() {
				return
			}
		}
	}
}
