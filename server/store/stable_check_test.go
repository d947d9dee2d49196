package store

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// cell is an element of a page.
type cell struct {
	key, value string
	kind       uint32
	shift      int // added to the position
	more       int // added to the length of the value
}

type boltPage struct {
	id       uint64
	flags    uint16
	count    int // replaces the number of cells, if larger
	overflow uint32
	cells    []cell
}

func (p *boltPage) bytes() []byte {
	order := binary.NativeEndian
	head := order.AppendUint64(nil, p.id)
	head = order.AppendUint16(head, p.flags)
	head = order.AppendUint16(head, uint16(max(p.count, len(p.cells))))
	head = order.AppendUint32(head, p.overflow)
	var data []byte
	for i, c := range p.cells {
		position := uint32((len(p.cells)-i)*boltElement + len(data) + c.shift)
		head = order.AppendUint32(head, c.kind)
		head = order.AppendUint32(head, position)
		head = order.AppendUint32(head, uint32(len(c.key)))
		head = order.AppendUint32(head, uint32(len(c.value)+c.more))
		data = append(append(data, c.key...), c.value...)
	}
	return append(head, data...)
}

type boltMetaPage struct {
	id                       uint64
	flags                    uint16
	magic, version, pageSize uint32
	root, freelist           uint64
	unused, txid             uint64
	spoilt                   uint64 // is added to the checksum
}

func (m *boltMetaPage) bytes() []byte {
	order := binary.NativeEndian
	b := order.AppendUint64(nil, m.id)
	b = order.AppendUint16(b, m.flags)
	b = append(b, make([]byte, boltPageHead-len(b))...)
	b = order.AppendUint32(b, m.magic)
	b = order.AppendUint32(b, m.version)
	b = order.AppendUint32(b, m.pageSize)
	b = order.AppendUint32(b, 0)
	for _, n := range []uint64{m.root, 0, m.freelist, m.unused, m.txid} {
		b = order.AppendUint64(b, n)
	}
	h := fnv.New64a()
	_, _ = h.Write(b[boltPageHead:])
	return order.AppendUint64(b, h.Sum64()+m.spoilt)
}

// database is a database file of bbolt, with changeable parts.
type database struct {
	metas [2]boltMetaPage
	pages map[uint64]*boltPage
	size  func(whole int) int
}

// bucket returns the value of a bucket whose page is root, or whose page is in the value.
func bucket(root uint64, inline *boltPage) string {
	b := binary.NativeEndian.AppendUint64(nil, root)
	b = append(b, make([]byte, 8)...)
	if inline != nil {
		b = append(b, inline.bytes()...)
	}
	return string(b)
}

// newDatabase returns a database that has a bucket with two pages, and an empty one within its element.
func newDatabase() *database {
	d := &database{pages: make(map[uint64]*boltPage), size: func(whole int) int { return whole }}
	for i := range d.metas {
		d.metas[i] = boltMetaPage{
			id: uint64(i), flags: boltMeta, magic: boltMagic, version: boltVersion, pageSize: 512,
			root: 2, freelist: boltNoFreelist, unused: 6, txid: uint64(i),
		}
	}
	sealed := func(key, value string) cell { return cell{key: key, value: string(seal([]byte(key), []byte(value)))} }
	d.pages[2] = &boltPage{id: 2, flags: boltLeaf, cells: []cell{
		{key: "conf", kind: boltBucketLeaf, value: bucket(3, nil)},
		{key: "logs", kind: boltBucketLeaf, value: bucket(0, &boltPage{flags: boltLeaf})},
	}}
	d.pages[3] = &boltPage{id: 3, flags: boltLeaf, overflow: 1, cells: []cell{
		sealed("a", "1"), {key: keyCreated}, sealed("p", strings.Repeat("5", 600)),
	}}
	d.pages[5] = &boltPage{id: 5, flags: boltLeaf, cells: []cell{sealed("x", "not in use")}}
	return d
}

func (d *database) bytes() []byte {
	size, all := int(d.metas[0].pageSize), 0
	last := uint64(0)
	for id, p := range d.pages {
		last = max(last, id+uint64(p.overflow))
		all = max(all, int(last+1)*size)
	}
	b := make([]byte, min(all, 1<<24)+512)
	copy(b[size:], d.metas[1].bytes())
	copy(b, d.metas[0].bytes())
	for id, p := range d.pages {
		copy(b[int(id)*size:], p.bytes())
	}
	return b[:d.size(min(len(b)-512, int(min(d.metas[0].unused, 1<<20))*size))]
}

// TestImpossibleDatabasesAreRefused: what bbolt would not have written is refused, and the error has the place.
func TestImpossibleDatabasesAreRefused(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(d *database)
		want   string // "": it is whole
	}{
		{"none", func(*database) {}, ""},
		{"larger pages", func(d *database) { d.metas[0].pageSize, d.metas[1].pageSize = 1<<16, 1<<16 }, ""},
		{"a longer file", func(d *database) { d.size = func(n int) int { return n + 1 } }, ""},
		{"the first meta page is newer", func(d *database) { d.metas[0].txid, d.metas[1].root = 2, 99 }, ""},
		{"the second meta page is newer", func(d *database) { d.metas[0].root = 99 }, ""},
		{"the newer root", func(d *database) { d.metas[1].root = 99 }, "page 99 is outside"},
		{"a list that was", func(d *database) { d.metas[0].freelist = 4 }, ""},
		{"a list", func(d *database) { d.metas[1].freelist = 4 }, "it has a list of free pages"},

		{"number 1", func(d *database) { d.metas[0].id = 1 }, "first meta page"},
		{"flags 1", func(d *database) { d.metas[0].flags = boltLeaf }, "first meta page"},
		{"magic 1", func(d *database) { d.metas[0].magic++ }, "first meta page"},
		{"version 1", func(d *database) { d.metas[0].version++ }, "first meta page"},
		{"checksum 1", func(d *database) { d.metas[0].spoilt = 1 }, "first meta page"},
		{"number 2", func(d *database) { d.metas[1].id = 0 }, "second meta page"},
		{"flags 2", func(d *database) { d.metas[1].flags = boltLeaf }, "second meta page"},
		{"magic 2", func(d *database) { d.metas[1].magic++ }, "second meta page"},
		{"version 2", func(d *database) { d.metas[1].version++ }, "second meta page"},
		{"checksum 2", func(d *database) { d.metas[1].spoilt = 1 }, "second meta page"},
		{"small pages", func(d *database) { d.metas[0].pageSize, d.metas[1].pageSize = 256, 256 }, "first meta page"},
		{"large pages", func(d *database) { d.metas[0].pageSize, d.metas[1].pageSize = 1<<17, 1<<17 }, "first meta page"},
		{"odd pages", func(d *database) { d.metas[0].pageSize, d.metas[1].pageSize = 1000, 1000 }, "first meta page"},
		{"two sizes", func(d *database) { d.metas[1].pageSize = 1024 }, "second meta page"},
		{"no first page", func(d *database) { d.size = func(int) int { return 60 } }, "read first page"},
		{"no second page", func(d *database) { d.size = func(int) int { return 560 } }, "read second page"},
		{"a shorter file", func(d *database) { d.size = func(n int) int { return n - 1 } }, "3071 bytes instead of 3072"},
		{"a size beyond numbers", func(d *database) { d.metas[1].unused = 1 << 55 }, "its size is impossible"},

		{"page 1", func(d *database) { d.metas[1].root = 1 }, "page 1 is outside"},
		{"page 6", func(d *database) { d.pages[2].cells[0].value = bucket(6, nil) }, "page 6 is outside"},
		{"another page", func(d *database) { d.pages[3].id = 5 }, "the head of page 3 is damaged"},
		{"beyond the end", func(d *database) {
			d.pages[3].overflow = 3
			d.size = func(int) int { return 3072 }
		}, "the head of page 3"},
		{"twice", func(d *database) { d.pages[2].cells[1].value = bucket(3, nil) }, "page 3 is used twice"},
		{"over another", func(d *database) { d.pages[2].overflow = 1 }, "page 3 is used twice"},
		{"a branch", func(d *database) { d.pages[3].flags = 0x01 }, "the head of page 3"},
		{"two kinds", func(d *database) { d.pages[3].flags = boltLeaf | 0x01 }, "the head of page 3"},
		{"no kind", func(d *database) { d.pages[3].flags = 0 }, "the head of page 3"},
		{"an empty leaf", func(d *database) { d.pages[3].cells = nil }, ""},
		{"too many", func(d *database) { d.pages[3].count = 64 }, "the head of page 3"},
		{"another kind", func(d *database) { d.pages[3].cells[1].kind = 2 }, "element 1 of page 3"},
		{"in the table", func(d *database) { d.pages[3].cells[1].shift = -23 }, "element 1 of page 3"},
		{"behind the page", func(d *database) { d.pages[3].cells[1].more = 1000 }, "element 1 of page 3"},
		{"in the wrong order", func(d *database) { d.pages[3].cells[1].key = "A" }, "the keys of page 3"},
		{"the same", func(d *database) { d.pages[3].cells[1].key = "a" }, "the keys of page 3"},
		{"another key's value", func(d *database) { d.pages[3].cells[0].key = "b" }, `the value of "b" is damaged`},
		{"a value of no length", func(d *database) { d.pages[3].cells[0].value = "" }, `the value of "a" is damaged`},

		{"a bucket within another", func(d *database) { d.pages[3].cells[1].kind = boltBucketLeaf }, `a key "created"`},
		{"a bucket of others", func(d *database) { d.pages[2].cells[1].key = "more" }, `a key "more" where none belongs`},
		{"half a number", func(d *database) { d.pages[2].cells[1].value = bucket(3, nil)[:15] }, `bucket "logs"`},
		{"half a page", func(d *database) {
			d.pages[2].cells[1].value = bucket(0, nil) + "12345678\x02\x00\x00\x00\x00\x00\x00"
		}, `bucket "logs"`},
		{"a branch within", func(d *database) {
			d.pages[2].cells[0].value = bucket(0, &boltPage{flags: 0x01})
		}, "the head of page 0 is damaged"},
		{"an entry of a log", func(d *database) {
			d.pages[2].cells[1].value = bucket(0, &boltPage{flags: boltLeaf, cells: []cell{{key: "1"}}})
		}, `a key "1" where none belongs`},
		{"outside", func(d *database) { d.pages[2].cells[0].kind = 0 }, `a key "conf" where none belongs`},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDatabase()
			row.change(d)
			path := filepath.Join(memoryDir(t), "a.db")
			require.NoError(t, os.WriteFile(path, d.bytes(), 0o600))
			err := checkStable(vfs.OS{}, path)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, isDamage(err), "%v", err)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// between calls happens between the check of a database and its opening.
type between struct {
	vfs.OS
	happens func(path string)
}

type betweenFile struct {
	vfs.File
	of between
}

func (b between) Open(name string, flag int) (vfs.File, error) {
	f, err := b.OS.Open(name, flag)
	return betweenFile{f, b}, err
}

func (b between) RemoveAll(name string) error {
	b.happens(name)
	return nil
}

func (f betweenFile) Close() error {
	err := f.File.Close()
	f.of.happens(f.Name())
	return err
}

// TestDatabaseThatBoltCannotOpen: bbolt's error is returned.
func TestDatabaseThatBoltCannotOpen(t *testing.T) {
	folder := func(path string) {
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, os.Mkdir(path, 0o700))
	}
	path := filepath.Join(memoryDir(t), "a.db")
	require.NoError(t, createStable(vfs.OS{}, path))
	_, err := openStable(between{happens: folder}, path)
	require.ErrorContains(t, err, "is a directory")
	require.ErrorContains(t, createStable(between{happens: folder}, filepath.Join(memoryDir(t), "a.db")), "is a directory")
}

// TestDatabaseThatCannotBeWritten: a database that cannot be written is not created.
func TestDatabaseThatCannotBeWritten(t *testing.T) {
	unwritable := func(path string) {
		db, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			conf, err := tx.CreateBucket([]byte(boltConfBucket))
			require.NoError(t, err)
			_, err = conf.CreateBucket([]byte("created")) // in the place of a value
			return err
		}))
		require.NoError(t, db.Close())
	}
	path := filepath.Join(memoryDir(t), "a.db")
	require.ErrorIs(t, createStable(between{happens: unwritable}, path), berrors.ErrIncompatibleValue)
	require.NoFileExists(t, path)
}

// TestDamageUnderAnOpenDatabase: content that has changed on the disk since the opening is not returned, but reported
// as damage.
func TestDamageUnderAnOpenDatabase(t *testing.T) {
	for what, change := range map[string]func(b []byte){
		"a value": func(b []byte) {
			for at := strings.Index(string(b), "precious"); at >= 0; at = strings.Index(string(b), "precious") {
				b[at]++
			}
		},
		"the pages": func(b []byte) {
			for at := 2 * os.Getpagesize(); at < len(b); at += os.Getpagesize() {
				b[at+8] = 0x40 // no kind of page
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(memoryDir(t), "a.db")
			require.NoError(t, createStable(vfs.OS{}, path))
			s, err := openStable(vfs.OS{}, path)
			require.NoError(t, err)
			require.NoError(t, s.Set([]byte("vote"), []byte("precious")))
			long := strings.Repeat("x", 2*os.Getpagesize()) // so that the bucket has a page of its own
			require.NoError(t, s.Set([]byte("long"), []byte(long)))
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			change(b)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt(b, 0)
			require.NoError(t, errors.Join(err, f.Close()))
			_, err = s.Get([]byte("vote"))
			require.True(t, isDamage(err), "%v", err)
			_, err = s.GetUint64([]byte("vote"))
			require.True(t, isDamage(err), "%v", err)
			require.NoError(t, s.Close())
		})
	}
}
