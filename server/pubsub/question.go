package pubsub

import (
	"math"
	"slices"
	"strconv"

	"github.com/holdfast/holdfast/protocol"
)

// listBytes bounds the names that a node lists for others.
const listBytes = 8 << 20

// Counts returns the question for the number of subscribers of each name.
func Counts(kind Kind, names [][]byte) (question []byte) {
	return ask("counts", kind, names...)
}

// Names returns the question for the names that have subscribers and match the pattern.
func Names(kind Kind, pattern string) (question []byte) {
	return ask("names", kind, []byte(pattern))
}

func ask(what string, kind Kind, words ...[]byte) []byte {
	all := []protocol.Value{protocol.Bulk(what), protocol.Integer(int64(kind))}
	for _, w := range words {
		all = append(all, protocol.Bulk(string(w)))
	}
	return protocol.AppendValue(nil, protocol.Array(all...))
}

// Answer answers a question about this node's subscriptions.
func (h *Hub) Answer(question string) protocol.Value {
	v, _, err := protocol.DecodeValue(question)
	if err != nil || len(v.Elems) < 2 || v.Elems[1].Num < 0 || v.Elems[1].Num >= int64(kinds) {
		return protocol.Err("malformed question about subscriptions")
	}
	kind, words := Kind(v.Elems[1].Num), v.Elems[2:]
	switch what := v.Elems[0].Str; {
	case what == "counts":
		counts := make([]protocol.Value, len(words))
		for i := range words {
			counts[i] = protocol.Integer(int64(h.Subscribers(kind, words[i].Str)))
		}
		return protocol.Array(counts...)
	case what == "names" && len(words) == 1:
		return h.list(kind, words[0].Str)
	}
	return protocol.Err("unknown question about subscriptions")
}

func (h *Hub) list(kind Kind, pattern string) protocol.Value {
	names, ok := h.Active(kind, pattern)
	if !ok {
		return protocol.Err("the pattern takes too long to match")
	}
	size := 0
	for _, name := range names {
		if size += len(name); size > listBytes {
			return protocol.Err("names of more than " + strconv.Itoa(listBytes) + " bytes: use a pattern that fewer match")
		}
	}
	return protocol.Strings(names...)
}

// Sum adds up the nodes' answers to [Counts] of n names. failed is an answer that is an error.
func Sum(answers []protocol.Value, n int) (counts []int64, failed *protocol.Value) {
	counts = make([]int64, n)
	for i := range answers {
		if answers[i].IsError() || len(answers[i].Elems) != n {
			return nil, &answers[i]
		}
		for j := range counts {
			counts[j] += min(answers[i].Elems[j].Num, math.MaxInt32)
		}
	}
	return counts, nil
}

// Union returns the names in the nodes' answers to [Names], in order and each once. failed is an answer that is an
// error.
func Union(answers []protocol.Value) (names []string, failed *protocol.Value) {
	for i := range answers {
		if answers[i].IsError() {
			return nil, &answers[i]
		}
		for _, name := range answers[i].Elems {
			names = append(names, name.Str)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
