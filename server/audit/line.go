package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/server/members"
)

// Line is a line of the files. A line without Run is a line of the log: it reports a change of an entry, and all nodes
// write the same line, except for Addr, Name and User, which only the client's node has. A line with Run is a line of
// the node Node, about itself.
//
// A file has the ID of a line of the log as "id":"CLUSTER/INDEX.N", and no kind for a stock lock: see [ParseLine].
type Line struct {
	Time    time.Time `json:"time"`
	Cluster string    `json:"cluster,omitempty"`
	// From is the last entry that the node had applied before it restored a snapshot of the entries up to Index, or 0 if
	// it had applied none since its start.
	From uint64 `json:"from,omitempty"`
	// Index is the index of the entry, and N the number of the line in the entry or in the run, from 0.
	Index uint64 `json:"index,omitempty"`
	N     int    `json:"n"`
	Node  string `json:"node,omitempty"`
	// Run is the start of the node's run, in nanoseconds since 1970.
	Run int64 `json:"run,omitempty"`
	// Event is an event of a lock (granted, renewed, released, lost), of a wait (wait-ended, without the lock), of all
	// stock locks of a database (flushed, swapped), or of the node (started, …).
	Event string `json:"event"`

	Kind        string `json:"kind,omitempty"` // Native or Stock
	DB          int    `json:"db,omitempty"`
	ToDB        int    `json:"toDb,omitempty"` // the database that DB was swapped with
	Key         string `json:"key,omitempty"`
	KeyBase64   []byte `json:"keyBase64,omitempty"`
	Owner       string `json:"owner,omitempty"`
	OwnerBase64 []byte `json:"ownerBase64,omitempty"`
	Fence       int64  `json:"fence,omitempty"`
	// Shared is set in a grant or renewal if the lock may have other owners, too.
	Shared  bool   `json:"shared,omitempty"`
	Session uint64 `json:"session,omitempty"`
	// Client is the connection that took or requested the lock, as LOCK.INFO shows it. In the release or loss of a hash's
	// owner, Client is the connection that took the hash.
	Client       string `json:"client,omitempty"`
	Addr         string `json:"addr,omitempty"`
	Name         string `json:"name,omitempty"`
	User         string `json:"user,omitempty"`
	WaitedMillis int64  `json:"waitedMillis,omitempty"`
	HeldMillis   int64  `json:"heldMillis,omitempty"`
	Note         string `json:"note,omitempty"` // of LOCK.ACQUIRE
	// Reason is the reason for which a hold was lost or a wait ended. Command, By and Text describe the command that ended
	// the hold of another client.
	Reason  string `json:"reason,omitempty"`
	Command string `json:"command,omitempty"`
	By      string `json:"by,omitempty"`
	Text    string `json:"text,omitempty"`
	// Count is the number of events that a line of the node reports, if not one, or the number of owners that released or
	// lost a hash at once, and are not named.
	Count uint64 `json:"count,omitempty"`
	// OldCluster is the cluster whose state this cluster began with.
	OldCluster string `json:"oldCluster,omitempty"`
}

// The kinds of locks.
const (
	Native = "native"
	Stock  = "stock"
)

// ParseLine decodes a line of a file. An Event of "" means that the text is JSON, but no line of an audit log.
func ParseLine(text []byte) (l Line, err error) {
	file := struct {
		*Line
		ID string `json:"id"`
	}{Line: &l}
	if err = json.Unmarshal(text, &file); err != nil || l.Run != 0 || l.Event == "" {
		return l, err
	}
	l.Kind = cmp.Or(l.Kind, Stock)
	if file.ID != "" {
		cluster, place, _ := strings.Cut(file.ID, "/")
		index, n, _ := strings.Cut(place, ".")
		var failed error
		l.Cluster = cluster
		l.Index, err = strconv.ParseUint(index, 10, 64)
		l.N, failed = strconv.Atoi(n)
		err = cmp.Or(err, failed)
	}
	return l, err
}

// Names returns the lock's key and owner, even if they are not valid UTF-8.
func (l *Line) Names() (key, owner string) {
	key, owner = l.Key, l.Owner
	if l.KeyBase64 != nil {
		key = string(l.KeyBase64)
	}
	if l.OwnerBase64 != nil {
		owner = string(l.OwnerBase64)
	}
	return key, owner
}

// The events of a node.
const (
	// Started: the process has started, and its lines follow. Text has its flag --audit-locks, if the flag is set. Each
	// later file of the process begins with the same line.
	Started = "started"
	// Restored: the node has restored a snapshot of the entries up to Index. The files of other nodes have the lines of
	// the entries that the node skipped.
	Restored = "restored"
	// Dropped: Count lines were not written, because the buffer was full or a write failed.
	Dropped = "dropped"
	// LoginRefused: a client gave a wrong user or password. Count is the number of refused logins since the last such line
	// that have no line.
	LoginRefused = "login-refused"
	// LocksForced: Command ended holds by force.
	LocksForced = "locks-forced"
	// MembersChanged and CredentialsRead: Text has the change, and By the user who made it.
	MembersChanged  = "members-changed"
	CredentialsRead = "credentials-read"
	// ClusterBegun: the cluster began with the state of another.
	ClusterBegun = "cluster-begun"
)

// auditLocks is the prefix of the Text of a Started line. The patterns follow, separated by blanks.
const auditLocks = "--audit-locks "

// OfDatabase reports whether a line is about all stock locks of a database.
func (l *Line) OfDatabase() bool { return isOfDatabase(l.Event) }

func isOfDatabase(what string) bool { return what == event.LocksFlushed || what == event.LocksSwapped }

// maxTextBytes bounds each text of a line.
const maxTextBytes = 1 << 10

func cut(s string) string { return s[:min(len(s), maxTextBytes)] }

// cutName is cut for keys and owners. It appends a hash to a long name, so that names with equal beginnings differ.
func cutName(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	return fmt.Sprintf("%s~%016x", s[:maxTextBytes], xxh3.HashString(s))
}

// encoder encodes lines.
type encoder struct {
	cluster string
	// head is the beginning of the last line, up to its N. Most lines of an entry have the same.
	head     []byte
	index    uint64
	atMillis int64
	// date is the beginning of head, up to the fraction of the second.
	date []byte
	// node is the node of the last client, and name its name in lines.
	node, name string
}

const secondFormat = "2006-01-02T15:04:05."

// append appends the line of a change. client has the encoded members of the client, or is empty.
func (e *encoder) append(b []byte, index uint64, n int, ch *event.LockChange, client string) []byte {
	if ch.AtMillis != e.atMillis || index != e.index || e.head == nil {
		t := time.UnixMilli(ch.AtMillis).UTC()
		if t.Unix() != time.UnixMilli(e.atMillis).Unix() || e.head == nil {
			e.date = t.AppendFormat(append(e.date[:0], `{"time":"`...), secondFormat)
		}
		e.atMillis, e.index = ch.AtMillis, index
		ms := t.Nanosecond() / 1e6
		h := append(append(e.head[:0], e.date...), byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
		h = append(append(append(h, `Z","id":"`...), e.cluster...), '/')
		e.head = append(strconv.AppendUint(h, index, 10), '.')
	}
	b = strconv.AppendUint(append(b, e.head...), uint64(n), 10)
	b = append(append(b, `","event":"`...), ch.What...)
	if ch.Stock {
		b = append(b, '"')
	} else {
		b = append(b, `","kind":"native"`...)
	}
	b = appendNumber(b, `,"db":`, uint64(ch.DB))
	b = appendNumber(b, `,"toDb":`, uint64(ch.Other))
	b = appendName(b, `,"key":"`, ch.Key)
	b = appendName(b, `,"owner":"`, ch.Owner)
	b = appendNumber(b, `,"fence":`, uint64(ch.Fence))
	if ch.Shared {
		b = append(b, `,"shared":true`...)
	}
	b = appendNumber(b, `,"session":`, ch.Session)
	if ch.Conn != 0 {
		if ch.Node != e.node {
			e.node, e.name = strings.Clone(ch.Node), strings.Clone(members.Name(ch.Node))
		}
		b = append(append(append(b, `,"client":"`...), e.name...), '/')
		b = append(strconv.AppendUint(b, uint64(ch.Conn), 10), '"')
	}
	b = append(b, client...)
	b = appendNumber(b, `,"waitedMillis":`, uint64(max(0, ch.WaitedMillis)))
	b = appendNumber(b, `,"heldMillis":`, uint64(max(0, ch.HeldMillis)))
	b = appendNumber(b, `,"count":`, uint64(ch.Count))
	b = appendText(b, `,"note":"`, ch.Note)
	if ch.Reason != "" {
		b = appendText(b, `,"reason":"`, ch.Reason)
		b = appendText(b, `,"command":"`, ch.Command)
		b = appendText(b, `,"by":"`, ch.By)
		b = appendText(b, `,"text":"`, ch.Text)
	}
	return append(b, "}\n"...)
}

// Client is a connection of this node.
type Client struct{ Addr, Name, User string }

// encoded returns the members of a line.
func (c *Client) encoded() string {
	b := appendText(nil, `,"addr":"`, c.Addr)
	b = appendText(b, `,"name":"`, c.Name)
	return string(appendText(b, `,"user":"`, c.User))
}

// isPlain reports whether a text needs no escapes.
func isPlain(text string) bool {
	for ; len(text) >= 8; text = text[8:] {
		const ones, highs = 0x0101010101010101, 0x8080808080808080
		x := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		quote, backslash := x^ones*'"', x^ones*'\\'
		// The high bit of a byte is set if the byte is not ASCII, or if its subtraction borrowed.
		if (x|(x-ones*' ')|(quote-ones)|(backslash-ones))&highs != 0 {
			return false
		}
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// appendNumber appends a member, unless the number is 0. name has the comma before the member, and the colon.
func appendNumber(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(append(b, name...), n, 10)
}

// appendText appends a member with the beginning of a text, unless the text is empty. name has the comma before the
// member, and the quote before the text.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	if text = cut(text); isPlain(text) {
		return append(append(append(b, name...), text...), '"')
	}
	quoted, _ := json.Marshal(text)
	return append(append(b, name[:len(name)-1]...), quoted...)
}

// appendName is appendText for a key or an owner. If the text is not valid UTF-8, another member has its bytes.
func appendName(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	if len(text) <= maxTextBytes && isPlain(text) {
		return append(append(append(b, name...), text...), '"')
	}
	text = cutName(text)
	quoted, _ := json.Marshal(text)
	b = append(append(b, name[:len(name)-1]...), quoted...)
	if utf8.ValidString(text) {
		return b
	}
	quoted, _ = json.Marshal([]byte(text))
	return append(append(append(b, name[:len(name)-3]...), `Base64":`...), quoted...)
}
