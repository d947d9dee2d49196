package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// streamOf is a snapshot whose first database has one item, given by its bytes.
func streamOf(item string) []byte {
	var b []byte
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion, versionOfCluster, 0, 0, 5)
	// swaps, new keys, sessions, lives, accounts, scripts, settings
	b = append(b, make([]byte, protocol.MaxDatabases+9)...)
	b = append(b, 1)
	b = append(b, item...)
	b = append(b, make([]byte, protocol.MaxDatabases-1+4+11+13)...) // databases, waits, locks, history
	return resum(append(b, make([]byte, sha256.Size)...))
}

// words are saved words.
func words(kind keyspace.Kind, all ...string) string {
	b := []byte{byte(kind), byte(len(all))}
	for _, w := range all {
		b = append(b, byte(len(w)))
		b = append(b, w...)
	}
	return string(b)
}

// TestRestoreOfCollections: words that no collection saves are refused, and nothing else is.
func TestRestoreOfCollections(t *testing.T) {
	const key, tail = "\x01k", "\x00\x01\x00" // no deadline, version 1, no mark
	for item, right := range map[string]bool{
		key + "\x00\x01v\x00" + tail:                                          true,
		key + "\x00\x01v\x03" + tail:                                          false,
		key + "\x00\x01v\x04" + tail:                                          false,
		key + "\x00\x01v\x00\x00\x01\x01\x08\x05\x00\x00\x02":                 true,
		key + "\x00\x01v\x00\x00\x01\x03\x08\x05\x00\x00\x02":                 false,
		key + "\x00\x01v\x01\x00\x01\x01\x08\x05\x00\x00\x02":                 false,
		key + "\x00\x01v\x00\x00\x01\x01\x08\x05\x01\x00\x02":                 false,
		key + words(keyspace.KindHash, "listpack", "f", "v") + tail:           true,
		key + words(keyspace.KindHash, "listpack", "f", "v") + "\x00\x00":     false,
		key + words(keyspace.KindHash, "listpack", "f", "v") + "\x00\x06":     false,
		key + "\x00\x01v\x00\x00\x01\x02\x01":                                 false, // no such account
		key + "\x00\x01v\x00\x00\x01\x04":                                     false,
		key + words(keyspace.KindHash, "listpack", "f") + tail:                false,
		key + words(keyspace.KindHash, "listpack", "f", "v", "f", "w") + tail: false,
		key + words(keyspace.KindHash, "other", "f", "v") + tail:              false,
		key + words(keyspace.KindHash, "listpack") + tail:                     false,
		key + words(keyspace.KindHash) + tail:                                 false,
		key + words(keyspace.KindSet, "intset", "1", "2") + tail:              true,
		key + words(keyspace.KindSet, "intset", "2", "1") + tail:              false,
		key + words(keyspace.KindSet, "intset", "x") + tail:                   false,
		key + words(99, "listpack", "x") + tail:                               false,
		key + "\x81\x02\x02\x01a\x01b" + tail:                                 false,
	} {
		m := newMachine()
		err := m.Restore(bytes.NewReader(streamOf(item)))
		if right {
			require.NoError(t, err, "%q", item)
			require.Equal(t, streamOf(item), dump(t, m))
			continue
		}
		require.ErrorIs(t, err, ErrCorruptSnapshot, "%q", item)
	}
}

// TestRestoreOfLyingCollection: the number of words and the length of a word cost no memory.
func TestRestoreOfLyingCollection(t *testing.T) {
	huge := string(binary.AppendUvarint(nil, 1<<62))
	for _, kind := range []keyspace.Kind{keyspace.KindHash, keyspace.KindSet, keyspace.KindList, keyspace.KindSortedSet} {
		for _, item := range []string{
			"\x01k" + string(rune(kind)) + huge + "\x08listpack",
			"\x01k" + string(rune(kind)) + "\x05\x08listpack" + huge + "x",
			"\x01k" + string(rune(kind)) + huge + strings.Repeat("\x09hashtable", 2),
		} {
			stream := streamOf(item)
			allocated := testing.AllocsPerRun(1, func() { // and would run out of memory
				require.ErrorIs(t, newMachine().Restore(bytes.NewReader(stream)), ErrCorruptSnapshot)
			})
			require.Less(t, allocated, 10_000.0)
		}
	}
}

// TestRestoredCollectionsGoOn: a collection from a snapshot is as good as the first.
func TestRestoredCollectionsGoOn(t *testing.T) {
	d := furnished(t)
	d.m = restored(t, d.m)
	before := d.m.Snapshot()
	want := before.Hash()
	for _, key := range []string{"small hash", "large hash", "integers", "large set"} {
		it := d.m.st.Databases[0].Find(keyspace.Hash(key), key)
		require.False(t, it.OwnedBy(d.m.st.Generation))
	}
	require.Equal(t, want, before.Hash())
	require.Equal(t, dump(t, d.m), dump(t, restored(t, d.m)))
}

// TestOldEntriesKnowOldCommands: a script in an entry of an older release meets the commands of that
// release, and no others.
func TestOldEntriesKnowOldCommands(t *testing.T) {
	d := newDriverOf(t, protocol.OldestEntryVersion)
	script := request(nil, 0, "eval",
		"local r = redis.pcall('object', 'refcount', 'k') redis.call('set', 'said', type(r) == 'table' and r.err or "+
			"'known') return redis.call('get', 'said')", "0")
	old := request(nil, 0, "eval", "return redis.call('incr', 'n')", "0")
	d.do("set", "k", "v")
	for version := byte(1); version < versionKinds; version++ {
		require.Equal(t, `"ERR Unknown Redis command called from script"`, line(d.applyAs(version, script)[0]))
		require.Equal(t, protocol.Integer(int64(version)), d.applyAs(version, old)[0])
		require.Contains(t, line(d.applyAs(version, request(nil, 0, "object|refcount", "k"))[0]), "unknown command")
	}
	require.Equal(t, `"known"`, line(d.applyAs(versionLocks, script)[0]))
}

// TestOldEntriesKnowNoLocks: what came with native locks is unknown in an entry from before.
func TestOldEntriesKnowNoLocks(t *testing.T) {
	d := newDriver(t)
	for _, words := range [][]string{
		{"fence.pass", "f", "1"},
		{"eval", "return redis.call('fence.pass', 'f', 1)", "0"},
		{"native", "1", "0", "0", "lock.acquire", "k", "o", "px", "1000"},
	} {
		for version := byte(1); version < versionLocks; version++ {
			require.Contains(t, strings.ToLower(line(d.applyAs(version, request(nil, 0, words...))[0])), "unknown", words)
		}
	}
	require.Equal(t, command.Zero, d.do("exists", "f"))
	require.Equal(t, command.One, d.do("fence.pass", "f", "1"))
}
