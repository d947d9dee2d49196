package audit

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"
)

// Trail is what several files say together.
type Trail struct {
	// Lines are those of the log in its order, and behind them those of the nodes, each once.
	Lines []Line
	// Unreadable are lines that are none, such as the beginning of one at the end of which a node was killed.
	Unreadable int
}

// lineID tells lines apart.
type lineID struct {
	cluster, node string
	index         uint64
	run           int64
	n             int
}

// Read reads the lines that are wanted from files of several nodes, in any order.
func Read(from []io.Reader, want func(*Line) bool) (Trail, error) {
	t := Trail{Lines: []Line{}}
	at := make(map[lineID]int)
	for _, r := range from {
		lines := bufio.NewReaderSize(r, 64<<10)
		for {
			text, err := lines.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				return t, err
			}
			if len(text) > 1 {
				t.add(text, want, at)
			}
			if err != nil {
				break
			}
		}
	}
	t.sort()
	return t, nil
}

// add adds a line, unless another node's file had it. Only the client's own node says who the client is.
func (t *Trail) add(text []byte, want func(*Line) bool, at map[lineID]int) {
	var line Line
	if json.Unmarshal(text, &line) != nil || line.Event == "" {
		t.Unreadable++
		return
	}
	if line.KeyBase64 != nil {
		line.Key = string(line.KeyBase64)
	}
	if line.OwnerBase64 != nil {
		line.Owner = string(line.OwnerBase64)
	}
	if !want(&line) {
		return
	}
	id := lineID{cluster: line.Cluster, index: line.Index, n: line.N}
	if line.Run != 0 {
		id.index, id.node, id.run = 0, line.Node, line.Run
	}
	known, twice := at[id]
	switch {
	case !twice:
		at[id] = len(t.Lines)
		t.Lines = append(t.Lines, line)
	case t.Lines[known].Addr == "":
		t.Lines[known] = line
	}
}

// sort brings the lines of the log into its order, clusters one after another, and then those of nodes, by time.
func (t *Trail) sort() {
	begun := make(map[string]time.Time)
	for i := range t.Lines {
		l := &t.Lines[i]
		if at, known := begun[l.Cluster]; !known || l.Time.Before(at) {
			begun[l.Cluster] = l.Time
		}
	}
	slices.SortStableFunc(t.Lines, func(a, b Line) int {
		switch own, other := a.Run != 0, b.Run != 0; {
		case own && !other:
			return 1
		case other && !own:
			return -1
		case own:
			return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Node, b.Node), cmp.Compare(a.N, b.N))
		}
		return cmp.Or(begun[a.Cluster].Compare(begun[b.Cluster]), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Index, b.Index), cmp.Compare(a.N, b.N))
	})
}

// Hold is how long an owner held a lock. EndedUnixMillis is 0 where the files do not have the end.
type Hold struct {
	Key             string `json:"key"`
	KeyBase64       []byte `json:"keyBase64,omitempty"`
	DB              int    `json:"db"`
	Kind            string `json:"kind"` // native or stock
	Owner           string `json:"owner"`
	OwnerBase64     []byte `json:"ownerBase64,omitempty"`
	Fence           int64  `json:"fence,omitempty"`
	Session         uint64 `json:"session,omitempty"`
	Client          string `json:"client,omitempty"`
	Addr            string `json:"addr,omitempty"`
	Name            string `json:"name,omitempty"`
	User            string `json:"user,omitempty"`
	SinceUnixMillis int64  `json:"sinceUnixMillis"`
	EndedUnixMillis int64  `json:"endedUnixMillis,omitempty"`
	WaitedMillis    int64  `json:"waitedMillis,omitempty"`
	// Ended is released or lost, and Reason why it was lost. Command, By and Text are of the command that took it away.
	Ended   string `json:"ended,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Command string `json:"command,omitempty"`
	By      string `json:"by,omitempty"`
	Text    string `json:"text,omitempty"`
	// Index is of the entry that granted the lock, or that ended the hold where the files do not have the grant.
	Index uint64 `json:"index"`
}

// At reports whether the lock was held at an instant.
func (h *Hold) At(unixMillis int64) bool {
	return h.SinceUnixMillis <= unixMillis && (h.EndedUnixMillis == 0 || unixMillis <= h.EndedUnixMillis)
}

// Holds makes holds of the lines, in the order of their grants. An owner has one hold of a lock: with another grant the
// hold before is over, whatever the files lack.
func (t *Trail) Holds() []Hold {
	type owned struct {
		db         int
		key, owner string
	}
	holds, open := []Hold{}, make(map[owned]int)
	for i := range t.Lines {
		l := &t.Lines[i]
		if l.Run != 0 {
			continue
		}
		of, at := owned{l.DB, l.Key, l.Owner}, l.Time.UnixMilli()
		n, isOpen := open[of]
		switch l.Event {
		case "granted":
			if isOpen {
				holds[n].EndedUnixMillis, holds[n].Ended = at, "granted again"
			}
			open[of] = len(holds)
			holds = append(holds, holdOf(l, at))
		case "renewed":
			if !isOpen {
				n = len(holds)
				open[of] = n
				holds = append(holds, holdOf(l, at))
			}
			h := &holds[n]
			h.Session, h.Client, h.Addr, h.Name, h.User = l.Session, l.Client, l.Addr, l.Name, l.User
		case "released", "lost":
			if !isOpen {
				n = len(holds)
				holds = append(holds, holdOf(l, at-l.HeldMillis))
			}
			h := &holds[n]
			h.EndedUnixMillis, h.Ended, h.Reason, h.Command, h.By, h.Text = at, l.Event, l.Reason, l.Command, l.By, l.Text
			delete(open, of)
		}
	}
	return holds
}

func holdOf(l *Line, since int64) Hold {
	return Hold{
		Key: l.Key, KeyBase64: l.KeyBase64, DB: l.DB, Kind: l.Kind, Owner: l.Owner, OwnerBase64: l.OwnerBase64,
		Fence: l.Fence, Session: l.Session, Client: l.Client, Addr: l.Addr, Name: l.Name, User: l.User,
		SinceUnixMillis: since, WaitedMillis: l.WaitedMillis, Index: l.Index,
	}
}
