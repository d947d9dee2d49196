package frontend

import (
	"fmt"
	"strconv"
	"strings"
)

// show makes replies readable, one a line. It tells all types of RESP apart:
//
//	+OK  -ERR no  :1  "bulk"  nil ($-1)  nil* (*-1)  null (_)  [1 2]  %{k v}  ~{a b}  >[a]  #t  ,3.14  (123  ="txt:…"
func show(replies string) (lines []string) {
	for rest := replies; rest != ""; {
		var line string
		line, rest = showOne(rest)
		lines = append(lines, line)
	}
	return lines
}

func showOne(s string) (shown, rest string) {
	head, rest, ok := strings.Cut(s, "\r\n")
	if !ok || head == "" {
		return fmt.Sprintf("broken %q", s), ""
	}
	n, _ := strconv.Atoi(head[1:])
	switch head[0] {
	case '+', '-', ':', '#', ',', '(':
		return head, rest
	case '_':
		return "null", rest
	case '$', '=':
		if n < 0 {
			return "nil", rest
		}
		if len(rest) < n+2 {
			return fmt.Sprintf("broken %q", s), ""
		}
		return strings.TrimPrefix(head[:1], "$") + strconv.Quote(rest[:n]), rest[n+2:]
	case '*', '~', '>':
		return showAll(head[0], n, rest)
	case '%':
		return showAll(head[0], 2*n, rest)
	}
	return fmt.Sprintf("broken %q", s), ""
}

func showAll(mark byte, n int, rest string) (string, string) {
	if n < 0 {
		return "nil*", rest
	}
	elems := make([]string, n)
	for i := range elems {
		if rest == "" {
			elems[i] = "missing"
			continue
		}
		elems[i], rest = showOne(rest)
	}
	all := strings.Join(elems, " ")
	switch mark {
	case '*':
		return "[" + all + "]", rest
	case '>':
		return ">[" + all + "]", rest
	}
	return string(mark) + "{" + all + "}", rest
}
