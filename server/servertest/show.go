package servertest

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Show prints a reply as redis-cli does on a terminal.
func Show(v protocol.Value) string { return strings.Join(show(v), "\n") }

// show returns the lines of a reply.
func show(v protocol.Value) []string {
	switch v.Kind {
	case protocol.KindNull, protocol.KindNullArray:
		return []string{"(nil)"}
	case protocol.KindError:
		return []string{"(error) " + v.Str}
	case protocol.KindInteger:
		return []string{"(integer) " + strconv.FormatInt(v.Num, 10)}
	case protocol.KindBulk:
		return []string{strconv.Quote(v.Str)}
	case protocol.KindBool:
		return []string{fmt.Sprintf("(%t)", v.Num != 0)}
	case protocol.KindDouble:
		return []string{"(double) " + protocol.FormatDouble(v.Float())}
	case protocol.KindArray, protocol.KindPush:
		return showAll(v.Elems, "array", ") ")
	case protocol.KindPairs:
		return showPairs(v.Elems)
	case protocol.KindSet:
		return showAll(v.Elems, "set", "~ ")
	case protocol.KindMap:
		return showMap(v.Elems)
	default:
		return strings.Split(strings.TrimSuffix(v.Str, "\n"), "\n")
	}
}

func showAll(elems []protocol.Value, kind, mark string) []string {
	if len(elems) == 0 {
		return []string{"(empty " + kind + ")"}
	}
	var lines []string
	for i, e := range elems {
		lines = append(lines, behind(number(i, len(elems))+mark, show(e))...)
	}
	return lines
}

func showPairs(elems []protocol.Value) []string {
	pairs := make([]protocol.Value, 0, len(elems)/2)
	for i := 0; i+1 < len(elems); i += 2 {
		pairs = append(pairs, protocol.Array(elems[i], elems[i+1]))
	}
	return showAll(pairs, "array", ") ")
}

func showMap(elems []protocol.Value) []string {
	if len(elems) == 0 {
		return []string{"(empty hash)"}
	}
	var lines []string
	for i := 0; i+1 < len(elems); i += 2 {
		key := strings.Join(show(elems[i]), " ")
		lines = append(lines, behind(number(i/2, len(elems)/2)+"# "+key+" => ", show(elems[i+1]))...)
	}
	return lines
}

// number is i counted from 1, as wide as the greatest of n.
func number(i, n int) string {
	return fmt.Sprintf("%*d", int(math.Log10(float64(n)))+1, i+1)
}

// behind puts head before the first line and blanks before the others.
func behind(head string, lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		if i > 0 {
			head = strings.Repeat(" ", len(head))
		}
		all[i] = head + line
	}
	return all
}
