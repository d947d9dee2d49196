package protocoltest

import (
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
	return protocol.AppendRequest(body, db, words[0], args)
}

// Args are words as arguments.
func Args(words []string) [][]byte {
	args := make([][]byte, len(words))
	for i, word := range words {
		args[i] = []byte(word)
	}
	return args
}
