package protocoltest

import "github.com/holdfast/holdfast/protocol"

// AppendRequest is [protocol.AppendRequest] for words that are strings. Requires: words[0], the
// command's name, is in lower case.
func AppendRequest(body []byte, db int, words ...string) []byte {
	args := make([][]byte, len(words)-1)
	for i, word := range words[1:] {
		args[i] = []byte(word)
	}
	return protocol.AppendRequest(body, db, words[0], args)
}
