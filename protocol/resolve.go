package protocol

import (
	"slices"
	"strings"
)

// quotedBytes bounds the bytes of a client's own words in an error.
const quotedBytes = 128

// FindIn is [Find] in one table.
func FindIn[W ~string | ~[]byte](t *Table, args []W) (command, container *Command) {
	if len(args) == 0 || len(args[0]) > maxName {
		return nil, nil
	}
	var folded [maxName]byte
	n := fold(folded[:], args[0])
	// "config|get" is the name of a row, but not a word of a command line.
	if slices.Contains(folded[:n], '|') {
		return nil, nil
	}
	byName := t.byName
	container = byName[string(folded[:n])]
	if container == nil || container.Subcommands == nil || len(args) == 1 {
		return container, container
	}
	if n+1+len(args[1]) > maxName {
		return nil, container
	}
	folded[n] = '|'
	n += 1 + fold(folded[n+1:], args[1])
	return byName[string(folded[:n])], container
}

// fold copies the argument in lower case, and returns its length. Requires: it fits.
func fold[W ~string | ~[]byte](dst []byte, arg W) int {
	for i := range len(arg) {
		b := arg[i]
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		dst[i] = b
	}
	return len(arg)
}

// WrongArity returns the error of a command line with too few or too many words.
func WrongArity(name string) *Error {
	return NewError("wrong number of arguments for '" + name + "' command")
}

// WrongArity returns the error for too few or too many arguments.
func (c *Command) WrongArity() *Error { return c.withUsage(WrongArity(c.Name)) }

// WrongSyntax returns v, the reply to a command. To a syntax error of a command that Redis does not have it adds the
// syntax.
func (c *Command) WrongSyntax(v Value) Value {
	if v.Kind != KindError || v.Str != ErrSyntax.Error() {
		return v
	}
	return c.withUsage(ErrSyntax).Value()
}

// withUsage adds the syntax of a command that Redis does not have. The errors of other commands are exactly Redis's.
func (c *Command) withUsage(e *Error) *Error {
	if c.Group != GroupModule {
		return e
	}
	return &Error{Prefix: e.Prefix, Text: e.Text + ": " + c.Usage(), Outcome: e.Outcome}
}

// Unknown returns the error of a command line without a row: that of a subcommand if there is a container. Arguments
// are quoted up to quotedBytes.
func Unknown(args [][]byte, container *Command) *Error {
	switch {
	case container != nil:
		return NewError("unknown subcommand '" + quote(args[1]) + "'. Try " + strings.ToUpper(container.Name) + " HELP.")
	case len(args) == 0:
		return NewError("unknown command ''")
	}
	var quoted strings.Builder
	for _, arg := range args[1:] {
		if quoted.Len() >= quotedBytes {
			break
		}
		quoted.WriteString("'" + quote(arg[:min(len(arg), quotedBytes-quoted.Len())]) + "' ")
	}
	return NewError("unknown command '" + quote(args[0]) + "', with args beginning with: " + quoted.String())
}

// quote shortens an argument for an error to quotedBytes, cuts it at a zero byte, and replaces line breaks.
func quote(arg []byte) string {
	s, _, _ := strings.Cut(string(arg[:min(len(arg), quotedBytes)]), "\x00")
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
}
