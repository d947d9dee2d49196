package incarnation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// startBits is where the count of starts begins in an incarnation.
const startBits = 32

// MaxLineage bounds a lineage. A node that was started more often without being admitted starts with its last
// incarnation again: no node has a request of that incarnation.
const MaxLineage = 64

// Lineage is the incarnations from which a node's present one, the last, descends: the last that was proved, and all
// starts since then. Nobody need know of these, but a member may: it admitted one, and the node was killed before it
// knew. Only a folder that was never started has an empty lineage.
type Lineage []uint64

// Current is the present incarnation; 0: there is none.
func (l Lineage) Current() uint64 {
	if len(l) == 0 {
		return 0
	}
	return l[len(l)-1]
}

// Start is the lineage of another start of the node.
func (l Lineage) Start(random uint32) Lineage {
	if len(l) >= MaxLineage {
		return l
	}
	return append(slices.Clone(l), after(l.Current())|uint64(max(random, 1)))
}

// after is an incarnation that no start of a node has, later than a, and that no start descends from: the lower half is
// 0.
func after(a uint64) uint64 { return (a>>startBits + 1) << startBits }

// revoked reports whether an incarnation is one that no start has.
func revoked(a uint64) bool { return a>>startBits != 0 && uint32(a) == 0 }

// Follows reports whether the present incarnation is the one that is known, or descends from it. 0: none is known.
// Requires: the lineage is not empty.
//
// The known one may be older than the lineage reaches, as a member need not hear of every start.
func (l Lineage) Follows(known uint64) bool {
	return known == 0 || slices.Contains(l, known) || older(known, l[0])
}

// older reports whether incarnation a is of an earlier start than b.
func older(a, b uint64) bool { return a>>startBits < b>>startBits }

// Text is an incarnation as logs show it.
func Text(incarnation uint64) string {
	return fmt.Sprintf("%d.%08x", incarnation>>startBits, uint32(incarnation))
}

// Append appends a lineage in its form on disks and between nodes: a byte for the length, and eight for each
// incarnation.
func (l Lineage) Append(dst []byte) []byte {
	dst = append(dst, byte(len(l)))
	for _, each := range l {
		dst = binary.BigEndian.AppendUint64(dst, each)
	}
	return dst
}

var errMalformed = errors.New("the lineage of incarnations is malformed")

// Size is how many bytes follow the first of a lineage. A lineage that is empty or too long is an error.
func Size(first byte) (int, error) {
	if first == 0 || int(first) > MaxLineage {
		return 0, errMalformed
	}
	return 8 * int(first), nil
}

// Parse is the reverse of [Lineage.Append].
func Parse(b []byte) (Lineage, error) {
	if len(b) == 0 {
		return nil, errMalformed
	}
	if size, err := Size(b[0]); err != nil || size != len(b)-1 {
		return nil, errMalformed
	}
	var l Lineage
	for b = b[1:]; len(b) > 0; b = b[8:] {
		l = append(l, binary.BigEndian.Uint64(b))
	}
	return l, nil
}
