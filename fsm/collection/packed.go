package collection

import "strings"

// The limits of small hashes and sets: Redis's defaults of …-max-listpack-entries and
// …-max-listpack-value.
const (
	maxPacked     = 128
	maxPackedWord = 64
)

// packed is words, each behind its length. A word has at most 255 bytes, so a length is one byte.
type packed string

// cut splits off the first word. Requires: p is not empty.
func (p packed) cut() (word string, rest packed) {
	end := 1 + int(p[0])
	return string(p[1:end]), p[end:]
}

// packedSize is the length of words that are packed.
func packedSize(words ...string) (n int) {
	for _, w := range words {
		n += 1 + len(w)
	}
	return n
}

// splice returns p with words in the place of p[from:to], in separate memory.
func (p packed) splice(from, to int, words ...string) packed {
	var b strings.Builder
	b.Grow(len(p) - (to - from) + packedSize(words...))
	b.WriteString(string(p[:from]))
	for _, w := range words {
		b.WriteByte(byte(len(w)))
		b.WriteString(w)
	}
	b.WriteString(string(p[to:]))
	return packed(b.String())
}

// find looks for a word among the words 0, stride, 2*stride, …: from is where its group begins, and to
// where the next group begins. from is len(p) if the word is not there.
func (p packed) find(word string, stride int) (from, to int) {
	for from < len(p) {
		to = from
		for range stride {
			to += 1 + int(p[to])
		}
		if int(p[from]) == len(word) && string(p[from+1:from+1+len(word)]) == word {
			return from, to
		}
		from = to
	}
	return from, from
}
