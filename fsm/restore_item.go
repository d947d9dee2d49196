package fsm

import (
	"fmt"
	"math"

	"github.com/holdfast/holdfast/fsm/collection"
	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
)

// versionOfKinds is the first version of the snapshot with other values than strings.
const versionOfKinds = 3

// item reads an item. It is empty after an error.
func (r *snapshotReader) item(st *state) (it keyspace.Item) {
	r.buf = r.buf[:0]
	r.bytes("key")
	if r.stream < versionOfKinds {
		return r.oldString(st)
	}
	switch kind := r.uint("kind"); {
	case r.err != nil:
		return it
	case kind == uint64(keyspace.KindString):
		keyLen := len(r.buf)
		r.bytes("value")
		enc := r.encoding()
		it = keyspace.ItemOf(r.buf, keyLen, enc)
	case kind == uint64(keyspace.KindLock) && r.stream >= versionOfLocks:
		it = r.marker(st)
		r.mark(st, &it)
		return it
	default:
		key := string(r.buf)
		v := r.collection(kind)
		if v == nil {
			return it
		}
		it = keyspace.NewCollection(keyspace.Hash(key), key, v, command.Never, st.Generation)
	}
	r.deadlineAndVersion(st, &it)
	r.mark(st, &it)
	return it
}

// oldString reads the rest of an item of an older version. The key is in r.buf.
func (r *snapshotReader) oldString(st *state) (it keyspace.Item) {
	keyLen := len(r.buf)
	r.bytes("value")
	r.deadlineAndVersion(st, &it)
	next := keyspace.ItemOf(r.buf, keyLen, r.encoding())
	next.DeadlineMillis = it.DeadlineMillis
	next.SetVersion(it.Version())
	return next
}

func (r *snapshotReader) encoding() keyspace.Encoding {
	enc := r.uint("encoding")
	if enc >= uint64(keyspace.EncodingCount) {
		r.fail("encoding")
		return keyspace.EncodingAuto
	}
	return keyspace.Encoding(enc)
}

// collection reads a collection, word by word. The result is nil after an error.
func (r *snapshotReader) collection(kind uint64) keyspace.Collection {
	words := r.uint("number of words")
	if r.err == nil && (kind > math.MaxUint8 || words > math.MaxInt) {
		r.fail("collection")
	}
	if r.err != nil {
		return nil
	}
	v, err := collection.Load(keyspace.Kind(kind), int(words), func() (string, error) {
		word := r.string("word")
		return word, r.err
	})
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %w", ErrCorruptSnapshot, err)
	}
	if r.err != nil {
		return nil
	}
	return v
}
