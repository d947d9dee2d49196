package fsm

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// due says that an item with this hash has this deadline. The second byte of the hash
// is replaced by the item's [sizeClass]: no directory is so large that it would need it,
// and the tags of leaves are the first byte.
type due struct {
	deadlineMillis int64
	hash           uint64
}

const (
	classShift = 8
	classMask  = 0xff << classShift
)

// bytes is what the item counts for.
func (a due) bytes() int64 { return sizeClass(a.hash >> classShift).bytes() }

func (a due) compare(b due) int {
	if a.deadlineMillis != b.deadlineMillis {
		return cmp.Compare(a.deadlineMillis, b.deadlineMillis)
	}
	return cmp.Compare(a.hash, b.hash)
}

func (a due) before(b due) bool {
	return a.deadlineMillis < b.deadlineMillis || a.deadlineMillis == b.deadlineMillis && a.hash < b.hash
}

// calendar is an ordered list of dues, in which one may stand several times. It holds
// numbers only: the garbage collector passes over it, and comparing touches no item.
//
// It is a list of chapters of pages of dues; two levels suffice, as a chapter stands for
// some ten thousand of them. It is not copied for snapshots: what they need of
// it is in the items.
//
// Invariant: all dues of a page lie at or above its low and at or below that of
// the next page; pages and chapters are not empty.
type calendar struct {
	chapters []*chapter
	count    int
}

type chapter struct {
	pages []page
	count int
	bytes int64 // what its items count for
}

type page struct {
	low   due
	n     int
	dues  *[pageDues]due // the first n
	bytes int64          // what their items count for
}

const (
	pageDues     = 64
	chapterPages = 512
)

func (c *calendar) len() int { return c.count }

// first is the earliest.
func (c *calendar) first() (d due, ok bool) {
	if len(c.chapters) == 0 {
		return d, false
	}
	return c.chapters[0].pages[0].dues[0], true
}

// position is where the page is that a due belongs on: the last one whose low is not after it.
func (c *calendar) position(d due) (ch, pg int) {
	ch = len(c.chapters) - 1
	// Most often it is the last one of all.
	if d.before(c.chapters[ch].pages[0].low) {
		ch = max(0, sort.Search(ch, func(i int) bool { return d.before(c.chapters[i].pages[0].low) })-1)
	}
	return ch, c.chapters[ch].position(d)
}

func (ch *chapter) position(d due) int {
	last := len(ch.pages) - 1
	if !d.before(ch.pages[last].low) {
		return last
	}
	low, high := 0, last // pages[low].low <= d, or low is 0; d < pages[high].low
	for high-low > 1 {
		middle := int(uint(low+high) >> 1)
		if d.before(ch.pages[middle].low) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// search is how many dues of the page are before d.
func (p *page) search(d due) int {
	low, high := 0, p.n
	for low < high {
		middle := int(uint(low+high) >> 1)
		if p.dues[middle].before(d) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (c *calendar) add(d due) {
	if len(c.chapters) == 0 {
		c.chapters = []*chapter{{pages: []page{{low: d, dues: new([pageDues]due)}}}}
	}
	i, j := c.position(d)
	if c.chapters[i].pages[j].n == pageDues {
		c.split(i, j)
		i, j = c.position(d)
	}
	ch := c.chapters[i]
	p := &ch.pages[j]
	at := p.n
	if at > 0 && d.before(p.dues[at-1]) {
		at = p.search(d)
		copy(p.dues[at+1:p.n+1], p.dues[at:p.n])
	}
	p.dues[at] = d
	p.n++
	if d.before(p.low) {
		p.low = d
	}
	p.bytes += d.bytes()
	ch.bytes += d.bytes()
	ch.count++
	c.count++
}

// split makes room on page j of chapter i.
func (c *calendar) split(i, j int) {
	ch := c.chapters[i]
	if len(ch.pages) == chapterPages {
		middle := chapterPages / 2
		if i == len(c.chapters)-1 {
			middle = chapterPages * 3 / 4 // most of what comes goes to the end
		}
		next := &chapter{pages: slices.Clone(ch.pages[middle:])}
		clear(ch.pages[middle:])
		ch.pages = ch.pages[:middle]
		for _, p := range next.pages {
			next.count += p.n
			next.bytes += p.bytes
		}
		ch.count -= next.count
		ch.bytes -= next.bytes
		c.chapters = slices.Insert(c.chapters, i+1, next)
		if j >= middle {
			i, j, ch = i+1, j-middle, next
		}
	}
	p := &ch.pages[j]
	middle := pageDues / 2
	if i == len(c.chapters)-1 && j == len(ch.pages)-1 {
		middle = pageDues * 3 / 4
	}
	next := page{low: p.dues[middle], n: p.n - middle, dues: new([pageDues]due)}
	copy(next.dues[:], p.dues[middle:p.n])
	next.bytes = sumDues(next.dues[:next.n])
	p.bytes -= next.bytes
	p.n = middle
	ch.pages = slices.Insert(ch.pages, j+1, next)
}

// remove takes d out once. Requires: it is there.
func (c *calendar) remove(d due) {
	i, j := c.position(d)
	for {
		p := &c.chapters[i].pages[j]
		if at := p.search(d); at < p.n && p.dues[at] == d {
			c.drop(i, j, at, 1)
			return
		}
		// Where it stands more than once some may be on the pages before.
		if j--; j < 0 {
			i--
			j = len(c.chapters[i].pages) - 1
		}
	}
}

// drop takes n dues out of page j of chapter i.
func (c *calendar) drop(i, j, at, n int) {
	ch := c.chapters[i]
	p := &ch.pages[j]
	bytes := sumDues(p.dues[at : at+n])
	copy(p.dues[at:], p.dues[at+n:p.n])
	p.n -= n
	p.bytes -= bytes
	ch.bytes -= bytes
	ch.count -= n
	c.count -= n
	if p.n >= pageDues/4 {
		return
	}
	if p.n == 0 {
		ch.pages = slices.Delete(ch.pages, j, j+1)
	} else if j+1 < len(ch.pages) && p.n+ch.pages[j+1].n <= pageDues/2 {
		ch.join(j)
	} else if j > 0 && p.n+ch.pages[j-1].n <= pageDues/2 {
		ch.join(j - 1)
	}
	if len(ch.pages) < chapterPages/4 {
		c.joinChapters(i)
	}
}

// join puts page j+1 on page j.
func (ch *chapter) join(j int) {
	p, next := &ch.pages[j], &ch.pages[j+1]
	p.n += copy(p.dues[p.n:], next.dues[:next.n])
	p.bytes += next.bytes
	ch.pages = slices.Delete(ch.pages, j+1, j+2)
}

// joinChapters joins chapter i with one beside it if they are short.
func (c *calendar) joinChapters(i int) {
	if len(c.chapters[i].pages) == 0 {
		c.chapters = slices.Delete(c.chapters, i, i+1)
		return
	}
	if i+1 == len(c.chapters) {
		i--
	}
	if i < 0 || len(c.chapters[i].pages)+len(c.chapters[i+1].pages) > chapterPages/2 {
		return
	}
	ch, next := c.chapters[i], c.chapters[i+1]
	ch.pages = append(ch.pages, next.pages...)
	ch.count += next.count
	ch.bytes += next.bytes
	c.chapters = slices.Delete(c.chapters, i+1, i+2)
}

// before counts the dues before nowMillis.
func (c *calendar) before(nowMillis int64) (n int) {
	pivot := due{deadlineMillis: nowMillis}
	for i, ch := range c.chapters {
		if i+1 < len(c.chapters) && c.chapters[i+1].pages[0].low.before(pivot) {
			n += ch.count
			continue
		}
		for j := range ch.pages {
			if p := &ch.pages[j]; p.low.before(pivot) {
				n += p.search(pivot)
			}
		}
		break
	}
	return n
}

// bytesBefore is what the items of the dues before nowMillis count for.
func (c *calendar) bytesBefore(nowMillis int64) (n int64) {
	pivot := due{deadlineMillis: nowMillis}
	for i, ch := range c.chapters {
		if i+1 < len(c.chapters) && c.chapters[i+1].pages[0].low.before(pivot) {
			n += ch.bytes
			continue
		}
		for j := range ch.pages {
			p := &ch.pages[j]
			if !p.low.before(pivot) {
				break
			}
			if last := p.search(pivot); last < p.n {
				return n + sumDues(p.dues[:last])
			}
			n += p.bytes
		}
		break
	}
	return n
}

func sumDues(dues []due) (n int64) {
	for _, d := range dues {
		n += d.bytes()
	}
	return n
}

// next is the first deadline that is not before fromMillis.
func (c *calendar) next(fromMillis int64) (deadlineMillis int64, ok bool) {
	if len(c.chapters) == 0 {
		return 0, false
	}
	pivot := due{deadlineMillis: fromMillis}
	// The page of what is just before the pivot: of dues that equal it some may be there.
	i, j := c.position(due{saturatingAdd(fromMillis, -1), math.MaxUint64})
	ch := c.chapters[i]
	if p := &ch.pages[j]; p.search(pivot) < p.n {
		return p.dues[p.search(pivot)].deadlineMillis, true
	}
	switch {
	case j+1 < len(ch.pages):
		return ch.pages[j+1].dues[0].deadlineMillis, true
	case i+1 < len(c.chapters):
		return c.chapters[i+1].pages[0].dues[0].deadlineMillis, true
	}
	return 0, false
}

// hashesBefore fills the slice with the hashes of the first dues, as far as they
// stand on the first page and are before nowMillis, and returns how many.
func (c *calendar) hashesBefore(nowMillis int64, hashes []uint64) (n int) {
	p := &c.chapters[0].pages[0]
	for n < min(p.n, len(hashes)) && p.dues[n].deadlineMillis < nowMillis {
		hashes[n] = p.dues[n].hash
		n++
	}
	return n
}

// dropBefore takes out all dues before nowMillis.
func (c *calendar) dropBefore(nowMillis int64) {
	pivot := due{deadlineMillis: nowMillis}
	for len(c.chapters) > 0 {
		n := c.chapters[0].pages[0].search(pivot)
		if n == 0 {
			return
		}
		c.drop(0, 0, 0, n)
	}
}
