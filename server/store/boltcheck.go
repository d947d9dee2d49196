package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// bbolt trusts its files: on a wrong page bbolt panics, in a goroutine of its own
// while the list of free pages is rebuilt, or faults on memory that is not there. And after a
// wrong newest meta page bbolt takes the page before, which silently undoes the last
// transaction. So a file is read through by this code first; bbolt
// opens only what is whole. The format is bbolt's version 2.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltPageHead   = 16 // bytes: id(8) flags(2) count(2) overflow(4)
	boltElement    = 16 // bytes, of a leaf's and of a branch's table
	boltMetaSize   = 64 // bytes, with the checksum
	boltNoFreelist = math.MaxUint64

	boltBranch = 0x01
	boltLeaf   = 0x02
	boltMeta   = 0x04

	boltBucketLeaf = 0x01 // flag of a leaf element that is a bucket
	boltMaxDepth   = 64
)

// boltFile reads a file of bbolt's.
type boltFile struct {
	file      io.ReaderAt
	pageSize  int64
	highWater uint64 // number of the first page that was never used
	root      uint64
	seen      map[uint64]bool // pages in use
	visit     func(bucket string, key, value []byte) error
}

// checkBolt reads everything that counts in the file at path, and calls visit for
// each pair in a bucket.
func checkBolt(fs vfs.FS, path string, visit func(bucket string, key, value []byte) error) error {
	f, err := fs.Open(path, os.O_RDONLY)
	if vfs.IsMissing(err) {
		return &damageError{path: path, reason: "it is missing"}
	}
	if err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("check database: %w", err)
	}
	c := &boltFile{file: f, seen: make(map[uint64]bool), visit: visit}
	err = c.readMetas()
	if err == nil && size < int64(c.highWater)*c.pageSize {
		err = fmt.Errorf("it has %d bytes instead of %d or more", size, int64(c.highWater)*c.pageSize)
	}
	if err == nil {
		err = c.walk("", c.root, nil, nil, 0)
	}
	if err != nil {
		return &damageError{path: path, reason: err.Error()}
	}
	return nil
}

// meta is a meta page. There are two, written by turns, so that a crash while one is
// being written leaves the other. A sector is written whole or not at all: neither is
// ever found broken, but for damage.
type meta struct {
	pageSize                             uint32
	root, freelist, highWater, txid, sum uint64
	right                                bool
}

func parseMeta(b []byte, id uint64) meta {
	order := binary.NativeEndian
	h := fnv.New64a()
	_, _ = h.Write(b[boltPageHead : boltPageHead+boltMetaSize-8])
	m := meta{
		pageSize:  order.Uint32(b[boltPageHead+8:]),
		root:      order.Uint64(b[boltPageHead+16:]),
		freelist:  order.Uint64(b[boltPageHead+32:]),
		highWater: order.Uint64(b[boltPageHead+40:]),
		txid:      order.Uint64(b[boltPageHead+48:]),
		sum:       order.Uint64(b[boltPageHead+56:]),
	}
	m.right = order.Uint64(b) == id && order.Uint16(b[8:]) == boltMeta && m.sum == h.Sum64() &&
		order.Uint32(b[boltPageHead:]) == boltMagic && order.Uint32(b[boltPageHead+4:]) == boltVersion
	return m
}

func (c *boltFile) readMetas() error {
	b := make([]byte, boltPageHead+boltMetaSize)
	if _, err := c.file.ReadAt(b, 0); err != nil {
		return fmt.Errorf("read first page: %w", err)
	}
	one := parseMeta(b, 0)
	if !one.right || one.pageSize < 512 || one.pageSize > 1<<16 || one.pageSize&(one.pageSize-1) != 0 {
		return errors.New("its first meta page is damaged")
	}
	if _, err := c.file.ReadAt(b, int64(one.pageSize)); err != nil {
		return fmt.Errorf("read second page: %w", err)
	}
	two := parseMeta(b, 1)
	if !two.right || two.pageSize != one.pageSize {
		return errors.New("its second meta page is damaged")
	}
	newest := one
	if two.txid > one.txid {
		newest = two
	}
	if newest.freelist != boltNoFreelist {
		return errors.New("it has a list of free pages, which this program never writes")
	}
	c.pageSize, c.highWater, c.root = int64(newest.pageSize), newest.highWater, newest.root
	if c.highWater > 1<<40 {
		return errors.New("its size is impossible")
	}
	return nil
}

// walk reads the tree below page id, whose keys must be at least lo and below
// hi (nil: no bound).
func (c *boltFile) walk(bucket string, id uint64, lo, hi []byte, depth int) error {
	if depth > boltMaxDepth {
		return errors.New("its tree is too deep")
	}
	b, err := c.page(id)
	if err != nil {
		return err
	}
	return c.walkPage(bucket, b, lo, hi, depth)
}

// page reads a page of a tree with all overflow pages.
func (c *boltFile) page(id uint64) ([]byte, error) {
	if id < 2 || id >= c.highWater {
		return nil, fmt.Errorf("page %d is outside", id)
	}
	head := make([]byte, boltPageHead)
	if _, err := c.file.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	pages := 1 + uint64(binary.NativeEndian.Uint32(head[12:]))
	if binary.NativeEndian.Uint64(head) != id || id+pages > c.highWater {
		return nil, fmt.Errorf("the head of page %d is damaged", id)
	}
	for p := id; p < id+pages; p++ {
		if c.seen[p] {
			return nil, fmt.Errorf("page %d is used twice", p)
		}
		c.seen[p] = true
	}
	b := make([]byte, int64(pages)*c.pageSize)
	if _, err := c.file.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return b, nil
}

func (c *boltFile) walkPage(bucket string, b, lo, hi []byte, depth int) error {
	id := binary.NativeEndian.Uint64(b)
	flags, count := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if flags != boltBranch && flags != boltLeaf || flags == boltBranch && count == 0 ||
		boltPageHead+count*boltElement > len(b) {
		return fmt.Errorf("the head of page %d is damaged", id)
	}
	elements := make([]element, count)
	for i := range elements {
		var ok bool
		if elements[i], ok = parseElement(b, i, flags); !ok {
			return fmt.Errorf("element %d of page %d is damaged", i, id)
		}
		key := elements[i].key
		if i > 0 && bytes.Compare(elements[i-1].key, key) >= 0 || lo != nil && bytes.Compare(key, lo) < 0 || hi != nil &&
			bytes.Compare(key, hi) >= 0 {
			return fmt.Errorf("the keys of page %d are out of order", id)
		}
	}
	for i, e := range elements {
		var err error
		switch {
		case flags == boltBranch:
			next := hi
			if i+1 < count {
				next = elements[i+1].key
			}
			err = c.walk(bucket, e.page, e.key, next, depth+1)
		case e.bucket:
			err = c.walkBucket(bucket, e, depth)
		default:
			err = c.visit(bucket, e.key, e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkBucket reads a bucket: the value is the root page's number and, if that is
// 0, the page itself.
func (c *boltFile) walkBucket(parent string, e element, depth int) error {
	if parent != "" || len(e.value) < 16 {
		return fmt.Errorf("bucket %q is damaged", e.key)
	}
	if root := binary.NativeEndian.Uint64(e.value); root != 0 {
		return c.walk(string(e.key), root, nil, nil, depth+1)
	}
	inline := e.value[16:]
	if len(inline) < boltPageHead || binary.NativeEndian.Uint16(inline[8:]) != boltLeaf {
		return fmt.Errorf("bucket %q is damaged", e.key)
	}
	return c.walkPage(string(e.key), inline, nil, nil, depth+1)
}

// element is an element of a page's table.
type element struct {
	key, value []byte
	page       uint64 // of a branch
	bucket     bool
}

func parseElement(b []byte, i int, flags uint16) (e element, ok bool) {
	at := boltPageHead + i*boltElement
	t := b[at : at+boltElement]
	order := binary.NativeEndian
	var position, keySize, valueSize uint64
	if flags == boltBranch {
		position, keySize, e.page = uint64(order.Uint32(t)), uint64(order.Uint32(t[4:])), order.Uint64(t[8:])
	} else {
		kind := order.Uint32(t)
		position, keySize, valueSize = uint64(order.Uint32(t[4:])), uint64(order.Uint32(t[8:])), uint64(order.Uint32(t[12:]))
		if kind > boltBucketLeaf {
			return e, false
		}
		e.bucket = kind == boltBucketLeaf
	}
	from := uint64(at) + position
	if position < boltElement || from+keySize+valueSize > uint64(len(b)) {
		return e, false
	}
	e.key, e.value = b[from:from+keySize], b[from+keySize:from+keySize+valueSize]
	return e, true
}
