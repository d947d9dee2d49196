package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
)

// maker makes the machine-made mistakes of one function.
type maker struct {
	src   *sourceFile
	decl  *ast.FuncDecl
	info  *types.Info
	found []mutant
}

// removals are the operators that take a statement, a branch or a term of a condition away.
var removals = []string{
	"statement removed", "value not kept", "branch emptied", "other branch dropped", "condition always true",
	"term dropped",
	"case emptied", "case dropped", "case never taken", "case always taken", lockNotTaken,
}

// machineMade returns the mistakes that the operators make in decl, in the order of the code.
func machineMade(src *sourceFile, decl *ast.FuncDecl, info *types.Info) []mutant {
	m := &maker{src: src, decl: decl, info: info}
	if decl.Body == nil || len(decl.Body.List) == 0 || decl.Name.Name == "String" {
		return nil
	}
	m.earlyReturn()
	m.locks()
	var stack []ast.Node
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		m.visit(n, stack)
		stack = append(stack, n)
		return true
	})
	return m.found
}

func (m *maker) add(op string, at ast.Node, edits ...edit) {
	m.found = append(m.found, mutant{
		source: m.src, fn: anchorOf(m.decl), line: m.src.line(at.Pos()), op: op, edits: edits,
	})
}

func (m *maker) text(n ast.Node) string { return m.src.span(n.Pos(), n.End()) }

// replace is the edit that puts text in the place of n.
func (m *maker) replace(n ast.Node, text string) edit {
	return edit{m.src.offset(n.Pos()), m.src.offset(n.End()), text}
}

// wrap puts text before and behind n.
func (m *maker) wrap(n ast.Node, before, behind string) edit {
	return m.replace(n, before+m.text(n)+behind)
}

func (m *maker) visit(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.BlockStmt:
		m.statements(n.List, stack)
	case *ast.CaseClause:
		m.caseClause(n)
	case *ast.CommClause:
		m.statements(n.Body, nil)
	case *ast.IfStmt:
		m.add("branch emptied", n.Cond, m.wrap(n.Cond, "(", ") && false"))
		m.add("condition always true", n.Cond, m.wrap(n.Cond, "(", ") || true"))
		if _, chain := chained(n.Cond); !chain {
			m.negate(n.Cond)
		}
		if n.Else != nil {
			m.add("other branch dropped", n.Else, m.replace(n.Else, "{}"))
		}
	case *ast.ForStmt:
		m.loop(n, n.Body)
	case *ast.RangeStmt:
		m.loop(n, n.Body)
	case *ast.BinaryExpr:
		m.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.SUB && m.info.Types[n].Value == nil {
			m.add("sign dropped", n, m.replace(n, m.text(n.X)))
		}
	case *ast.BasicLit:
		m.number(n)
	case *ast.Ident:
		m.boolean(n)
	case *ast.CallExpr:
		m.call(n)
	case *ast.ReturnStmt:
		m.results(n)
	case *ast.CompositeLit:
		m.fields(n)
	case *ast.SliceExpr:
		m.slice(n)
	}
}

// statements removes each statement in turn.
func (m *maker) statements(list []ast.Stmt, stack []ast.Node) {
	for i, s := range list {
		last := i == len(list)-1 && len(stack) == 0
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && isBuiltin(m.info, call, "panic") {
				continue // an invariant: no test can see that it is not checked
			}
			m.remove(s)
		case *ast.AssignStmt:
			m.assignment(s)
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt, *ast.ForStmt, *ast.RangeStmt:
			m.remove(s)
		case *ast.BranchStmt:
			if s.Tok != token.FALLTHROUGH && s.Tok != token.GOTO {
				m.remove(s)
			}
			if other := map[token.Token]string{token.BREAK: "continue", token.CONTINUE: "break"}[s.Tok]; other != "" &&
				s.Label == nil {
				m.add("break and continue exchanged", s, m.replace(s, other))
			}
		case *ast.ReturnStmt:
			if !last {
				m.remove(s)
			}
		}
	}
}

func (m *maker) remove(s ast.Stmt) { m.add("statement removed", s, m.wrap(s, "if false { ", " }")) }

// emptied keeps the statements, so that no variable is unused, and runs none.
func (m *maker) emptied(body []ast.Stmt) edit {
	from, to := m.src.offset(body[0].Pos()), m.src.offset(body[len(body)-1].End())
	return edit{from, to, "if false { " + string(m.src.text[from:to]) + " }"}
}

func (m *maker) assignment(s *ast.AssignStmt) {
	if s.Tok == token.DEFINE {
		return
	}
	m.remove(s)
	m.assigned(s)
	if opposite := map[token.Token]string{
		token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.OR_ASSIGN: "&=", token.AND_ASSIGN: "|=",
	}[s.Tok]; opposite != "" && m.isNumber(s.Lhs[0]) {
		at := m.src.offset(s.TokPos)
		m.add("assignment turned", s, edit{at, at + len(s.Tok.String()), opposite})
		m.add("assignment not added", s, edit{at, at + len(s.Tok.String()), "="})
	}
}

// assigned evaluates a value and does not keep it, and assigns all but one of several values.
func (m *maker) assigned(s *ast.AssignStmt) {
	if len(s.Lhs) == 1 && s.Tok == token.ASSIGN {
		m.add("value not kept", s, m.replace(s.Lhs[0], "_"))
	}
	if len(s.Lhs) < 2 || len(s.Lhs) != len(s.Rhs) || s.Tok != token.ASSIGN {
		return
	}
	for i := range s.Lhs {
		m.add("value not kept", s, m.listDrop(s.Lhs, i), m.listDrop(s.Rhs, i))
	}
}

// caseClause empties a case, leaves one of its values out, and decides its conditions.
func (m *maker) caseClause(c *ast.CaseClause) {
	m.statements(c.Body, nil)
	if len(c.Body) > 0 {
		m.add("case emptied", c, m.emptied(c.Body))
	}
	m.dropOne("case dropped", c.List)
	for _, e := range c.List {
		if !m.isBasic(e, types.IsBoolean) || m.info.Types[e].Value != nil {
			continue
		}
		m.add("case never taken", e, m.wrap(e, "(", ") && false"))
		m.add("case always taken", e, m.wrap(e, "(", ") || true"))
		if _, chain := chained(e); !chain {
			m.negate(e)
		}
	}
}

// loop runs a loop once at most.
func (m *maker) loop(s ast.Stmt, body *ast.BlockStmt) {
	if len(body.List) == 0 {
		return
	}
	last := body.List[len(body.List)-1]
	if _, ok := last.(*ast.ReturnStmt); ok {
		return
	}
	from, end := m.src.offset(last.Pos()), m.src.offset(body.Rbrace) // tests run the last statement, not the brace
	m.add("loop runs once", s, edit{from, end, string(m.src.text[from:end]) + "; break "})
}

// chained reports whether e is made of terms joined by && or ||.
func chained(e ast.Expr) (*ast.BinaryExpr, bool) {
	if p, ok := e.(*ast.ParenExpr); ok {
		return chained(p.X)
	}
	b, ok := e.(*ast.BinaryExpr)
	return b, ok && (b.Op == token.LAND || b.Op == token.LOR)
}

func (m *maker) binary(b *ast.BinaryExpr) {
	switch b.Op {
	case token.LAND, token.LOR:
		for _, term := range []ast.Expr{b.X, b.Y} {
			if b.Op == token.LAND {
				m.add("term dropped", term, m.wrap(term, "(true || (", "))"))
			} else {
				m.add("term dropped", term, m.wrap(term, "(false && (", "))"))
			}
			if _, chain := chained(term); !chain {
				m.negate(term)
			}
		}
		return
	}
	at := m.src.offset(b.OpPos)
	for _, other := range comparisons[b.Op] {
		if m.isOrdered(b) {
			m.add("comparison changed", b, edit{at, at + len(b.Op.String()), other})
		}
	}
	if other := arithmetic[b.Op]; other != "" && m.isNumber(b) && m.info.Types[b].Value == nil {
		m.add("operator changed", b, edit{at, at + len(b.Op.String()), other})
		m.add("operand dropped", b, m.replace(b, m.text(b.X)))
		if b.Op == token.ADD {
			m.add("operand dropped", b, m.replace(b, m.text(b.Y)))
		}
	}
}

var comparisons = map[token.Token][]string{
	token.LSS: {"<=", ">"}, token.LEQ: {"<", ">="}, token.GTR: {">=", "<"}, token.GEQ: {">", "<="},
	token.EQL: {"<=", ">="}, token.NEQ: {"<", ">"},
}

var arithmetic = map[token.Token]string{
	token.ADD: "-", token.SUB: "+", token.MUL: "/", token.QUO: "*", token.REM: "/",
	token.AND: "|", token.OR: "&", token.SHL: ">>", token.SHR: "<<", token.AND_NOT: "&",
}

func (m *maker) negate(e ast.Expr) {
	if not, ok := e.(*ast.UnaryExpr); ok && not.Op == token.NOT {
		m.add("term negated", e, m.replace(e, m.text(not.X)))
		return
	}
	m.add("term negated", e, m.wrap(e, "!(", ")"))
}

// isOrdered reports whether another comparison could tell more than the same from the different. Compared
// with a constant, a number is mostly on one side of it anyway.
func (m *maker) isOrdered(b *ast.BinaryExpr) bool {
	if b.Op != token.EQL && b.Op != token.NEQ {
		return true
	}
	return m.isNumber(b.X) && m.info.Types[b.X].Value == nil && m.info.Types[b.Y].Value == nil
}

func (m *maker) isNumber(e ast.Expr) bool { return m.isBasic(e, types.IsNumeric) }

func (m *maker) isBasic(e ast.Expr, flag types.BasicInfo) bool {
	t := m.info.TypeOf(e)
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&flag != 0
}

// number makes a constant one larger.
func (m *maker) number(lit *ast.BasicLit) {
	if lit.Kind != token.INT {
		return
	}
	if n, err := strconv.ParseUint(lit.Value, 0, 63); err == nil {
		m.add("constant off by one", lit, m.replace(lit, strconv.FormatUint(n+1, 10)))
		if n > 0 {
			m.add("constant off by one", lit, m.replace(lit, strconv.FormatUint(n-1, 10)))
		}
	}
}

func (m *maker) boolean(id *ast.Ident) {
	if c, ok := m.info.Uses[id].(*types.Const); ok && c.Parent() == types.Universe {
		if other := map[string]string{"true": "false", "false": "true"}[id.Name]; other != "" {
			m.add("constant turned", id, m.replace(id, other))
		}
	}
}

func isBuiltin(info *types.Info, call *ast.CallExpr, name string) bool {
	id, ok := call.Fun.(*ast.Ident)
	if !ok {
		return false
	}
	b, ok := info.Uses[id].(*types.Builtin)
	return ok && b.Name() == name
}

// call swaps arguments of one type, and takes an argument for the result where the types allow it.
func (m *maker) call(c *ast.CallExpr) {
	for name, other := range map[string]string{"min": "max", "max": "min"} {
		if isBuiltin(m.info, c, name) {
			m.add("least and greatest exchanged", c, m.replace(c.Fun, other))
		}
	}
	if m.info.Types[c.Fun].IsType() || isBuiltin(m.info, c, "make") {
		return
	}
	m.opposite(c)
	result := m.info.TypeOf(c)
	for i, arg := range c.Args {
		t := m.info.TypeOf(arg)
		if t == nil {
			continue
		}
		if zero := m.zero(arg); zero != "" {
			m.add("argument zeroed", arg, m.replace(arg, zero))
		}
		if result != nil && types.Identical(t, result) {
			m.add("call left out", c, m.replace(c, m.text(arg)))
		}
		if i+1 < len(c.Args) && m.info.TypeOf(c.Args[i+1]) != nil && types.Identical(t, m.info.TypeOf(c.Args[i+1])) &&
			m.text(arg) != m.text(c.Args[i+1]) && !isBuiltin(m.info, c, "min") && !isBuiltin(m.info, c, "max") {
			m.add("arguments swapped", c, m.replace(arg, m.text(c.Args[i+1])), m.replace(c.Args[i+1], m.text(arg)))
		}
	}
}

// zero is the text of the zero value in the place of e, where e is not that already.
func (m *maker) zero(e ast.Expr) string {
	t := m.info.TypeOf(e)
	var zero string
	switch u := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsNumeric != 0:
			zero = "0"
		case u.Info()&types.IsString != 0:
			zero = `""`
		case u.Info()&types.IsBoolean != 0:
			zero = "false"
		}
	case *types.Pointer, *types.Slice, *types.Map, *types.Chan, *types.Signature, *types.Interface:
		zero = "nil"
	}
	if m.text(e) == zero {
		return ""
	}
	return zero
}

// pairs are methods that are taken for each other.
var pairs = [][2]string{
	{"PushFront", "PushBack"},
	{"PopFront", "PopBack"},
	{"Front", "Back"},
	{"First", "Last"},
	{"Min", "Max"},
	{"Before", "After"},
	{"Ascend", "Descend"},
}

// opposite calls the method that goes the other way, if the type has it.
func (m *maker) opposite(c *ast.CallExpr) {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || m.info.Selections[sel] == nil {
		return
	}
	for _, p := range pairs {
		other := ""
		switch sel.Sel.Name {
		case p[0]:
			other = p[1]
		case p[1]:
			other = p[0]
		default:
			continue
		}
		if f, _, _ := types.LookupFieldOrMethod(m.info.Selections[sel].Recv(), true, m.info.Uses[sel.Sel].Pkg(),
			other); f != nil {
			m.add("opposite called", c, m.replace(sel.Sel, other))
		}
	}
}

// results answers nil for an error, and the opposite for a truth value.
func (m *maker) results(r *ast.ReturnStmt) {
	for _, e := range r.Results {
		t := m.info.TypeOf(e)
		switch {
		case t == nil || m.info.Types[e].IsNil():
		case len(r.Results) > 0 && isError(t):
			m.add("error swallowed", e, m.replace(e, "nil"))
		case m.isBasic(e, types.IsBoolean) && m.info.Types[e].Value == nil:
			if _, chain := chained(e); !chain {
				m.negate(e)
			}
			m.add("result always true", e, m.wrap(e, "(", ") || true"))
			m.add("result always false", e, m.wrap(e, "(", ") && false"))
		}
	}
}

func isError(t types.Type) bool {
	return types.Implements(t, types.Universe.Lookup("error").Type().Underlying().(*types.Interface))
}

// fields leaves out each named field of a literal of a struct.
func (m *maker) fields(c *ast.CompositeLit) {
	t := m.info.TypeOf(c)
	if t == nil {
		return
	}
	switch t.Underlying().(type) {
	case *types.Slice, *types.Map:
		m.dropOne("element left out", c.Elts)
		return
	case *types.Struct:
	default:
		return
	}
	var keyed []ast.Expr
	for _, e := range c.Elts {
		if _, ok := e.(*ast.KeyValueExpr); ok {
			keyed = append(keyed, e)
		}
	}
	for i, e := range keyed {
		m.add("field left out", e, m.listDrop(keyed, i))
	}
}

// dropOne drops each of several expressions of a list in turn.
func (m *maker) dropOne(op string, list []ast.Expr) {
	if len(list) < 2 {
		return
	}
	for i, e := range list {
		m.add(op, e, m.listDrop(list, i))
	}
}

// listDrop takes an expression and the comma behind it, or before the last, out of a list.
func (m *maker) listDrop(list []ast.Expr, i int) edit {
	switch {
	case i+1 < len(list):
		return edit{m.src.offset(list[i].Pos()), m.src.offset(list[i+1].Pos()), ""}
	case i > 0:
		return edit{m.src.offset(list[i-1].End()), m.src.offset(list[i].End()), ""}
	}
	end := m.src.offset(list[i].End())
	if m.src.text[end] == ',' {
		end++
	}
	return edit{m.src.offset(list[i].Pos()), end, ""}
}

func (m *maker) slice(s *ast.SliceExpr) {
	for _, bound := range []ast.Expr{s.Low, s.High} {
		if bound != nil && s.Max == nil {
			m.add("bound of a slice dropped", s, m.replace(bound, ""))
		}
	}
}

// earlyReturn has the function do nothing.
func (m *maker) earlyReturn() {
	body := m.decl.Body
	var zeros string
	if results := m.decl.Type.Results; results != nil {
		for _, field := range results.List {
			for range max(len(field.Names), 1) {
				if zeros != "" {
					zeros += ", "
				}
				zeros += fmt.Sprintf("*new(%s)", m.text(field.Type))
			}
		}
	}
	if len(body.List) == 1 && zeros == "" {
		return // the removal of the statement says as much
	}
	at := m.src.offset(body.Lbrace) + 1
	m.add("early return", m.decl.Name, edit{at, at, " if true { return " + zeros + " }; "})
}

const lockNotTaken = "lock not taken"

// locks leaves out every Lock of one mutex in the function, with its Unlock.
func (m *maker) locks() {
	byMutex := map[string][]edit{}
	var order []string
	first := map[string]ast.Node{}
	ast.Inspect(m.decl.Body, func(n ast.Node) bool {
		var call ast.Expr
		s, ok := n.(ast.Stmt)
		if !ok {
			return true
		}
		switch s := s.(type) {
		case *ast.ExprStmt:
			call = s.X
		case *ast.DeferStmt:
			call = s.Call
		default:
			return true
		}
		if mutex, ok := m.lockCall(call); ok {
			if first[mutex] == nil {
				first[mutex] = s
				order = append(order, mutex)
			}
			byMutex[mutex] = append(byMutex[mutex], m.wrap(s, "if false { ", " }"))
		}
		return true
	})
	for _, mutex := range order {
		m.add(lockNotTaken, first[mutex], byMutex[mutex]...)
	}
}

// lockCall tells which mutex a call locks or unlocks.
func (m *maker) lockCall(e ast.Expr) (mutex string, ok bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	switch sel.Sel.Name {
	case "Lock", "Unlock", "RLock", "RUnlock":
		f, ok := m.info.Uses[sel.Sel].(*types.Func)
		return m.text(sel.X), ok && f.Pkg() != nil && f.Pkg().Path() == "sync"
	}
	return "", false
}
