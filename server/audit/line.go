package audit

import (
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

// Line is a line of the files. A line without Run is of an entry of the log, and all nodes write it alike, but for what
// only the client's node knows: Addr, Name and User. A line with Run is the node's own.
type Line struct {
	Time    time.Time `json:"time"`
	Cluster string    `json:"cluster,omitempty"`
	// N counts the lines of an entry, or those of a run of Node, from 0. From is what the node had applied before it got a
	// state with the entries up to Index; 0: nothing in this run.
	From  uint64 `json:"from,omitempty"`
	Index uint64 `json:"index,omitempty"`
	N     int    `json:"n"`
	Node  string `json:"node,omitempty"`
	// Run is when the run began, in nanoseconds since 1970.
	Run int64 `json:"run,omitempty"`
	// Event is what happened: granted, renewed, released or lost; wait-ended of a wait without the lock; flushed or
	// swapped of all stock locks of a database; else one of the events of the node.
	Event string `json:"event"`

	Kind        string `json:"kind,omitempty"` // native or stock
	DB          int    `json:"db,omitempty"`
	ToDB        int    `json:"toDb,omitempty"` // that DB was swapped with
	Key         string `json:"key,omitempty"`
	KeyBase64   []byte `json:"keyBase64,omitempty"`
	Owner       string `json:"owner,omitempty"`
	OwnerBase64 []byte `json:"ownerBase64,omitempty"`
	Fence       int64  `json:"fence,omitempty"`
	// Limit is how many owners may hold the lock that was granted or renewed, at once; 0: this is not known.
	Limit   int    `json:"limit,omitempty"`
	Session uint64 `json:"session,omitempty"`
	// Client is the connection, as LOCK.INFO shows it.
	Client       string `json:"client,omitempty"`
	Addr         string `json:"addr,omitempty"`
	Name         string `json:"name,omitempty"`
	User         string `json:"user,omitempty"`
	WaitedMillis int64  `json:"waitedMillis,omitempty"`
	HeldMillis   int64  `json:"heldMillis,omitempty"`
	Note         string `json:"note,omitempty"` // of LOCK.ACQUIRE
	// Reason is why a hold was lost, or how a wait ended. Command, By and Text are of the command that took a hold away.
	Reason  string `json:"reason,omitempty"`
	Command string `json:"command,omitempty"`
	By      string `json:"by,omitempty"`
	Text    string `json:"text,omitempty"`
	// Count is how many events a line of the node is about, if not one; or how many owners of a hash released or lost it
	// together, and are not named.
	Count uint64 `json:"count,omitempty"`
	// OldCluster is the cluster with whose state this one began.
	OldCluster string `json:"oldCluster,omitempty"`
}

// Names are the lock's key and its owner, also those whose bytes are no UTF-8.
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
	// Started: lines follow of a process that has begun. Text has its flag --audit-locks, if that is set. Each later file
	// of the process begins with the same line.
	Started = "started"
	// Restored: the state up to Index came from a snapshot. Other nodes have the lines of the entries in between.
	Restored = "restored"
	// Dropped: Count lines were not written, for want of room or as a write failed.
	Dropped = "dropped"
	// LoginRefused: a wrong user or password; Count more since the last such line have none.
	LoginRefused = "login-refused"
	// LocksForced: Command took locks away by force.
	LocksForced = "locks-forced"
	// MembersChanged and CredentialsRead: Text says what, and By on whose account.
	MembersChanged  = "members-changed"
	CredentialsRead = "credentials-read"
	// ClusterBegun: the cluster began with the state of another.
	ClusterBegun = "cluster-begun"
)

// auditLocks begins the Text of a line Started; patterns follow, with a blank between two.
const auditLocks = "--audit-locks "

// OfDatabase reports whether a line is about all stock locks of a database.
func (l *Line) OfDatabase() bool { return isOfDatabase(l.Event) }

func isOfDatabase(what string) bool { return what == event.LocksFlushed || what == event.LocksSwapped }

// maxTextBytes bounds each text of a line.
const maxTextBytes = 1 << 10

func cut(s string) string { return s[:min(len(s), maxTextBytes)] }

// cutName is cut for keys and owners. A long one ends with a hash, by which those that begin alike differ.
func cutName(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	return fmt.Sprintf("%s~%016x", s[:maxTextBytes], xxh3.HashString(s))
}

// encoder makes lines.
type encoder struct {
	cluster string
	// head is the beginning of the line before, of an index and an instant. Most lines of an entry begin alike.
	head     []byte
	index    uint64
	atMillis int64
	// node is that of the last client, and name the node's name in lines.
	node, name string
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// append appends the line of a change, with what is known of the client.
func (e *encoder) append(b []byte, index uint64, n int, ch *event.LockChange, client string) []byte {
	if ch.AtMillis != e.atMillis || index != e.index || e.head == nil {
		e.atMillis, e.index = ch.AtMillis, index
		h := time.UnixMilli(ch.AtMillis).UTC().AppendFormat(append(e.head[:0], `{"time":"`...), timeFormat)
		h = append(append(append(h, `","cluster":"`...), e.cluster...), `","index":`...)
		e.head = append(strconv.AppendUint(h, index, 10), `,"n":`...)
	}
	b = strconv.AppendInt(append(b, e.head...), int64(n), 10)
	b = append(append(b, `,"event":"`...), ch.What...)
	if ch.Stock {
		b = append(b, `","kind":"stock"`...)
	} else {
		b = append(b, `","kind":"native"`...)
	}
	b = appendNumber(b, `,"db":`, uint64(ch.DB))
	b = appendNumber(b, `,"toDb":`, uint64(ch.Other))
	b = appendName(b, "key", ch.Key)
	b = appendName(b, "owner", ch.Owner)
	b = appendNumber(b, `,"fence":`, uint64(ch.Fence))
	b = appendNumber(b, `,"limit":`, uint64(ch.Limit))
	b = appendNumber(b, `,"session":`, ch.Session)
	if ch.Conn != 0 {
		if ch.Node != e.node {
			e.node, e.name = strings.Clone(ch.Node), strings.Clone(members.Name(ch.Node))
		}
		b = append(append(append(b, `,"client":"`...), e.name...), '/')
		b = append(strconv.AppendInt(b, ch.Conn, 10), '"')
	}
	b = append(b, client...)
	b = appendNumber(b, `,"waitedMillis":`, uint64(max(0, ch.WaitedMillis)))
	b = appendNumber(b, `,"heldMillis":`, uint64(max(0, ch.HeldMillis)))
	b = appendNumber(b, `,"count":`, uint64(ch.Count))
	b = appendText(b, "note", ch.Note)
	if ch.Reason != "" {
		b = appendText(b, "reason", ch.Reason)
		b = appendText(b, "command", ch.Command)
		b = appendText(b, "by", ch.By)
		b = appendText(b, "text", ch.Text)
	}
	return append(b, "}\n"...)
}

// Client is what its node knows of a connection.
type Client struct{ Addr, Name, User string }

// encoded are the members of a line.
func (c *Client) encoded() string {
	b := appendText(nil, "addr", c.Addr)
	b = appendText(b, "name", c.Name)
	return string(appendText(b, "user", c.User))
}

// isPlain reports whether a text needs no escapes.
func isPlain(text string) bool {
	for ; len(text) >= 8; text = text[8:] {
		const ones, highs = 0x0101010101010101, 0x8080808080808080
		x := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		quote, backslash := x^ones*'"', x^ones*'\\'
		// The high bit of a byte is set if the byte is no ASCII, or has borrowed: it is less than what is taken away.
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

// appendNumber appends a member, unless the number is 0. name has the quotes, the comma before and the colon.
func appendNumber(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(append(b, name...), n, 10)
}

// appendText appends a member with the beginning of a text, unless the text is empty.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	b, _ = appendMember(b, name, cut(text))
	return b
}

// appendName is appendText for a key or an owner. One that is no UTF-8 gets another member with its bytes.
func appendName(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	text = cutName(text)
	b, plain := appendMember(b, name, text)
	if plain || utf8.ValidString(text) {
		return b
	}
	quoted, _ := json.Marshal([]byte(text))
	return append(append(append(append(b, `,"`...), name...), `Base64":`...), quoted...)
}

// appendMember appends a member, and reports whether the text needed no escapes.
func appendMember(b []byte, name, text string) (to []byte, plain bool) {
	b = append(append(append(b, `,"`...), name...), `":`...)
	if isPlain(text) {
		return append(append(append(b, '"'), text...), '"'), true
	}
	quoted, _ := json.Marshal(text)
	return append(b, quoted...), false
}
