package protocol

import "strings"

// quotedBytes is the most bytes of a client's own words in an error text.
const quotedBytes = 128

// Resolve finds the row of a command line and checks the number of words. The error is Redis's reply to
// an invalid line, whose texts client libraries match.
func Resolve(words [][]byte) (*Command, *Error) { return theTable().Resolve(words) }

// Resolve is [Resolve] in one table.
func (t *Table) Resolve(words [][]byte) (*Command, *Error) {
	c, container := FindIn(t, words)
	switch {
	case container == nil:
		return nil, unknownCommand(words)
	case c == nil:
		return nil, NewError("unknown subcommand '" + quote(words[1]) + "'. Try " +
			strings.ToUpper(container.Name) + " HELP.")
	case !c.CheckArity(len(words)):
		return nil, WrongArity(c.Name)
	}
	return c, nil
}

// WrongArity is the error of a command line with too few or too many words.
func WrongArity(name string) *Error {
	return NewError("wrong number of arguments for '" + name + "' command")
}

// unknownCommand quotes the line's first arguments until they fill quotedBytes.
func unknownCommand(words [][]byte) *Error {
	if len(words) == 0 {
		return NewError("unknown command ''")
	}
	var args strings.Builder
	for _, w := range words[1:] {
		if args.Len() >= quotedBytes {
			break
		}
		w = w[:min(len(w), quotedBytes-args.Len())]
		args.WriteString("'" + quote(w) + "' ")
	}
	return NewError("unknown command '" + quote(words[0]) + "', with args beginning with: " + args.String())
}

// quote makes a client's word fit for an error line: no more than quotedBytes, nothing behind a zero
// byte, and no line breaks.
func quote(word []byte) string {
	s, _, _ := strings.Cut(string(word[:min(len(word), quotedBytes)]), "\x00")
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
}
