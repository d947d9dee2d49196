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

// This code checks stable.db before bbolt opens it, since bbolt trusts its files. At a damaged page it panics, possibly
// in a goroutine of its own, or faults on unmapped memory. If the newest meta page is damaged it uses the other, which
// undoes the last transaction, so that a vote would be forgotten.
//
// The format is bbolt's version 2: two meta pages, the newer of which names the root page. A node's values fit into one
// page, so every page of the tree is a leaf, and a branch is refused.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltPageHead   = 16 // bytes of id(8) flags(2) count(2) overflow(4)
	boltElement    = 16 // bytes of a leaf's table: flags(4) position(4) key size(4) value size(4)
	boltMetaSize   = 64 // bytes, with the checksum
	boltNoFreelist = math.MaxUint64

	boltLeaf = 0x02
	boltMeta = 0x04

	boltBucketLeaf = 0x01 // flag of an element that is a bucket
)

// Buckets of raft-boltdb.
const (
	boltLogBucket  = "logs" // empty: the log is in package wal
	boltConfBucket = "conf"
)

// boltFile is a stable.db that is being checked.
type boltFile struct {
	file     io.ReaderAt
	pageSize int64
	unused   uint64 // number of the first page never used
	root     uint64
	seen     map[uint64]bool // pages in use
}

// checkStable checks every page in use of the file at path, and the checksums of the values.
func checkStable(fs vfs.FS, path string) error {
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
	c := &boltFile{file: f, seen: make(map[uint64]bool)}
	err = c.readMetas()
	if err == nil && size < int64(c.unused)*c.pageSize {
		err = fmt.Errorf("it has %d bytes instead of %d or more", size, int64(c.unused)*c.pageSize)
	}
	if err == nil {
		err = c.readBuckets()
	}
	if err != nil {
		return &damageError{path: path, reason: err.Error()}
	}
	return nil
}

// meta is a meta page. Transactions write the two meta pages in turn, so that a crash spares one of them. A sector is
// written completely or not at all, so a crash never leaves a damaged one.
type meta struct {
	pageSize                          uint32
	root, freelist, unused, txid, sum uint64
	valid                             bool
}

func parseMeta(b []byte, id uint64) meta {
	order := binary.NativeEndian
	h := fnv.New64a()
	_, _ = h.Write(b[boltPageHead : boltPageHead+boltMetaSize-8])
	m := meta{
		pageSize: order.Uint32(b[boltPageHead+8:]),
		root:     order.Uint64(b[boltPageHead+16:]),
		freelist: order.Uint64(b[boltPageHead+32:]),
		unused:   order.Uint64(b[boltPageHead+40:]),
		txid:     order.Uint64(b[boltPageHead+48:]),
		sum:      order.Uint64(b[boltPageHead+56:]),
	}
	m.valid = order.Uint64(b) == id && order.Uint16(b[8:]) == boltMeta && m.sum == h.Sum64() &&
		order.Uint32(b[boltPageHead:]) == boltMagic && order.Uint32(b[boltPageHead+4:]) == boltVersion
	return m
}

func (c *boltFile) readMetas() error {
	b := make([]byte, boltPageHead+boltMetaSize)
	if _, err := c.file.ReadAt(b, 0); err != nil {
		return fmt.Errorf("read first page: %w", err)
	}
	one := parseMeta(b, 0)
	if !one.valid || one.pageSize < 512 || one.pageSize > 1<<16 || one.pageSize&(one.pageSize-1) != 0 {
		return errors.New("its first meta page is damaged")
	}
	if _, err := c.file.ReadAt(b, int64(one.pageSize)); err != nil {
		return fmt.Errorf("read second page: %w", err)
	}
	two := parseMeta(b, 1)
	if !two.valid || two.pageSize != one.pageSize {
		return errors.New("its second meta page is damaged")
	}
	newest := one
	if two.txid > one.txid {
		newest = two
	}
	if newest.freelist != boltNoFreelist {
		return errors.New("it has a list of free pages, which this program never writes")
	}
	c.pageSize, c.unused, c.root = int64(newest.pageSize), newest.unused, newest.root
	if c.unused > 1<<40 {
		return errors.New("its size is impossible")
	}
	return nil
}

// readBuckets checks the buckets below the root page, and their values.
func (c *boltFile) readBuckets() error {
	buckets, err := c.page(c.root)
	if err != nil {
		return err
	}
	for _, b := range buckets {
		name := string(b.key)
		if !b.bucket || name != boltConfBucket && name != boltLogBucket {
			return fmt.Errorf("it has a key %q where none belongs", b.key)
		}
		values, err := c.bucket(b)
		if err != nil {
			return err
		}
		for _, v := range values {
			switch {
			case v.bucket || name == boltLogBucket:
				return fmt.Errorf("it has a key %q where none belongs", v.key)
			case string(v.key) == keyCreated:
			default:
				if _, err := unseal(v.key, v.value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// bucket returns the elements of a bucket. Its value has the number of its page, or 0 and the page itself.
func (c *boltFile) bucket(b element) ([]element, error) {
	if len(b.value) >= 16 {
		if id := binary.NativeEndian.Uint64(b.value); id != 0 {
			return c.page(id)
		}
		if inline := b.value[16:]; len(inline) >= boltPageHead {
			return elementsOf(inline)
		}
	}
	return nil, fmt.Errorf("bucket %q is damaged", b.key)
}

// page returns the elements of a page, which may extend over the following pages.
func (c *boltFile) page(id uint64) ([]element, error) {
	if id < 2 || id >= c.unused {
		return nil, fmt.Errorf("page %d is outside", id)
	}
	head := make([]byte, boltPageHead)
	if _, err := c.file.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	pages := 1 + uint64(binary.NativeEndian.Uint32(head[12:]))
	if binary.NativeEndian.Uint64(head) != id || id+pages > c.unused {
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
	return elementsOf(b)
}

// element is an element of a leaf.
type element struct {
	key, value []byte
	bucket     bool
}

// elementsOf parses a leaf.
func elementsOf(b []byte) ([]element, error) {
	order := binary.NativeEndian
	id, count := order.Uint64(b), int(order.Uint16(b[10:]))
	if order.Uint16(b[8:]) != boltLeaf || boltPageHead+count*boltElement > len(b) {
		return nil, fmt.Errorf("the head of page %d is damaged", id)
	}
	elements := make([]element, count)
	for i := range elements {
		at := boltPageHead + i*boltElement
		t := b[at : at+boltElement]
		kind, position := order.Uint32(t), uint64(order.Uint32(t[4:]))
		keySize, valueSize := uint64(order.Uint32(t[8:])), uint64(order.Uint32(t[12:]))
		from := uint64(at) + position
		if kind > boltBucketLeaf || position < boltElement || from+keySize+valueSize > uint64(len(b)) {
			return nil, fmt.Errorf("element %d of page %d is damaged", i, id)
		}
		elements[i] = element{
			key: b[from : from+keySize], value: b[from+keySize : from+keySize+valueSize], bucket: kind == boltBucketLeaf,
		}
		if i > 0 && bytes.Compare(elements[i-1].key, elements[i].key) >= 0 {
			return nil, fmt.Errorf("the keys of page %d are out of order", id)
		}
	}
	return elements, nil
}
