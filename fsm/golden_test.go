package fsm

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// goldenStep is the number of entries between two hashes.
const goldenStep = 1000

// TestGoldenLog: a log of all commands with random options keeps its meaning, for each version. Each hash covers the
// states after all entries so far. golden.log.gz never changes. Until the newest version is released, -rewrite
// recomputes its hashes.
func TestGoldenLog(t *testing.T) {
	entries := readGoldenLog(t, "testdata/golden.log.gz")
	for version := byte(protocol.OldestEntryVersion); version <= protocol.EntryVersion; version++ {
		golden := fmt.Sprintf("testdata/golden-v%d.txt", version)
		got := goldenHashes(t, entries, version)
		if protocoltest.Rewriting() && version == protocol.EntryVersion {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), got, `entries of version %d mean something else than they did: nodes of two builds would
differ for good. If a release has the version, let the change ask for a later version of the entry (protocol/DESIGN.md,
Versions). If none has it yet, as the CHANGELOG says, 'make rewrite' takes the new meaning.`, version)
	}
}

// goldenHashes applies the entries with a version, after an empty entry of the oldest version.
func goldenHashes(t *testing.T, entries [][]byte, version byte) string {
	t.Helper()
	var hashes bytes.Buffer
	m, chain := newMachine(), sha256.New()
	empty := protocol.NewEntry(nil, protocol.OldestEntryVersion, 0, 0, protocol.EntryLimits{})
	require.NoError(t, m.Apply(empty.Bytes(), clientless{}))
	for i, entry := range entries {
		entry[0] = version
		require.NoError(t, m.Apply(entry, clientless{}))
		fmt.Fprintln(chain, m.Hash())
		if (i+1)%goldenStep == 0 {
			fmt.Fprintln(&hashes, i+1, hex.EncodeToString(chain.Sum(nil)))
		}
	}
	return hashes.String()
}

func readGoldenLog(t *testing.T, name string) [][]byte {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	return unpacked(t, f)
}

// unpacked returns the entries of a packed log.
func unpacked(t testing.TB, packed io.Reader) (entries [][]byte) {
	t.Helper()
	z, err := gzip.NewReader(packed)
	require.NoError(t, err)
	var raw bytes.Buffer
	_, err = raw.ReadFrom(z)
	require.NoError(t, err)
	for raw.Len() > 0 {
		size, err := binary.ReadUvarint(&raw)
		require.NoError(t, err)
		entries = append(entries, bytes.Clone(raw.Next(int(size))))
	}
	return entries
}
