// Package api is the shape of what Holdfast says of locks and members in JSON. The port for monitoring
// (server/web) and `holdfast … --json` write the same documents.
//
// The package promises:
//   - a document is one JSON object, and its field "format" is [Format];
//   - within a format fields are added, and none is removed or gets another meaning;
//   - durations are milliseconds, instants are milliseconds of Unix time, and the names of fields say so;
//   - what is not known, or has no end, is null;
//   - JSON has only text: a name that is no UTF-8 has U+FFFD in place of what is not, and its bytes beside it, in
//     base64.
//
// A document is made from the reply to a command: of LOCK.LIST, LOCK.INFO, SESSION.INFO or RAFT.STATUS, in RESP2 or
// RESP3. Fields of a reply that this release does not know are passed over, and fields that an older node does not
// send are left zero.
//
// Start reading at [Locks] and [Cluster].
package api

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast/holdfast/protocol"
)

// Locks is a document about locks.
type Locks struct {
	Format int    `json:"format"`
	Node   string `json:"node,omitempty"` // whose copy of the state was looked at; empty: the cluster was asked
	// NowUnixMillis is the instant to which the durations refer: cluster time, as Unix time.
	NowUnixMillis int64 `json:"nowUnixMillis"`
	// Sums are of all locks that match, also of those that are left out.
	Sums  *Sums  `json:"sums,omitempty"`
	Locks []Lock `json:"locks"`
	// NextCursor is where to go on; empty: there is no more, or the locks are sorted.
	NextCursor string `json:"nextCursor,omitempty"`
	// Truncated: the locks are sorted, and more of them match.
	Truncated bool `json:"truncated,omitempty"`
}

// Sums counts locks.
type Sums struct {
	Locks   int64 `json:"locks"`
	Stock   int64 `json:"stock"` // of these, those of mode stock
	Holders int64 `json:"holders"`
	Waiters int64 `json:"waiters"`
	// Complete: all locks were looked at. Else the time for it was over before.
	Complete bool `json:"complete"`
}

// OneLock is a document about a lock.
type OneLock struct {
	Format        int    `json:"format"`
	Node          string `json:"node,omitempty"`
	NowUnixMillis int64  `json:"nowUnixMillis"`
	Lock          Lock   `json:"lock"`
}

// Failure is the document of an error.
type Failure struct {
	Format int    `json:"format"`
	Error  string `json:"error"`
}

// Lock is a key that somebody holds as a lock or waits for, or whose delay runs.
type Lock struct {
	Key       string `json:"key"`
	KeyBase64 []byte `json:"keyBase64,omitempty"`
	DB        int    `json:"db"`
	// Type is what TYPE says of the key, lock for a native one; empty in lists.
	Type string `json:"type,omitempty"`
	// Mode is exclusive, shared, permits or free; stock: a client's own kind of lock, as SET NX PX makes.
	Mode            string `json:"mode"`
	HoldersCount    int64  `json:"holdersCount"`
	WaitersCount    int64  `json:"waitersCount"`
	Permits         int64  `json:"permits"`
	DelayLeftMillis int64  `json:"delayLeftMillis"`
	// Holders and Waiters are the first, the waiters in line. There may be more of them: see the counts.
	Holders []Hold `json:"holders"`
	Waiters []Wait `json:"waiters"`
	// PollsPerSecond is about how often clients ask in vain for a stock lock. Advice is what they should do instead.
	PollsPerSecond float64 `json:"pollsPerSecond,omitempty"`
	Advice         string  `json:"advice,omitempty"`
}

// Hold is an owner's part in a lock.
type Hold struct {
	Owner       string `json:"owner"`
	OwnerBase64 []byte `json:"ownerBase64,omitempty"`
	Fence       int64  `json:"fence,omitempty"` // 0: a stock lock has none
	Mode        string `json:"mode"`
	Holds       int64  `json:"holds"` // acquires that were not given back
	Permits     int64  `json:"permits"`
	// LeaseMillis is the lease that the owner asked for last; 0: not known. LeaseLeftMillis is null if the hold lives
	// with a session, or has no end.
	LeaseMillis     int64  `json:"leaseMillis,omitempty"`
	LeaseLeftMillis *int64 `json:"leaseLeftMillis"`
	Renewals        *int64 `json:"renewals,omitempty"` // null: they are not counted
	// HeardMillis is how long ago the last sign of life was that the cluster knows of: a command of the client, or a
	// renewal of the lease or the session; null: not known.
	HeardMillis     *int64   `json:"heardMillis,omitempty"`
	Session         *Session `json:"session"`
	SinceUnixMillis int64    `json:"sinceUnixMillis"`
	HeldMillis      int64    `json:"heldMillis"`
	Note            string   `json:"note"`
	Client          *Client  `json:"client"`
}

// Wait is a place in line.
type Wait struct {
	Owner           string   `json:"owner"`
	OwnerBase64     []byte   `json:"ownerBase64,omitempty"`
	Mode            string   `json:"mode"`
	Limit           int64    `json:"limit"`
	Permits         int64    `json:"permits"`
	Keys            int64    `json:"keys"` // of the request
	Session         *Session `json:"session"`
	SinceUnixMillis int64    `json:"sinceUnixMillis"`
	WaitedMillis    int64    `json:"waitedMillis"`
	WaitLeftMillis  *int64   `json:"waitLeftMillis"` // null: the wait has no end
	Absent          bool     `json:"absent"`         // the wait is over, and the place is kept for waitLeftMillis
	Notify          bool     `json:"notify"`
	Polls           int64    `json:"polls,omitempty"` // how often a client that polls for a stock lock was refused
	Note            string   `json:"note"`
	Client          *Client  `json:"client"`
}

// Session is what a hold lives with. In lists of locks only the ID is known.
type Session struct {
	ID   int64  `json:"id"`
	Name string `json:"name,omitempty"`
	// LeaseMillis is how long the session lives without a sign of life, and LeftMillis what is left of it.
	LeaseMillis int64  `json:"leaseMillis,omitempty"`
	LeftMillis  *int64 `json:"leftMillis,omitempty"`
	Connection  bool   `json:"connection,omitempty"` // it lives with the connection Client
	Holds       int64  `json:"holds,omitempty"`
}

// Client is a connection of a node.
type Client struct {
	Node   string `json:"node"`
	Number int64  `json:"number"` // in CLIENT LIST of that node; 0: not known
	// Address and Name are empty, and IdleMillis is null, while not known.
	Address    string `json:"address,omitempty"`
	Name       string `json:"name,omitempty"`
	IdleMillis *int64 `json:"idleMillis,omitempty"` // since the client's last command
	Gone       bool   `json:"gone,omitempty"`       // the connection is closed
}

var errReply = errors.New("the reply is not what this release expects")

// PageOfLocks makes locks of a reply to LOCK.LIST in a database. cursor is where to go on, "0" at the end.
func PageOfLocks(v protocol.Value, db int, nowUnixMillis int64) (cursor string, page []Lock, err error) {
	if len(v.Elems) != 2 || v.Elems[1].Kind != protocol.KindArray {
		return "", nil, fmt.Errorf("LOCK.LIST: %w", errReply)
	}
	page = make([]Lock, len(v.Elems[1].Elems))
	for i, row := range v.Elems[1].Elems {
		if page[i], err = lockOf(row, db, nowUnixMillis, allRows); err != nil {
			return "", nil, fmt.Errorf("LOCK.LIST: %w", err)
		}
	}
	return v.Elems[0].Str, page, nil
}

// RowOf makes a lock of a row of LOCK.LIST, with up to maxRows holders and up to maxRows waiters.
func RowOf(v protocol.Value, db int, nowUnixMillis int64, maxRows int) (Lock, error) {
	return lockOf(v, db, nowUnixMillis, maxRows)
}

// LockOf makes a lock of a reply to LOCK.INFO; there: there is such a lock.
func LockOf(v protocol.Value, key string, db int, nowUnixMillis int64) (l Lock, there bool, err error) {
	if v.IsNull() {
		return l, false, nil
	}
	if l, err = lockOf(v, db, nowUnixMillis, allRows); err != nil {
		return l, false, fmt.Errorf("LOCK.INFO: %w", err)
	}
	l.Key, l.KeyBase64 = key, raw(key)
	return l, true, nil
}

// allRows is all that a reply has.
const allRows = math.MaxInt

func lockOf(v protocol.Value, db int, now int64, maxRows int) (Lock, error) {
	if !isMap(v) {
		return Lock{}, errReply
	}
	f := fieldsOf(v)
	holders, waiters := f["holders"].Elems, f["waiters"].Elems
	holders, waiters = holders[:min(maxRows, len(holders))], waiters[:min(maxRows, len(waiters))]
	l := Lock{
		Key: f.text("key"), KeyBase64: raw(f.text("key")), DB: db, Mode: f.text("mode"),
		HoldersCount: f.number("holders-count"), WaitersCount: f.number("waiters-count"),
		Permits: f.number("permits"), DelayLeftMillis: f.number("delay-left"),
		Holders: make([]Hold, len(holders)), Waiters: make([]Wait, len(waiters)),
	}
	if _, said := f["db"]; said {
		l.DB = int(f.number("db"))
	}
	for i, row := range holders {
		l.Holders[i] = holdOf(fieldsOf(row), now)
	}
	for i, row := range waiters {
		l.Waiters[i] = waitOf(fieldsOf(row), now)
	}
	l.judgePolls()
	return l, nil
}

// A lock for which so many clients poll, so often in all, is advised about.
const (
	manyPolling = 5
	oftenPolled = 5 // per second
)

// judgePolls takes the waiters that are listed for the average of all.
func (l *Lock) judgePolls() {
	rate := 0.0
	for i := range l.Waiters {
		w := &l.Waiters[i]
		rate += float64(w.Polls) / max(1, float64(w.WaitedMillis)/1000)
	}
	if rate == 0 {
		return
	}
	rate *= float64(l.WaitersCount) / float64(len(l.Waiters))
	l.PollsPerSecond = math.Round(rate*10) / 10
	if l.WaitersCount >= manyPolling && rate >= oftenPolled {
		l.Advice = fmt.Sprintf("%d clients poll for it, about %.0f times a second: clients of native locks wait in a queue "+
			"instead", l.WaitersCount, rate)
	}
}

func holdOf(f fields, now int64) Hold {
	return Hold{
		Owner: f.text("owner"), OwnerBase64: raw(f.text("owner")), Fence: f.number("fence"), Mode: f.text("mode"),
		Holds: f.number("holds"), Permits: f.number("permits"),
		LeaseMillis: f.number("lease"), LeaseLeftMillis: f.limited("lease-left"), Renewals: f.limited("renewals"),
		Session: sessionNamed(f), SinceUnixMillis: f.number("since"), HeldMillis: max(0, now-f.number("since")),
		Note: f.text("note"), Client: clientOf(f),
	}
}

func waitOf(f fields, now int64) Wait {
	return Wait{
		Owner: f.text("owner"), OwnerBase64: raw(f.text("owner")), Mode: f.text("mode"),
		Limit: f.number("limit"), Permits: f.number("permits"), Keys: f.number("keys"),
		Session: sessionNamed(f), SinceUnixMillis: f.number("since"), WaitedMillis: max(0, now-f.number("since")),
		WaitLeftMillis: f.limited("wait-left"), Absent: f.flag("absent"), Notify: f.flag("notify"), Polls: f.number("polls"),
		Note: f.text("note"), Client: clientOf(f),
	}
}

// sessionNamed is the session of a hold or a wait.
func sessionNamed(f fields) *Session {
	if id := f.number("session"); id != 0 {
		return &Session{ID: id}
	}
	return nil
}

// SessionOf makes a session of a reply to SESSION.INFO. Nil: there is none any more.
func SessionOf(v protocol.Value) *Session {
	if !isMap(v) {
		return nil
	}
	f := fieldsOf(v)
	return &Session{
		ID: f.number("id"), Name: f.text("name"), LeaseMillis: f.number("px"), LeftMillis: f.limited("left"),
		Connection: f.flag("connection"), Holds: f.number("holds"),
	}
}

// clientOf is the connection of a hold or a wait, with what its node knows of it.
func clientOf(f fields) *Client {
	c := connection(f.text("client"))
	if c == nil {
		return nil
	}
	switch f.text("client-state") {
	case "connected":
		c.Address, c.Name, c.IdleMillis = f.text("client-addr"), f.text("client-name"), f.limited("client-idle")
	case "gone":
		c.Gone = true
	}
	return c
}

// connection is what "node@folder/number" names, or "node@folder" where the number is not known. Nil: nothing.
func connection(text string) *Client {
	life, number, _ := strings.Cut(text, "/")
	node, _, _ := strings.Cut(life, "@")
	if node == "" {
		return nil
	}
	n, _ := strconv.ParseInt(number, 10, 64)
	return &Client{Node: node, Number: n}
}

// Format is the number of the shape of all documents.
const Format = 1

// fields are a map of a reply.
type fields map[string]protocol.Value

func fieldsOf(v protocol.Value) fields {
	f := make(fields, len(v.Elems)/2)
	for i := 0; i+1 < len(v.Elems); i += 2 {
		f[v.Elems[i].Str] = v.Elems[i+1]
	}
	return f
}

// isMap reports whether the value may be a map: in RESP2 a map is an array.
func isMap(v protocol.Value) bool {
	return (v.Kind == protocol.KindMap || v.Kind == protocol.KindArray) && len(v.Elems)%2 == 0
}

func (f fields) number(name string) int64 {
	v := f[name]
	if v.Kind == protocol.KindBulk {
		n, _ := strconv.ParseInt(v.Str, 10, 64)
		return n
	}
	return v.Num
}

// limited is a number; a negative one means that there is none.
func (f fields) limited(name string) *int64 {
	n := f.number(name)
	if _, said := f[name]; !said || n < 0 {
		return nil
	}
	return &n
}

func (f fields) flag(name string) bool { return f.number(name) != 0 }

func (f fields) text(name string) string { return f[name].Str }

func (f fields) texts(name string) []string {
	texts := make([]string, len(f[name].Elems))
	for i, v := range f[name].Elems {
		texts[i] = v.Str
	}
	return texts
}

// raw is the bytes of a text that JSON cannot have; nil: it can.
func raw(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}
