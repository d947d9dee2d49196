package protocol

import (
	"encoding/binary"
	"fmt"
)

// Watch is a watched key: EXEC runs only if nothing has happened to the key since WATCH.
type Watch struct {
	DB  int
	Key string
	// Mark is the state machine's reply to WATCH, which has a meaning for the machine alone.
	Mark uint64
}

// AppendTransaction appends EXEC to a batch's body: the request "exec" with two
// arguments, the watches and the queued requests (themselves a body).
func AppendTransaction(body []byte, db int, watches []Watch, queued []byte) []byte {
	var blob []byte
	for _, w := range watches {
		blob = binary.AppendUvarint(blob, uint64(w.DB))
		blob = appendString(blob, w.Key)
		blob = binary.AppendUvarint(blob, w.Mark)
	}
	return AppendRequest(body, db, "exec", [][]byte{blob, queued})
}

// NextWatch decodes the first watch of blob, an "exec" request's first
// argument, and returns the rest.
func NextWatch(blob string, w *Watch) (rest string, err error) {
	db, blob, ok := uvarint(blob)
	if !ok || db >= MaxDatabases {
		return "", fmt.Errorf("%w: watched database", ErrCorruptEntry)
	}
	if w.Key, blob, ok = str(blob); !ok {
		return "", fmt.Errorf("%w: watched key", ErrCorruptEntry)
	}
	if w.Mark, blob, ok = uvarint(blob); !ok {
		return "", fmt.Errorf("%w: mark of a watched key", ErrCorruptEntry)
	}
	w.DB = int(db)
	return blob, nil
}
