package protocol

import (
	"encoding/binary"
	"fmt"
)

// Watch is what WATCH saw of a key: EXEC runs only while nothing has happened to
// it since.
type Watch struct {
	DB  int
	Key string
	// Mark is what the state machine answered to WATCH. It alone knows what it means.
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
