package store

import (
	"crypto/rand"
	"encoding/binary"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/holdfast/holdfast/server/incarnation"
)

// readLineage reads from which incarnations the next one descends; none: the folder is new. A release without lineages
// counts on from the last incarnation, and each of its counts was as good as proved.
func readLineage(s raft.StableStore) (incarnation.Lineage, error) {
	epoch, err := s.GetUint64([]byte(keyEpoch))
	if err != nil || epoch == 0 {
		return nil, err
	}
	b, err := s.Get([]byte(keyLineage))
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return incarnation.Lineage{epoch}, nil
	}
	l, err := incarnation.Parse(b)
	if err == nil && !slices.Contains(l, epoch) {
		l = incarnation.Lineage{epoch}.Start(1)[1:]
	}
	return l, err
}

// startIncarnation makes the incarnation of this Open durable: the lineage first, so that a crash in between leaves an
// epoch that the lineage has.
func (f *folder) startIncarnation() error {
	random := f.Random
	if random == nil {
		random = randomNumber
	}
	f.lineage = f.lineage.Start(random())
	if err := f.stable.Set([]byte(keyLineage), f.lineage.Append(nil)); err != nil {
		return err
	}
	return f.stable.SetUint64([]byte(keyEpoch), f.lineage.Current())
}

func randomNumber() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, by the documentation
	return binary.BigEndian.Uint32(b[:])
}

// Proved notes that this Open's incarnation was proved: the next one descends from it alone.
func (s *Store) Proved() error {
	proved := incarnation.Lineage{s.Lineage.Current()}
	return s.Stable.Set([]byte(keyLineage), proved.Append(nil))
}
