package main

import (
	"go/ast"
	"go/token"
	"slices"

	"golang.org/x/tools/go/ast/astutil"
)

// simplify decides conditions with a constant in them, and drops statements that do nothing.
func simplify(file *ast.File) {
	astutil.Apply(file, nil, func(c *astutil.Cursor) bool {
		switch n := c.Node().(type) {
		case *ast.ParenExpr:
			c.Replace(stripped(n))
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				simplifyNot(c, n)
			}
		case *ast.BinaryExpr:
			simplifyBinary(c, n)
		case *ast.IfStmt:
			simplifyIf(c, n)
		case *ast.AssignStmt:
			if c.Index() >= 0 && n.Tok == token.ASSIGN && allBlank(n.Lhs) && allIdents(n.Rhs) {
				c.Delete()
			}
		case *ast.BlockStmt:
			if c.Index() >= 0 && len(n.List) == 0 {
				c.Delete()
			}
		}
		return true
	})
}

func unparen(e ast.Expr) ast.Expr {
	for {
		p, ok := e.(*ast.ParenExpr)
		if !ok {
			return e
		}
		e = p.X
	}
}

// stripped is e without parentheses that no operator around e could need.
func stripped(e ast.Expr) ast.Expr {
	switch x := unparen(e).(type) {
	case *ast.Ident, *ast.SelectorExpr, *ast.CallExpr, *ast.IndexExpr, *ast.BasicLit:
		return x
	}
	return e
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := unparen(e).(*ast.Ident)
	return ok && id.Name == name
}

var opposites = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ,
	token.LEQ: token.GTR,
}

func simplifyNot(c *astutil.Cursor, n *ast.UnaryExpr) {
	switch x := unparen(n.X).(type) {
	case *ast.Ident:
		switch x.Name {
		case "true":
			c.Replace(ast.NewIdent("false"))
		case "false":
			c.Replace(ast.NewIdent("true"))
		default:
			c.Replace(&ast.UnaryExpr{Op: token.NOT, X: x})
		}
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			c.Replace(stripped(x.X))
		}
	case *ast.BinaryExpr:
		if op, ok := opposites[x.Op]; ok {
			c.Replace(&ast.BinaryExpr{X: x.X, Op: op, Y: x.Y})
		}
	case *ast.CallExpr, *ast.SelectorExpr:
		c.Replace(&ast.UnaryExpr{Op: token.NOT, X: x})
	}
}

func simplifyBinary(c *astutil.Cursor, n *ast.BinaryExpr) {
	absorbing, neutral := "false", "true"
	switch n.Op {
	case token.LAND:
	case token.LOR:
		absorbing, neutral = neutral, absorbing
	default:
		return
	}
	switch {
	case isIdent(n.X, absorbing), isIdent(n.Y, absorbing):
		c.Replace(ast.NewIdent(absorbing))
	case isIdent(n.X, neutral):
		c.Replace(stripped(n.Y))
	case isIdent(n.Y, neutral):
		c.Replace(stripped(n.X))
	}
}

func simplifyIf(c *astutil.Cursor, n *ast.IfStmt) {
	if c.Index() < 0 || n.Init != nil || n.Else != nil {
		return
	}
	switch {
	case isIdent(n.Cond, "false") || len(n.Body.List) == 0:
		c.Delete()
	case isIdent(n.Cond, "true"):
		for _, s := range n.Body.List {
			c.InsertBefore(s)
		}
		c.Delete()
	}
}

func allBlank(list []ast.Expr) bool {
	return !slices.ContainsFunc(list, func(e ast.Expr) bool { return !isIdent(e, "_") })
}

func allIdents(list []ast.Expr) bool {
	return !slices.ContainsFunc(list, func(e ast.Expr) bool {
		_, ok := unparen(e).(*ast.Ident)
		return !ok
	})
}
