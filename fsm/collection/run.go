package collection

// The elements of a list are in runs of bytes, one after the other. Each element has its length before and after it, so
// a run can be read from both ends.
//
//	length, as a varint | the element | length, as a varint backwards

// maxRun is the length of a run in bytes. A longer element has a run of its own.
const maxRun = 2 << 10

// sequence is the bytes of a run, which may be immutable.
type sequence interface{ ~string | ~[]byte }

// varintLen returns the length of the varint of n.
func varintLen(n int) (size int) {
	for size = 1; n >= 1<<7; size++ {
		n >>= 7
	}
	return size
}

// elementLen returns the bytes of an element of n bytes in a run.
func elementLen(n int) int { return n + 2*varintLen(n) }

// putElement writes an element to the beginning of dst, which has at least elementLen bytes.
func putElement(dst []byte, v string) {
	n := len(v)
	size := varintLen(n)
	last := 2*size + n - 1
	copy(dst[size:], v)
	for i := range size {
		b := byte(n>>(7*i)) & 0x7f
		if i < size-1 {
			b |= 0x80
		}
		dst[i], dst[last-i] = b, b
	}
}

func appendElement(dst []byte, v string) []byte {
	at := len(dst)
	size := elementLen(len(v))
	if cap(dst)-at >= size {
		dst = dst[:at+size]
	} else {
		dst = append(dst, make([]byte, size)...)
	}
	putElement(dst[at:], v)
	return dst
}

// first returns the beginning and the end of the first element of a run, without the lengths around it.
func first[S sequence](run S) (from, to int) {
	n, size := 0, 0
	for {
		b := run[size]
		n |= int(b&0x7f) << (7 * size)
		if size++; b < 0x80 {
			return size, size + n
		}
	}
}

// final returns the beginning and the end of the last element of a run.
func final[S sequence](run S) (from, to int) {
	n, size := 0, 0
	for {
		b := run[len(run)-1-size]
		n |= int(b&0x7f) << (7 * size)
		if size++; b < 0x80 {
			return len(run) - size - n, len(run) - size
		}
	}
}

// skip returns the beginning of the element after the first n.
func skip[S sequence](run S, n int) (at int) {
	for range n {
		from, to := first(run[at:])
		at += to + from
	}
	return at
}

// skipBack returns the beginning of the last n elements.
func skipBack[S sequence](run S, n int) (at int) {
	at = len(run)
	for range n {
		from, to := final(run[:at])
		at = from - (at - to)
	}
	return at
}

// seek returns the beginning of element i of a run of count elements.
func seek[S sequence](run S, count, i int) (at int) {
	if i <= count/2 {
		return skip(run, i)
	}
	return skipBack(run, count-i)
}

// buffer is a run at an end of a list. It is changed in place.
type buffer struct {
	mem      []byte
	from, to int32
	count    int32
	// shared is set if another list has the memory, too.
	shared bool
}

func (b *buffer) run() []byte { return b.mem[b.from:b.to] }

// takes reports whether the buffer has room for an element of n bytes.
func (b *buffer) takes(n int) bool { return int(b.to-b.from)+elementLen(n) <= maxRun }

// minBuffer is the least memory of a buffer that is not empty.
const minBuffer = 64

// place makes room for size bytes at the beginning or the end. The memory doubles, so that an element is copied only a
// few times.
func (b *buffer) place(size int, atBegin bool) {
	used := int(b.to - b.from)
	need := used + size
	if !b.shared && (atBegin && int(b.from) >= size || !atBegin && len(b.mem)-int(b.to) >= size) {
		return
	}
	if room := len(b.mem); !b.shared && need <= room-room/4 {
		at := room - used // the free space is on the side of the pushes
		if !atBegin {
			at = 0
		}
		copy(b.mem[at:], b.run())
		b.from, b.to = int32(at), int32(at+used)
		return
	}
	b.move(max(need, min(max(2*need, minBuffer), maxRun)), atBegin)
}

// move copies the elements to new memory of room bytes, with the free space at the beginning or the end.
func (b *buffer) move(room int, atBegin bool) {
	mem := make([]byte, room)
	used, at := int(b.to-b.from), 0
	if atBegin {
		at = room - used
	}
	copy(mem[at:], b.run())
	b.mem, b.from, b.to, b.shared = mem, int32(at), int32(at+used), false
}

func (b *buffer) pushFront(v string) {
	size := elementLen(len(v))
	b.place(size, true)
	b.from -= int32(size)
	putElement(b.mem[b.from:], v)
	b.count++
}

func (b *buffer) pushBack(v string) {
	size := elementLen(len(v))
	b.place(size, false)
	putElement(b.mem[b.to:], v)
	b.to += int32(size)
	b.count++
}

// popFront removes the first element, and returns it. The bytes are valid until the next push.
func (b *buffer) popFront() []byte {
	from, to := first(b.run())
	v := b.run()[from:to]
	b.from += int32(to + from)
	b.shrink()
	return v
}

func (b *buffer) popBack() []byte {
	run := b.run()
	from, to := final(run)
	b.to = b.from + int32(from-(len(run)-to))
	b.shrink()
	return run[from:to]
}

// shrink is called after an element was removed. It takes a smaller buffer if the elements fill little of this one.
func (b *buffer) shrink() {
	b.count--
	used := int(b.to - b.from)
	switch {
	case used == 0:
		*b = buffer{}
	case len(b.mem) > minBuffer && used <= len(b.mem)/8:
		b.move(max(minBuffer, 2*used), b.from > 0)
	}
}

// fill stores the elements of a run in an empty buffer.
func (b *buffer) fill(run string, count int) {
	*b = buffer{mem: []byte(run), to: int32(len(run)), count: int32(count)}
}
