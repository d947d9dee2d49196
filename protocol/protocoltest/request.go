package protocoltest

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/holdfast/holdfast/protocol"
)

// AppendRequest is [protocol.AppendRequest] for words that are strings. Requires: words[0], the
// command's name, is in lower case. Benchmarks call it, so no word is copied on the way.
func AppendRequest(body []byte, db int, words ...string) []byte {
	args := make([][]byte, 0, 16)
	for _, word := range words[1:] {
		args = append(args, unsafe.Slice(unsafe.StringData(word), len(word)))
	}
	return protocol.AppendRequest(body, protocol.Head{DB: db}, words[0], args)
}

// Hints are what the frontend says of a batch with a single command. Requires: words[0] is in lower case.
func Hints(words ...string) protocol.Hints {
	name, isNX := words[0], func(word string) bool { return strings.EqualFold(word, "nx") }
	if name == "lock-command" && len(words) > 4 {
		name = words[4]
	}
	switch {
	case name == "setnx", name == "set" && slices.ContainsFunc(words, isNX):
		return protocol.CreateIfAbsent
	case name == "wait-for-key", strings.HasPrefix(name, "lock.acquire"):
		return protocol.MayWait
	}
	return 0
}

// Args are words as arguments.
func Args(words []string) [][]byte {
	args := make([][]byte, len(words))
	for i, word := range words {
		args[i] = []byte(word)
	}
	return args
}
