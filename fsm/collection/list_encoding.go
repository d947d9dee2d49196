package collection

import "strconv"

// Redis 7.2 stores a list as a listpack up to 8 KiB. A list that grows beyond that becomes a quicklist, and a listpack
// again when removals have left at most 4 KiB. (Redis also requires that the quicklist has one node then.)
const (
	maxListpack    = 8 << 10
	shrunkListpack = maxListpack / 2
	listpackHead   = 7
	// maxOverhead bounds the bytes of a listpack element beyond its own. Before a push Redis checks only the latter, so a
	// listpack exceeds its limit by as much.
	maxOverhead = 7
)

// encodingQuicklist is the encoding of a list that is no listpack.
const encodingQuicklist = "quicklist"

// Encoding returns the encoding in Redis 7.2.
func (l *List) Encoding() string {
	if l.quick {
		return encodingQuicklist
	}
	return encodingPacked
}

// Expect announces elements of this number of bytes before they are pushed.
func (l *List) Expect(bytes int) {
	if listpackHead+l.packed+int64(bytes) > maxListpack {
		l.quick = true
	}
}

// count records that v was added.
func (l *List) count(v string) {
	l.Expect(len(v))
	l.stored += int64(elementLen(len(v)))
	l.packed += int64(listpackLen(v))
}

// discount records that v was removed.
func (l *List) discount(v string) {
	l.stored -= int64(elementLen(len(v)))
	l.packed -= int64(listpackLen(v))
}

// shorten records that elements were removed.
func (l *List) shorten() {
	if l.quick && listpackHead+l.packed <= shrunkListpack {
		l.quick = false
	}
}

// listpackLen returns the bytes of v in a listpack.
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
	switch { // the length of the element again, for reading backwards
	case size <= 127:
		return size + 1
	case size < 16383:
		return size + 2
	case size < 2097151:
		return size + 3
	}
	return size + 4
}

// listpackIntegerLen returns the bytes of v as an integer, or 0 if v is none.
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

// SavedWords returns the number of words of Save.
func (l *List) SavedWords() int { return 1 + l.Len() }

// Save puts the encoding and the elements.
func (l *List) Save(put func(word string) bool) {
	if put(l.Encoding()) {
		l.Ascend(0, put)
	}
}

// list returns the list of the words of Save.
func (l *loader) list() *List {
	made := NewList()
	encoding := l.word()
	for l.more() {
		made.PushBack(l.word())
	}
	// The encoding depends on the order of the pushes, which is lost. So any word is accepted that some order explains.
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
