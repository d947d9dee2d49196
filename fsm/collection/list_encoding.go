package collection

import "strconv"

// Redis 7.2 stores a list in a listpack up to 8 KiB. A list that grows beyond becomes a quicklist, and a
// listpack again when removals have left 4 KiB at most. (Redis also wants one node of the quicklist then.)
const (
	maxListpack    = 8 << 10
	shrunkListpack = maxListpack / 2
	listpackHead   = 7
	// maxOverhead is what an element of a listpack takes at most beside its bytes. Redis looks at the bytes
	// alone before a push, so a listpack exceeds its limit by so much.
	maxOverhead = 7
)

// encodingQuicklist is the encoding of a list that is no listpack.
const encodingQuicklist = "quicklist"

// Encoding is what Redis 7.2 says.
func (l *List) Encoding() string {
	if l.quick {
		return encodingQuicklist
	}
	return encodingPacked
}

// Expect notes that elements of so many bytes will be pushed, before they are.
func (l *List) Expect(bytes int) {
	if listpackHead+l.packed+int64(bytes) > maxListpack {
		l.quick = true
	}
}

// count notes that v has come.
func (l *List) count(v string) {
	l.Expect(len(v))
	l.stored += int64(elementLen(len(v)))
	l.packed += int64(listpackLen(v))
}

// discount notes that v has gone.
func (l *List) discount(v string) {
	l.stored -= int64(elementLen(len(v)))
	l.packed -= int64(listpackLen(v))
}

// shorten notes that elements were removed.
func (l *List) shorten() {
	if l.quick && listpackHead+l.packed <= shrunkListpack {
		l.quick = false
	}
}

// listpackLen is what v takes in a listpack.
func listpackLen(v string) int {
	size := listpackIntegerLen(v)
	if size == 0 {
		switch size = len(v); {
		case size < 1<<6:
			size++
		case size < 1<<12:
			size += 2
		default:
			size += 5
		}
	}
	switch { // the length of the element again, for the way back
	case size <= 127:
		return size + 1
	case size < 16383:
		return size + 2
	case size < 2097151:
		return size + 3
	}
	return size + 4
}

// listpackIntegerLen is what v takes as an integer; 0 if v is none.
func listpackIntegerLen(v string) int {
	if len(v) == 0 || len(v) > 20 || v[0] > '9' || v[len(v)-1] > '9' {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != v {
		return 0
	}
	within := func(bits int) bool { return n>>(bits-1) == 0 || n>>(bits-1) == -1 }
	switch {
	case 0 <= n && n <= 127:
		return 1
	case within(13):
		return 2
	case within(16):
		return 3
	case within(24):
		return 4
	case within(32):
		return 5
	}
	return 9
}

// SavedWords is the number of words of Save.
func (l *List) SavedWords() int { return 1 + l.Len() }

// Save puts the encoding and the elements.
func (l *List) Save(put func(word string) bool) {
	if put(l.Encoding()) {
		l.Ascend(0, put)
	}
}

// list makes the list of the words of Save.
func (l *loader) list() *List {
	made := NewList()
	encoding := l.word()
	for l.more() {
		made.PushBack(l.word())
	}
	// The encoding depends on the order in which the elements came, which is lost. So the word is taken
	// for true, unless no order makes it so.
	switch encoding {
	case encodingPacked:
		made.quick = false
		if listpackHead+made.packed > maxListpack+maxOverhead {
			l.fail("the elements do not fit the encoding")
		}
	case encodingQuicklist:
		made.quick = true
	default:
		l.fail("unknown encoding")
	}
	return made
}
