package reconfig

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/server/members"
)

// Op is what is asked for.
type Op string

// The operations.
const (
	Join      Op = "join"     // a node asks to be a member, without a vote
	Promote   Op = "promote"  // a member gets a vote
	Demote    Op = "demote"   // a voter loses its vote
	Remove    Op = "remove"   // a member is one no more
	Replace   Op = "replace"  // By takes the place of Member
	Transfer  Op = "transfer" // Member leads; "": another node than now
	Readdress Op = "address"  // a node has another address
	Repair    Op = "repair"   // a member replaces its state by the leader's
)

// Request is an operation. Member and By are names or IDs.
type Request struct {
	Op     Op     `json:"op"`
	Member string `json:"member,omitempty"`
	By     string `json:"by,omitempty"`
	// Addr is where other nodes dial the member: for [Join] and [Readdress].
	Addr string `json:"addr,omitempty"`
	// Cluster is the cluster that the folder of a joining node belongs to; "": none yet.
	Cluster string `json:"cluster,omitempty"`
	// LogFormat is the newest version of the log that a joining node can use.
	LogFormat byte `json:"logFormat,omitempty"`
	Force     bool `json:"force,omitempty"`
	// Known: Member was found. A member that was found and is there no more has been removed since; otherwise there may
	// be no such member.
	Known bool `json:"known,omitempty"`
	// Voted: By had a vote when the replacement was asked for, and none was under way.
	Voted bool  `json:"voted,omitempty"`
	Asker Asker `json:"asker"`
}

// Asker is who asks, and from where.
type Asker struct {
	Node string `json:"node,omitempty"` // the name of the node that was asked
	User string `json:"user,omitempty"`
	Addr string `json:"addr,omitempty"` // of the client, or of the node that joins
	Name string `json:"name,omitempty"` // by CLIENT SETNAME
}

// Reply is what became of a request.
type Reply struct {
	// Said is what was done, a line each, also before a refusal.
	Said []string `json:"said,omitempty"`
	// Refused is why nothing more is done, in one line; "": all is done, or Elsewhere or Uncertain is set.
	Refused string `json:"refused,omitempty"`
	// Elsewhere: the asked node does not lead, and Leader, if it is known, does. Request is the request with IDs for
	// names.
	Elsewhere bool     `json:"elsewhere,omitempty"`
	Leader    string   `json:"leader,omitempty"`
	Request   *Request `json:"request,omitempty"`
	// Uncertain: the last step may have been taken, or may still be.
	Uncertain bool `json:"uncertain,omitempty"`
	// Cluster and Configuration are for a node that joins.
	Cluster       string                `json:"cluster,omitempty"`
	Configuration members.Configuration `json:"configuration,omitempty"`
}

// Refusal is why a request is not carried out.
type Refusal struct {
	Text string
	// Passing: the refusal is for nodes that do not answer, which may be over in a moment.
	Passing bool
}

// Error is the text.
func (r *Refusal) Error() string { return r.Text }

func refuse(format string, args ...any) *Refusal { return &Refusal{Text: fmt.Sprintf(format, args...)} }

// View is the cluster as a node sees it at one instant.
type View struct {
	Self, Cluster string // IDs
	Leader        string // ID; "": not known
	Leads         bool   // this node leads and serves
	Version       byte   // of the cluster
	// Configuration is in effect. Changing: it is not committed yet.
	members.Configuration
	Changing bool
	Last     uint64 // index of this node's last entry
	Nodes    map[string]Node
}

// Node is what the leader knows of a member.
type Node struct {
	Silent bool      // the member has not answered for an election timeout
	Match  uint64    // the member's log agrees with the leader's up to here
	Heard  time.Time // when the member last answered
	// Differs: the member's state differs from other members', as far as is known. Quarantined: it cannot lead therefore.
	Differs, Quarantined bool
	// Pace is whether the member keeps up, as far as this was looked at.
	Pace Pace
}

// Pace says whether a member keeps up with the log.
type Pace int

// The paces.
const (
	Unseen Pace = iota // not looked at
	KeepsUp
	Lags
)

// live reports whether the member answers.
func (v *View) live(id string) bool {
	n, ok := v.Nodes[id]
	return id == v.Self || ok && !n.Silent
}

// cannotLead says why a member could not lead; "": it could. If it is silent, it may answer again.
func (v *View) cannotLead(m members.Member) (why string) {
	return members.CannotLead(m.Voter, v.live(m.ID), v.Nodes[m.ID].Quarantined)
}

// find finds a member by ID or name.
func (v *View) find(who string) (members.Member, bool) {
	if m, ok := v.Find(who); ok {
		return m, true
	}
	return v.Named(who)
}

// about finds the member that a request is about. Another one may have the name of a member that was found before.
func (v *View) about(q Request) (members.Member, bool) {
	if q.Known {
		return v.Find(q.Member)
	}
	return v.find(q.Member)
}

// Pin puts IDs in the place of names, so that the request means the same nodes from here on.
func (v *View) Pin(q Request) Request {
	if q.Op == Join {
		return q
	}
	by, found := v.find(q.By)
	if m, ok := v.about(q); ok {
		// Half way through a replacement of one of an odd number of voters, as is usual, their number is even.
		q.Voted = q.Voted || !q.Known && found && by.Voter && v.Voters()%2 == 1
		q.Member, q.Known = m.ID, true
	}
	if found {
		q.By = by.ID
	}
	return q
}

// removed reports whether the member that is asked about was removed, rather than never there: an ID is not mistyped.
func (q Request) removed() bool { return q.Known || isID(q.Member) }

// isID reports whether who is an ID and no name.
func isID(who string) bool { return strings.Contains(who, "@") }
