package protocol

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// The log entry, version 1:
//
//	byte    version
//	varint  stamp        the leader's instant, milliseconds of cluster time
//	varint  wall offset  wall clock minus stamp, milliseconds
//	uvarint memory limit the leader's --max-memory in bytes; 0: none; 1<<63 more while disks are nearly full
//	uvarint script steps the leader's --max-script-steps; 0: the default of fsm
//	batch*  until the end
//
//	batch:
//	bytes   node         name of the node that numbered the batch; empty: the body is a secret of the leader
//	uvarint epoch        of that node's session
//	uvarint low          below it nothing of this session is retried any more
//	uvarint seq          the batch's number in its session
//	bytes   body         request*
//
//	request:
//	quota?               of the user who sent the request, if the user has one: see request.go
//	uvarint database     16 more if a connection follows, 32 more if a user and rights follow
//	uvarint connection   the node's number of the client's connection
//	bytes   user         who sent the script or the lock command; none if the user may do everything
//	bytes   rights       what the user may do, of a command whose Reach is judged by rights: see fsm/rights
//	uvarint number of arguments
//	bytes*  arguments    the first is the command's name in lower case
//
// where bytes = uvarint length, then that many bytes. A pipeline of one client
// is one batch; many batches of many clients make one entry.

// EntryVersion is the newest version of the entry format that this release writes. It also covers what the meaning of
// an entry depends on: the script engine, and the budgets of fsm. A node applies older entries as the releases that
// wrote them did. At an entry of a higher version it stops with a clear message.
const EntryVersion = 1

// OldestEntryVersion is the oldest version that this release writes, for clusters with members of earlier releases.
const OldestEntryVersion = 1

// MaxDatabases is the number of databases that SELECT offers.
const MaxDatabases = 16

// ErrCorruptEntry is returned for bytes that are not a log entry.
var ErrCorruptEntry = errors.New("corrupt log entry")

// Incarnation is one run of a node's process. Epoch grows with every start, which distinguishes batches of earlier
// incarnations.
type Incarnation struct {
	Node  string
	Epoch uint64
}

// Compare orders incarnations by node and epoch.
func (i Incarnation) Compare(o Incarnation) int {
	if c := strings.Compare(i.Node, o.Node); c != 0 {
		return c
	}
	return cmp.Compare(i.Epoch, o.Epoch)
}

// Batch is the unit that is applied at most once.
type Batch struct {
	Origin Incarnation
	// Low is the number below which no batch of this session will be proposed any more.
	Low uint64
	Seq uint64
	// Body has the requests: see [NextRequest].
	Body string
}

// Request is one command in a batch.
type Request struct {
	DB int
	// Conn is the number of the connection that sent the command at the batch's node, or 0 if the log does not have it.
	Conn uint64
	// Quota is that of the user who sent the command, if the user has one.
	Quota Quota
	// User is the user of a script or of a lock command, or empty for one who may do everything.
	User string
	// Rights has the rules of what the user may do: see [Head] and fsm/rights. It is empty for everything.
	Rights string
	// Args has the command's words; Args[0] is the name in lower case. The words share memory with the entry. A caller
	// that keeps a word beyond Apply must clone it.
	Args []string
}

// fromConn and withUser are added to a request's database if a connection, or a user and rights follow.
const (
	fromConn = MaxDatabases
	withUser = 2 * MaxDatabases
)

// NextRequest decodes the first request of body into r, reusing r.Args, and returns the rest. It
// allocates only to grow r.Args.
func NextRequest(body string, r *Request) (rest string, err error) {
	db, body, ok := uvarint(body)
	if r.Quota = (Quota{}); ok && db == ofUser {
		if r.Quota, body, ok = cutQuota(body); !ok {
			return "", fmt.Errorf("%w: quota", ErrCorruptEntry)
		}
		db, body, ok = uvarint(body)
	}
	if !ok || db >= 4*MaxDatabases {
		return "", fmt.Errorf("%w: database", ErrCorruptEntry)
	}
	r.Conn, r.User, r.Rights = 0, "", ""
	if db >= fromConn {
		if db&fromConn != 0 {
			if r.Conn, body, ok = uvarint(body); !ok {
				return "", fmt.Errorf("%w: connection", ErrCorruptEntry)
			}
		}
		if db&withUser != 0 {
			if r.User, body, ok = str(body); ok && len(r.User) <= MaxUser {
				r.Rights, body, ok = str(body)
			}
			if !ok || len(r.User) > MaxUser {
				return "", fmt.Errorf("%w: user", ErrCorruptEntry)
			}
		}
		db %= MaxDatabases
	}
	n, body, ok := uvarint(body)
	// Every argument has at least a length byte, which bounds the cost of a false count.
	if !ok || n == 0 || n > uint64(len(body)) {
		return "", fmt.Errorf("%w: argument count", ErrCorruptEntry)
	}
	r.DB, r.Args = int(db), r.Args[:0]
	for range n {
		var a string
		if body != "" && body[0] < 0x80 && int(body[0]) < len(body) {
			end := 1 + int(body[0]) // a fast path for short words, which almost all are
			a, body = body[1:end], body[end:]
		} else if a, body, ok = str(body); !ok {
			return "", fmt.Errorf("%w: argument", ErrCorruptEntry)
		}
		r.Args = append(r.Args, a)
	}
	return body, nil
}

// EntryWriter builds one entry.
type EntryWriter struct{ buf []byte }

// EntryLimits has limits that the leader sets for the whole cluster in each entry.
type EntryLimits struct {
	MemoryBytes uint64 // bounds the memory of the state, at most maxMemoryBytes; 0: no limit
	DiskFull    bool   // the disks of the cluster have no room for a state that grows
	ScriptSteps uint64 // bounds the steps of a script; 0: the default of fsm
}

// maxMemoryBytes is the largest memory limit of an entry.
const maxMemoryBytes = 1<<63 - 1

// ScriptStepsFlag is the flag that sets [EntryLimits.ScriptSteps]. The errors of scripts over their budget name it.
const ScriptStepsFlag = "max-script-steps"

// NewEntry starts an entry of a version that is at least [OldestEntryVersion]. stampMillis is cluster time,
// wallOffsetMillis Unix time minus cluster time. It reuses buf, which may be nil.
func NewEntry(buf []byte, version byte, stampMillis, wallOffsetMillis int64, limits EntryLimits) *EntryWriter {
	buf = append(buf[:0], version)
	buf = binary.AppendVarint(buf, stampMillis)
	buf = binary.AppendVarint(buf, wallOffsetMillis)
	memory := min(limits.MemoryBytes, maxMemoryBytes)
	if limits.DiskFull {
		memory |= maxMemoryBytes + 1
	}
	buf = binary.AppendUvarint(buf, memory)
	return &EntryWriter{buf: binary.AppendUvarint(buf, limits.ScriptSteps)}
}

// Add appends a batch.
func (w *EntryWriter) Add(o Incarnation, low, seq uint64, body []byte) {
	w.buf = AppendBatch(w.buf, o, low, seq, body)
}

// AddBatches appends batches made by [AppendBatch].
func (w *EntryWriter) AddBatches(batches []byte) { w.buf = append(w.buf, batches...) }

// AddSecret appends a text that no client can guess, for the ids of sessions.
func (w *EntryWriter) AddSecret(secret string) { w.Add(Incarnation{}, 0, 0, []byte(secret)) }

// AppendBatch appends one batch of an entry to dst.
func AppendBatch(dst []byte, o Incarnation, low, seq uint64, body []byte) []byte {
	dst = appendString(dst, o.Node)
	dst = binary.AppendUvarint(dst, o.Epoch)
	dst = binary.AppendUvarint(dst, low)
	dst = binary.AppendUvarint(dst, seq)
	dst = binary.AppendUvarint(dst, uint64(len(body)))
	return append(dst, body...)
}

// Len returns the present size in bytes.
func (w *EntryWriter) Len() int { return len(w.buf) }

// Bytes returns the entry. The writer must not be used afterwards.
func (w *EntryWriter) Bytes() []byte { return w.buf }

// Entry is the head of a decoded entry. [Entry.Next] reads the batches.
type Entry struct {
	Version          byte
	StampMillis      int64
	WallOffsetMillis int64
	Limits           EntryLimits
	rest             string
}

// DecodeEntry reads an entry's head. The error is [ErrCorruptEntry], or names the version if a newer
// Holdfast wrote the entry.
func DecodeEntry(data string) (Entry, error) {
	var e Entry
	if data == "" {
		return e, fmt.Errorf("%w: empty", ErrCorruptEntry)
	}
	switch e.Version = data[0]; {
	case e.Version == 0:
		return e, fmt.Errorf("%w: version", ErrCorruptEntry)
	case e.Version > EntryVersion:
		return e, NewerError("log entry has", e.Version)
	}
	var ok bool
	if e.StampMillis, data, ok = varint(data[1:]); !ok {
		return e, fmt.Errorf("%w: stamp", ErrCorruptEntry)
	}
	if e.WallOffsetMillis, data, ok = varint(data); !ok {
		return e, fmt.Errorf("%w: wall offset", ErrCorruptEntry)
	}
	if e.Limits.MemoryBytes, data, ok = uvarint(data); !ok {
		return e, fmt.Errorf("%w: memory limit", ErrCorruptEntry)
	}
	e.Limits.DiskFull = e.Limits.MemoryBytes > maxMemoryBytes
	e.Limits.MemoryBytes &= maxMemoryBytes
	if e.Limits.ScriptSteps, data, ok = uvarint(data); !ok {
		return e, fmt.Errorf("%w: script steps", ErrCorruptEntry)
	}
	e.rest = data
	return e, nil
}

// NewerAdvice is the advice for the operator of a node with an older release.
const NewerAdvice = "the cluster went over to a newer release, and does not go back: run the newer release " +
	"on every node"

// NewerError returns the error for something of a version that only a newer release supports.
func NewerError(what string, version byte) error {
	return fmt.Errorf("%s version %d, this node knows %d: %s", what, version, EntryVersion, NewerAdvice)
}

// Next decodes the next batch into b, and returns false at the end.
func (e *Entry) Next(b *Batch) (bool, error) {
	if e.rest == "" {
		return false, nil
	}
	var ok bool
	s := e.rest
	if b.Origin.Node, s, ok = str(s); !ok {
		return false, fmt.Errorf("%w: node", ErrCorruptEntry)
	}
	if b.Origin.Epoch, s, ok = uvarint(s); ok {
		if b.Low, s, ok = uvarint(s); ok {
			b.Seq, s, ok = uvarint(s)
		}
	}
	if !ok {
		return false, fmt.Errorf("%w: session", ErrCorruptEntry)
	}
	if b.Body, s, ok = str(s); !ok {
		return false, fmt.Errorf("%w: body", ErrCorruptEntry)
	}
	e.rest = s
	return true, nil
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// uvarint is binary.Uvarint for strings, too.
func uvarint[T string | []byte](s T) (n uint64, rest T, ok bool) {
	var shift uint
	for i := 0; i < len(s) && i < binary.MaxVarintLen64; i++ {
		b := s[i]
		if b < 0x80 {
			if i == binary.MaxVarintLen64-1 && b > 1 {
				return 0, rest, false
			}
			return n | uint64(b)<<shift, s[i+1:], true
		}
		n |= uint64(b&0x7f) << shift
		shift += 7
	}
	return 0, rest, false
}

func varint(s string) (n int64, rest string, ok bool) {
	u, rest, ok := uvarint(s)
	n = int64(u >> 1)
	if u&1 != 0 {
		n = ^n
	}
	return n, rest, ok
}

func str[T string | []byte](s T) (value, rest T, ok bool) {
	n, s, ok := uvarint(s)
	if !ok || n > uint64(len(s)) {
		return value, rest, false
	}
	return s[:n], s[n:], true
}
