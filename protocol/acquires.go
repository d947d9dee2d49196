package protocol

import "encoding/binary"

// Acquires reports whether body, as [AppendRequest] wrote it, begins with a
// command that takes a key only if nobody has it: SETNX, or SET with NX. It does
// not check what it is given: false is the answer to anything else.
func Acquires(body []byte) bool {
	_, body, ok := cutNumber(body) // database
	words, body, counted := cutNumber(body)
	if !ok || !counted {
		return false
	}
	name, body, ok := cutWord(body)
	switch {
	case !ok:
		return false
	case string(name) == "setnx":
		return true
	case string(name) != "set":
		return false
	}
	for i := uint64(1); i < words; i++ {
		var word []byte
		if word, body, ok = cutWord(body); !ok {
			return false
		}
		if i > 2 && len(word) == 2 && word[0]|0x20 == 'n' && word[1]|0x20 == 'x' {
			return true
		}
	}
	return false
}

func cutNumber(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}

func cutWord(b []byte) (word, rest []byte, ok bool) {
	n, b, ok := cutNumber(b)
	if !ok || n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
