package fsm

import (
	"math/bits"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Where keys are many a command is mostly waiting for memory: for its leaf, the slot
// and the string, one after another. So what the next commands will look for
// is touched before they run, for all of them together: the processor then waits for many at once.
// It is a hint and shows nowhere.
const (
	aheadKeys = 32
	// aheadFrom is the number of keys from which on they are in no cache near the processor.
	aheadFrom = 1 << 14
)

// ahead reads an entry some requests ahead of who runs them.
type ahead struct {
	entry protocol.Entry
	body  string
	args  []string
	// left counts the requests that were looked at and have not come yet.
	left   int
	over   bool
	hashes [aheadKeys]uint64
}

// start begins with an entry. It looks ahead only if that can help.
func (a *ahead) start(e protocol.Entry, st *state) {
	a.entry, a.body, a.left, a.over = e, "", 0, true
	for _, d := range st.databases {
		if d.keys.len() >= aheadFrom {
			a.over = false
		}
	}
}

// step is called before each request.
func (a *ahead) step(st *state) {
	if a.left--; a.left >= 0 || a.over {
		return
	}
	a.left = 0
	n, db := 0, 0
	r := protocol.Request{Args: a.args[:0]}
	for a.left < aheadKeys && a.next(&r) {
		a.left++
		if n == 0 {
			db = r.DB
		}
		if i := likelyKey(&r); r.DB == db && i < len(r.Args) {
			a.hashes[n] = hashKey(r.Args[i])
			n++
		}
	}
	a.args = r.Args
	a.left--
	if n > 1 {
		st.databases[db].keys.touch(a.hashes[:n])
	}
}

// next reads the next request, of the next batch if need be. What is corrupt is
// left to who runs the entry.
func (a *ahead) next(r *protocol.Request) bool {
	var err error
	for a.body == "" {
		var b protocol.Batch
		more, err := a.entry.Next(&b)
		if err != nil || !more {
			a.over = true
			return false
		}
		a.body = b.Body
	}
	if a.body, err = protocol.NextRequest(a.body, r); err != nil {
		a.over = true
	}
	return err == nil
}

// likelyKey is which word of a request is its first key, if it has any.
func likelyKey(r *protocol.Request) int {
	if strings.HasPrefix(r.Args[0], "eval") {
		return 3
	}
	return 1
}

// touch reads what [keyspace.find] would read for these hashes, at most
// [aheadKeys], each step for all of them before the next.
//
//go:noinline
func (k *keyspace) touch(hashes []uint64) (sum uint64) {
	var leaves [aheadKeys]*leaf
	var slots [aheadKeys]uint8
	for i, hash := range hashes {
		leaves[i] = k.leafOf(hash)
	}
	for i, hash := range hashes {
		slots[i] = leaves[i].likelySlot(hash)
	}
	for i := range hashes {
		it := &leaves[i].slots[slots[i]]
		sum += uint64(len(it.data)) + it.version
	}
	for i := range hashes {
		if data := leaves[i].slots[slots[i]].data; data != "" {
			sum += uint64(data[0])
		}
	}
	return sum
}

// likelySlot is the first slot with the tag of hash, or else the one that the next item gets.
func (l *leaf) likelySlot(hash uint64) uint8 {
	pattern := (hash & 0xff) * lowBytes
	for word, tags := range &l.tags {
		x := tags ^ pattern
		if m := (x - lowBytes) &^ x & highBytes; m != 0 {
			return min(uint8(word*8+bits.TrailingZeros64(m)/8), l.n, leafSlots-1)
		}
	}
	return min(l.n, leafSlots-1)
}
