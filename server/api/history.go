package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// History is a document about the last hour, and about losses.
type History struct {
	Format int    `json:"format"`
	Node   string `json:"node"`
	// NowUnixMillis is the node's clock. Steps are the last hour, the oldest first; the last one is not over yet.
	NowUnixMillis int64  `json:"nowUnixMillis"`
	StepMillis    int64  `json:"stepMillis"`
	Steps         []Step `json:"steps"`
	Losses        []Loss `json:"losses"` // the newest first
	// LossGroups are the losses that the cluster remembers, by lock and reason, the group with the newest first: of each
	// kind at most 50 groups, and those with Advice are kept before others.
	LossGroups []LossGroup `json:"lossGroups"`
}

// LossGroup is the losses of a lock for one reason.
type LossGroup struct {
	Count      int64 `json:"count"`
	LastMinute int64 `json:"lastMinute"` // of these, those of the minute before the answer
	// MinHeldMillis and MaxHeldMillis bound how long the lock was held.
	MinHeldMillis int64 `json:"minHeldMillis"`
	MaxHeldMillis int64 `json:"maxHeldMillis"`
	Last          Loss  `json:"last"`
	// Advice is what is wrong with clients that lose the lock so often; empty: nothing is known to be.
	Advice string `json:"advice,omitempty"`
}

// oftenLost is how many losses of a native lock in a minute are advised about. Many clients leave the end of a stock
// lock to time.
const oftenLost = 10

// GroupLosses groups losses by lock and reason. Requires: the newest comes first.
func GroupLosses(losses []Loss, nowUnixMillis int64) []LossGroup {
	type group struct {
		db                int
		key, kind, reason string
	}
	groups, at := []LossGroup{}, make(map[group]int)
	for i := range losses {
		l := &losses[i]
		of := group{l.DB, l.Key, l.Kind, l.Reason}
		n, known := at[of]
		if !known {
			n, at[of] = len(groups), len(groups)
			groups = append(groups, LossGroup{MinHeldMillis: l.HeldMillis, Last: *l})
		}
		g := &groups[n]
		g.Count += 1 + l.More
		if l.EndedUnixMillis > nowUnixMillis-time.Minute.Milliseconds() {
			g.LastMinute += 1 + l.More
		}
		g.MinHeldMillis, g.MaxHeldMillis = min(g.MinHeldMillis, l.HeldMillis), max(g.MaxHeldMillis, l.HeldMillis)
	}
	for i := range groups {
		groups[i].Advice = groups[i].advice()
	}
	return groups
}

func (g *LossGroup) advice() string {
	if g.Last.Kind != "native" || g.LastMinute < oftenLost {
		return ""
	}
	why := map[string]string{
		"expired": "the work outlasts the lease, and no client renews it",
		"session": "sessions of clients end, as no client renews them",
		"broken":  "by LOCK.BREAK, DEL or UNLINK",
		"flushed": "by FLUSHALL or FLUSHDB",
	}[g.Last.Reason]
	if g.Last.Cause != nil { // the others may have another one
		why = "the last by " + strings.ToUpper(g.Last.Cause.Command)
	}
	return fmt.Sprintf("lost %d times in the last minute: %s", g.LastMinute, why)
}

// Losses is a document about how locks were lost.
type Losses struct {
	Format int    `json:"format"`
	Losses []Loss `json:"losses"` // the newest first
	// NextCursor is where to go on with older ones; empty: there are none.
	NextCursor string `json:"nextCursor,omitempty"`
}

// Loss is a hold that ended before it was released.
type Loss struct {
	ID              int64   `json:"id"`
	EndedUnixMillis int64   `json:"endedUnixMillis"`
	Key             string  `json:"key"`
	KeyBase64       []byte  `json:"keyBase64,omitempty"`
	DB              int     `json:"db"`
	Kind            string  `json:"kind"`   // native or stock
	Reason          string  `json:"reason"` // expired, session, broken or flushed
	Owner           string  `json:"owner"`
	OwnerBase64     []byte  `json:"ownerBase64,omitempty"`
	Fence           int64   `json:"fence,omitempty"` // 0: a stock lock has none
	SinceUnixMillis int64   `json:"sinceUnixMillis"`
	HeldMillis      int64   `json:"heldMillis"`
	Note            string  `json:"note"`
	Session         int64   `json:"session,omitempty"`
	Client          *Client `json:"client"` // that held
	// More is how many holds were lost just so and at once beside this one, and are not listed.
	More  int64  `json:"more,omitempty"`
	Cause *Cause `json:"cause"` // null: time, or a client that went away
}

// Cause is a command that took a lock away.
type Cause struct {
	Command string  `json:"command"`
	Text    string  `json:"text"` // REASON of LOCK.BREAK
	By      *Client `json:"by"`
}

// LossesOf makes losses of a reply to LOCK.HISTORY.
func LossesOf(v protocol.Value) (Losses, error) {
	if len(v.Elems) != 2 || v.Elems[1].Kind != protocol.KindArray {
		return Losses{}, fmt.Errorf("LOCK.HISTORY: %w", errReply)
	}
	doc := Losses{Format: Format, Losses: make([]Loss, len(v.Elems[1].Elems))}
	if cursor := v.Elems[0].Str; cursor != "0" {
		doc.NextCursor = cursor
	}
	for i, row := range v.Elems[1].Elems {
		if !isMap(row) {
			return Losses{}, fmt.Errorf("LOCK.HISTORY: %w", errReply)
		}
		doc.Losses[i] = lossOf(fieldsOf(row))
	}
	return doc, nil
}

func lossOf(f fields) Loss {
	l := Loss{
		ID: f.number("id"), EndedUnixMillis: f.number("ended"), Key: f.text("key"), KeyBase64: raw(f.text("key")),
		DB:   int(f.number("db")),
		Kind: f.text("kind"), Reason: f.text("reason"), Owner: f.text("owner"), OwnerBase64: raw(f.text("owner")),
		Fence:           f.number("fence"),
		SinceUnixMillis: f.number("since"), HeldMillis: max(0, f.number("ended")-f.number("since")),
		Note: f.text("note"), Session: f.number("session"), Client: connection(f.text("client")), More: f.number("more"),
	}
	if command := f.text("command"); command != "" {
		l.Cause = &Cause{Command: command, Text: f.text("text"), By: connection(f.text("by-client"))}
		if l.Cause.By != nil {
			l.Cause.By.Address, l.Cause.By.Name = f.text("by-addr"), f.text("by-name")
		}
	}
	return l
}

// Step counts what clients of all nodes did within a step, as this node applied it.
type Step struct {
	StartUnixMillis int64 `json:"startUnixMillis"`
	// Counted: the node counted during all of the step. Else it started later, and what is missing is 0.
	Counted bool `json:"counted"`
	Counts
}

// Counts are about locks.
type Counts struct {
	Grants   uint64 `json:"grants"`   // new holds
	Waits    uint64 `json:"waits"`    // waits that ended with a grant
	TimedOut uint64 `json:"timedOut"` // waits that ended by time, without a grant
	Lost     uint64 `json:"lost"`     // holds that ended before they were released
}

// Add adds what was counted between two totals.
func (c *Counts) Add(from, to Counts) {
	more := func(n *uint64, from, to uint64) { *n += to - min(from, to) }
	more(&c.Grants, from.Grants, to.Grants)
	more(&c.Waits, from.Waits, to.Waits)
	more(&c.TimedOut, from.TimedOut, to.TimedOut)
	more(&c.Lost, from.Lost, to.Lost)
}
