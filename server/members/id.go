package members

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/holdfast/holdfast/protocol/mutant"
)

// idMark stands between the name and the random part of an ID. No name contains the mark.
const idMark = "@"

// NewID mints the ID of a node: the name, '@' and twelve random hexadecimal digits.
func NewID(name string) string {
	var random [6]byte
	if !mutant.KeptID {
		_, _ = rand.Read(random[:]) // never fails
	}
	return name + idMark + hex.EncodeToString(random[:])
}

// ValidName reports whether a node can have the name: 1 to 64 letters, digits, '-', '_' or '.'.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r) {
			return false
		}
	}
	return true
}

// Name returns the name in an ID. The ID of a folder of an early release is the name alone.
func Name(id string) string {
	name, _, _ := strings.Cut(id, idMark)
	return name
}
