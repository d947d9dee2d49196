package reconfig

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/server/members"
)

// Op is an operation on the members.
type Op string

// The operations.
const (
	Join      Op = "join"     // a node becomes a member without a vote
	Promote   Op = "promote"  // a member gets a vote
	Demote    Op = "demote"   // a voter loses its vote
	Remove    Op = "remove"   // a member leaves the cluster
	Replace   Op = "replace"  // By takes the place of Member
	Transfer  Op = "transfer" // Member becomes the leader; "": any other voter
	Readdress Op = "address"  // a member gets another address
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
	// Resolved reports that Member is the ID of a node that was a member when the request was made. If it is none any
	// more, it has been removed since. If Resolved is false, there may never have been such a member.
	Resolved bool `json:"resolved,omitempty"`
	// WasVoter reports that By had a vote when a replacement was asked for, and that no replacement was under way.
	WasVoter bool  `json:"wasVoter,omitempty"`
	Asker    Asker `json:"asker"`
}

// Asker is the client or node that made a request.
type Asker struct {
	Node string `json:"node,omitempty"` // the name of the node that was asked
	User string `json:"user,omitempty"`
	Addr string `json:"addr,omitempty"` // of the client, or of the node that joins
	Name string `json:"name,omitempty"` // by CLIENT SETNAME
}

// Reply is the outcome of a request.
type Reply struct {
	// Steps are the outcomes of the steps that were taken, a line each, also of those before a refusal.
	Steps []string `json:"steps,omitempty"`
	// Error is the reason of a refusal, in one line; "": the request is complete, or NotLeader or Uncertain is set.
	Error string `json:"error,omitempty"`
	// NotLeader reports that the asked node does not lead. Leader is the ID of the leader, "" if unknown, and Request is
	// the request with names replaced by IDs.
	NotLeader bool     `json:"notLeader,omitempty"`
	Leader    string   `json:"leader,omitempty"`
	Request   *Request `json:"request,omitempty"`
	// Uncertain reports that the last step may have been taken, or may still be taken.
	Uncertain bool `json:"uncertain,omitempty"`
	// Cluster and Configuration are for a node that joins.
	Cluster       string                `json:"cluster,omitempty"`
	Configuration members.Configuration `json:"configuration,omitempty"`
}

// Refusal is the error of a request that is not carried out.
type Refusal struct {
	Text string
	// Transient reports that the refusal is because of nodes that do not answer, and may answer a moment later.
	Transient bool
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
	// Configuration is in effect. Changing reports that it is not committed yet.
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
	// Differs reports that the member's state is known to differ from other members'. Quarantined reports that the member
	// cannot lead for that reason.
	Differs, Quarantined bool
	// Pace is the last measurement of whether the member keeps up.
	Pace Pace
}

// Pace says whether a member keeps up with the log.
type Pace int

// The paces.
const (
	PaceUnknown Pace = iota // not measured
	KeepsUp
	Lags
)

// isLive reports whether the member has answered within the last election timeout. This node always is.
func (v *View) isLive(id string) bool {
	n, ok := v.Nodes[id]
	return id == v.Self || ok && !n.Silent
}

// whyCannotLead returns the reason why a member cannot lead, or "". A silent member may answer again.
func (v *View) whyCannotLead(m members.Member) (why string) {
	return members.CannotLead(m.Voter, v.isLive(m.ID), v.Nodes[m.ID].Quarantined)
}

// find returns a member by ID or name.
func (v *View) find(who string) (members.Member, bool) {
	if m, ok := v.Find(who); ok {
		return m, true
	}
	return v.Named(who)
}

// target returns the member that a request is about: by ID alone once the request is resolved, as another member may
// have got its name since.
func (v *View) target(q Request) (members.Member, bool) {
	if q.Resolved {
		return v.Find(q.Member)
	}
	return v.find(q.Member)
}

// Pin replaces names by IDs, so that the request means the same nodes on every leader.
func (v *View) Pin(q Request) Request {
	if q.Op == Join {
		return q
	}
	by, found := v.find(q.By)
	if m, ok := v.target(q); ok {
		// The number of voters is usually odd, and even only while a replacement is half done.
		q.WasVoter = q.WasVoter || !q.Resolved && found && by.Voter && v.Voters()%2 == 1
		q.Member, q.Resolved = m.ID, true
	}
	if found {
		q.By = by.ID
	}
	return q
}

// removed reports whether a request about a node that is no member concerns a former one. An ID is never mistyped, so
// it counts as one.
func (q Request) removed() bool { return q.Resolved || isID(q.Member) }

// isID reports whether who is an ID and no name.
func isID(who string) bool { return strings.Contains(who, "@") }
