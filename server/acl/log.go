package acl

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Refusal is why something was refused, in the words of ACL LOG.
type Refusal struct {
	Reason  string // auth, command, key or channel
	Context string // toplevel, multi or lua
	Object  string
	User    string
	Client  string // the client's line of CLIENT LIST
}

// Log remembers the last refusals of a node. The zero value is ready. It is safe for many goroutines.
type Log struct {
	mu      sync.Mutex
	entries []entry // the newest first
}

type entry struct {
	Refusal
	count int64
	at    time.Time
}

// The bounds of the log.
const (
	maxEntries   = 128
	maxTextBytes = 1 << 10
	compared     = 10 // entries that a new one is compared with
	together     = time.Minute
)

func cut(s string) string { return s[:min(len(s), maxTextBytes)] }

// Add notes a refusal. One like another of the last minute is counted with that one.
func (l *Log) Add(r Refusal, now time.Time) {
	r.Object, r.User, r.Client = cut(r.Object), cut(r.User), cut(r.Client)
	l.mu.Lock()
	defer l.mu.Unlock()
	count := int64(1)
	for i := range l.entries[:min(len(l.entries), compared)] {
		e := &l.entries[i]
		same := e.Refusal
		same.Client = r.Client
		if same == r && now.Sub(e.at) <= together {
			count += e.count
			l.entries = slices.Delete(l.entries, i, i+1)
			break
		}
	}
	l.entries = slices.Insert(l.entries, 0, entry{Refusal: r, count: count, at: now})
	l.entries = l.entries[:min(len(l.entries), maxEntries)]
}

// Reply is the reply to ACL LOG.
func (l *Log) Reply(args [][]byte, now time.Time) protocol.Value {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := int64(10)
	switch {
	case len(args) == 1 && strings.EqualFold(string(args[0]), "reset"):
		l.entries = nil
		return protocol.OK
	case len(args) == 1:
		var ok bool
		if count, ok = protocol.ParseInt(string(args[0])); !ok {
			return protocol.ErrNotInteger.Value()
		}
	}
	var rows []protocol.Value
	for i := range l.entries[:min(int64(len(l.entries)), max(0, count))] {
		e := &l.entries[i]
		rows = append(rows, protocol.Map(
			protocol.Bulk("count"), protocol.Integer(e.count),
			protocol.Bulk("reason"), protocol.Bulk(e.Reason),
			protocol.Bulk("context"), protocol.Bulk(e.Context),
			protocol.Bulk("object"), protocol.Bulk(e.Object),
			protocol.Bulk("username"), protocol.Bulk(e.User),
			protocol.Bulk("age-seconds"), protocol.Double(now.Sub(e.at).Seconds()),
			protocol.Bulk("client-info"), protocol.Bulk(e.Client)))
	}
	return protocol.Array(rows...)
}
