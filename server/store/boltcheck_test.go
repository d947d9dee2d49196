package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfast/holdfast/server/store/internal/record"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// cell is an element of a page: of a branch if page is not 0.
type cell struct {
	key, value string
	page       uint64
	kind       uint32
	shift      int // of the position
	more       int // bytes of the value than there are
}

type boltPage struct {
	id       uint64
	flags    uint16
	count    int // instead of how many cells there are
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
		if c.page != 0 {
			head = order.AppendUint32(head, position)
			head = order.AppendUint32(head, uint32(len(c.key)))
			head = order.AppendUint64(head, c.page)
		} else {
			head = order.AppendUint32(head, c.kind)
			head = order.AppendUint32(head, position)
			head = order.AppendUint32(head, uint32(len(c.key)))
			head = order.AppendUint32(head, uint32(len(c.value)+c.more))
		}
		data = append(append(data, c.key...), c.value...)
	}
	return append(head, data...)
}

type boltMetaPage struct {
	id                       uint64
	flags                    uint16
	magic, version, pageSize uint32
	root, freelist           uint64
	highWater, txid          uint64
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
	for _, n := range []uint64{m.root, 0, m.freelist, m.highWater, m.txid} {
		b = order.AppendUint64(b, n)
	}
	h := fnv.New64a()
	_, _ = h.Write(b[boltPageHead:])
	return order.AppendUint64(b, h.Sum64()+m.spoilt)
}

// database is a file of bbolt's, piece by piece.
type database struct {
	metas [2]boltMetaPage
	pages map[uint64]*boltPage
	size  func(whole int) int
}

// bucket is the value of a bucket whose page is elsewhere, or in the value.
func bucket(root uint64, inline *boltPage) string {
	b := binary.NativeEndian.AppendUint64(nil, root)
	b = append(b, make([]byte, 8)...)
	if inline != nil {
		b = append(b, inline.bytes()...)
	}
	return string(b)
}

// newDatabase has a bucket within its element, and one of three levels.
func newDatabase() *database {
	d := &database{pages: make(map[uint64]*boltPage), size: func(whole int) int { return whole }}
	for i := range d.metas {
		d.metas[i] = boltMetaPage{
			id: uint64(i), flags: boltMeta, magic: boltMagic, version: boltVersion, pageSize: 512,
			root: 2, freelist: boltNoFreelist, highWater: 9, txid: uint64(i),
		}
	}
	inline := &boltPage{flags: boltLeaf, cells: []cell{{key: "k", value: "v"}}}
	for id, cells := range map[uint64][]cell{
		2: {
			{key: "conf", kind: boltBucketLeaf, value: bucket(0, inline)},
			{key: "logs", kind: boltBucketLeaf, value: bucket(3, nil)},
		},
		3: {{key: "a", page: 4}, {key: "m", page: 5}},
		4: {{key: "a", value: "1"}, {key: "b", value: "2"}},
		5: {{key: "m", page: 6}, {key: "p", page: 7}},
		6: {{key: "m", value: "3"}, {key: "n", value: "4"}},
		7: {{key: "p", value: strings.Repeat("5", 600)}},
	} {
		d.pages[id] = &boltPage{id: id, flags: boltLeaf, cells: cells}
	}
	d.pages[3].flags, d.pages[5].flags, d.pages[7].overflow = boltBranch, boltBranch, 1
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
	return b[:d.size(min(len(b)-512, int(min(d.metas[0].highWater, 1<<20))*size))]
}

// visited are all pairs of a database.
func (d *database) visited(t *testing.T) (pairs []string, err error) {
	path := filepath.Join(memoryDir(t), "a.db")
	require.NoError(t, os.WriteFile(path, d.bytes(), 0o600))
	err = checkBolt(vfs.OS{}, path, func(bucket string, key, value []byte) error {
		if bucket == "" {
			return errors.New("a stray pair")
		}
		pairs = append(pairs, fmt.Sprintf("%s/%s=%.3s", bucket, key, value))
		return nil
	})
	return pairs, err
}

// chain makes the bucket of entries so many branches deep.
func (d *database) chain(branches uint64) {
	for id := range branches {
		d.pages[3+id] = &boltPage{id: 3 + id, flags: boltBranch, cells: []cell{{key: "a", page: 4 + id}}}
	}
	d.pages[3+branches] = &boltPage{id: 3 + branches, flags: boltLeaf, cells: []cell{{key: "a", value: "1"}}}
	d.metas[0].highWater, d.metas[1].highWater = 4+branches, 4+branches
}

// TestImpossibleDatabasesAreRefused: what bbolt would not have written is refused, and it is said where it is.
func TestImpossibleDatabasesAreRefused(t *testing.T) {
	whole := []string{"conf/k=v", "logs/a=1", "logs/b=2", "logs/m=3", "logs/n=4", "logs/p=555"}
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
		{"a shorter file", func(d *database) { d.size = func(n int) int { return n - 1 } }, "4607 bytes instead of 4608"},
		{"a size beyond numbers", func(d *database) { d.metas[1].highWater = 1 << 55 }, "its size is impossible"},

		{"page 1", func(d *database) { d.metas[1].root = 1 }, "page 1 is outside"},
		{"page 9", func(d *database) { d.pages[5].cells[1].page = 9 }, "page 9 is outside"},
		{"another page", func(d *database) { d.pages[4].id = 6 }, "the head of page 4 is damaged"},
		{"beyond the end", func(d *database) {
			d.pages[7].overflow = 2
			d.size = func(int) int { return 4608 }
		}, "the head of page 7"},
		{"twice", func(d *database) { d.pages[5].cells[0].page = 4 }, "page 4 is used twice"},
		{"over another", func(d *database) { d.pages[6].overflow = 1 }, "page 7 is used twice"},
		{"two kinds", func(d *database) { d.pages[4].flags = boltLeaf | boltBranch }, "the head of page 4"},
		{"no kind", func(d *database) { d.pages[4].flags = 0 }, "the head of page 4"},
		{"an empty leaf", func(d *database) { d.pages[4].cells = nil }, "-"}, // which is whole, too
		{"an empty branch", func(d *database) { d.pages[5].cells = nil }, "the head of page 5"},
		{"too many", func(d *database) { d.pages[4].count = 32 }, "the head of page 4"},
		{"another kind", func(d *database) { d.pages[4].cells[1].kind = 2 }, "element 1 of page 4"},
		{"in the table", func(d *database) { d.pages[4].cells[1].shift = -3 }, "element 1 of page 4"},
		{"behind the page", func(d *database) { d.pages[4].cells[1].more = 500 }, "element 1 of page 4"},
		{"in the wrong order", func(d *database) { d.pages[4].cells[1].key = "A" }, "the keys of page 4"},
		{"the same", func(d *database) { d.pages[4].cells[1].key = "a" }, "the keys of page 4"},
		{"before its branch", func(d *database) { d.pages[4].cells[0].key = "A" }, "the keys of page 4"},
		{"behind its branch", func(d *database) { d.pages[4].cells[1].key = "m" }, "the keys of page 4"},
		{"behind the one above", func(d *database) {
			d.pages[3].cells = append(d.pages[3].cells, cell{key: "o", page: 8})
		}, "the keys of page 5"},
		{"a last leaf of others", func(d *database) {
			d.pages[3].cells = append(d.pages[3].cells, cell{key: "x", page: 8})
			d.pages[7] = &boltPage{id: 7, flags: boltLeaf, overflow: 1, cells: []cell{{key: "x"}}}
		}, "the keys of page 7"},

		{"within another", func(d *database) { d.pages[4].cells[0].kind = boltBucketLeaf }, `bucket "a"`},
		{"a whole one within another", func(d *database) {
			d.pages[4].cells[1] = cell{key: "b", kind: boltBucketLeaf, value: bucket(8, nil)}
		}, `bucket "b" is damaged`},
		{"half a number", func(d *database) { d.pages[2].cells[1].value = bucket(3, nil)[:15] }, `bucket "logs"`},
		{"half a page", func(d *database) {
			d.pages[2].cells[1].value = bucket(0, nil) + "12345678\x02\x00\x00\x00\x00\x00\x00"
		}, `bucket "logs"`},
		{"a branch within", func(d *database) {
			d.pages[2].cells[0].value = bucket(0, &boltPage{flags: boltBranch, cells: []cell{{key: "k", page: 8}}})
		}, `bucket "conf" is damaged`},
		{"outside", func(d *database) { d.pages[2].cells[0].kind = 0 }, "a stray pair"},
		{"deep", func(d *database) { d.chain(62) }, "-"},
		{"too deep", func(d *database) { d.chain(64) }, "too deep"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDatabase()
			row.change(d)
			pairs, err := d.visited(t)
			if row.want == "" || row.want == "-" {
				require.NoError(t, err)
				if row.want == "" {
					require.Equal(t, whole, pairs)
				}
				return
			}
			require.True(t, isDamage(err), "%v", err)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// between does something between the check of a database and its opening.
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
	if err != nil || flag&os.O_RDWR == 0 {
		return f, err
	}
	return betweenFile{f, b}, nil
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

// TestDatabaseThatBoltCannotOpen: its error is told.
func TestDatabaseThatBoltCannotOpen(t *testing.T) {
	folder := func(path string) {
		require.NoError(t, os.RemoveAll(path))
		require.NoError(t, os.Mkdir(path, 0o700))
	}
	path := filepath.Join(memoryDir(t), "a.db")
	require.NoError(t, createBolt(vfs.OS{}, path))
	_, err := openBoltLog(between{happens: folder}, path)
	require.ErrorContains(t, err, "is a directory")
	require.ErrorContains(t, createBolt(between{happens: folder}, filepath.Join(memoryDir(t), "a.db")), "is a directory")
}

// TestDatabaseThatCannotBeWritten is not made.
func TestDatabaseThatCannotBeWritten(t *testing.T) {
	unwritable := func(path string) {
		db, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			conf, err := tx.CreateBucket([]byte(boltConfBucket))
			require.NoError(t, err)
			_, err = conf.CreateBucket([]byte("created")) // where the value belongs
			return err
		}))
		require.NoError(t, db.Close())
	}
	path := filepath.Join(memoryDir(t), "a.db")
	require.ErrorIs(t, createBolt(between{happens: unwritable}, path), berrors.ErrIncompatibleValue)
	require.NoFileExists(t, path)
}

// TestDamageUnderAnOpenDatabase: what has changed on the disk since is not handed out.
func TestDamageUnderAnOpenDatabase(t *testing.T) {
	entry := &raft.Log{Index: 1, Data: []byte("precious")}
	for what, change := range map[string]func(b []byte){
		"a value": func(b []byte) {
			for _, value := range []string{"precious", string(record.Append(nil, entry))} {
				for at := strings.Index(string(b), value); at >= 0; at = strings.Index(string(b), value) {
					b[at+len(value)/2]++
				}
			}
		},
		"the pages": func(b []byte) {
			for at := 2 * os.Getpagesize(); at < len(b); at += os.Getpagesize() {
				b[at+8] = 0x40 // no kind of page
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			path, logPath := filepath.Join(memoryDir(t), "a.db"), filepath.Join(memoryDir(t), "b.db")
			require.NoError(t, createBolt(vfs.OS{}, path))
			require.NoError(t, createBolt(vfs.OS{}, logPath))
			s, err := openStable(vfs.OS{}, path)
			require.NoError(t, err)
			require.NoError(t, s.Set([]byte("vote"), []byte("precious")))
			long := strings.Repeat("x", 2*os.Getpagesize()) // so that the bucket has a page of its own
			require.NoError(t, s.Set([]byte("long"), []byte(long)))
			l, err := openBoltLog(vfs.OS{}, logPath)
			require.NoError(t, err)
			require.NoError(t, l.StoreLog(entry))
			for _, path := range []string{path, logPath} {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				change(b)
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				require.NoError(t, err)
				_, err = f.WriteAt(b, 0)
				require.NoError(t, errors.Join(err, f.Close()))
			}
			_, err = s.Get([]byte("vote"))
			require.True(t, isDamage(err), "%v", err)
			_, err = s.GetUint64([]byte("vote"))
			require.True(t, isDamage(err), "%v", err)
			require.True(t, isDamage(l.GetLog(1, &raft.Log{})))
			require.NoError(t, errors.Join(s.Close(), l.Close()))
		})
	}
}
