package api

import (
	"fmt"

	"github.com/holdfast/holdfast/protocol"
)

// Verdicts about a cluster, the best first.
const (
	VerdictOK        = "OK"
	VerdictNotWell   = "NOT WELL"   // there are troubles
	VerdictAtRisk    = "AT RISK"    // the cluster stops when one more voter fails
	VerdictNoQuorum  = "NO QUORUM"  // too few voters answer the leader: no lock is granted
	VerdictNoLeader  = "NO LEADER"  // no lock is granted, and no lease runs out
	VerdictNotReady  = "NOT READY"  // the node has no state yet
	VerdictNoCluster = "NO CLUSTER" // the node belongs to none
)

// Cluster is a document about the members, as one node knows them.
type Cluster struct {
	Format int `json:"format"`
	// Verdict is how the cluster is, in a word: the terminal and the page show the same. Sentence says more.
	Verdict   string `json:"verdict"`
	Sentence  string `json:"sentence"`
	Node      string `json:"node"` // which says so
	NodeID    string `json:"nodeId"`
	ClusterID string `json:"clusterId"` // empty: the node belongs to none yet
	Role      string `json:"role"`      // of the node: leader, follower or non-voter
	Leader    string `json:"leader"`    // empty: none is known
	Term      int64  `json:"term"`
	// CommitIndex, AppliedIndex and LastIndex are of the node's log.
	CommitIndex  int64 `json:"commitIndex"`
	AppliedIndex int64 `json:"appliedIndex"`
	LastIndex    int64 `json:"lastIndex"`
	// ClusterVersion is of the log, and HeldBackBy are the names of the members that keep it from going up.
	ClusterVersion int64    `json:"clusterVersion"`
	HeldBackBy     []string `json:"heldBackBy"`
	Voters         int64    `json:"voters"`
	NonVoters      int64    `json:"nonVoters"`
	LiveVoters     int64    `json:"liveVoters"` // those that answer the leader
	Quorum         int64    `json:"quorum"`     // how many of them must
	AbleToLead     int64    `json:"ableToLead"` // those that could lead now
	// Margin is how many voters more may fail before the cluster stops; negative: it has stopped.
	Margin int64 `json:"margin"`
	// Troubles are what is wrong beside members that do not answer, a line each.
	Troubles []string `json:"troubles"`
	// Warnings are what members warn of in themselves, a line each. They change no verdict.
	Warnings []string `json:"warnings"`
	Members  []Member `json:"members"`
	// Waiting is for what the node waits while it belongs to no cluster, or has no state.
	Waiting string `json:"waiting,omitempty"`
}

// Member is a member of the cluster.
type Member struct {
	Name          string `json:"name"`
	ID            string `json:"id"`
	PeerAddress   string `json:"peerAddress"`
	ClientAddress string `json:"clientAddress"` // empty while unknown
	Voter         bool   `json:"voter"`
	Role          string `json:"role"`
	Answers       bool   `json:"answers"`              // the leader has heard from it within an election timeout
	CannotLead    string `json:"cannotLead,omitempty"` // why it could not lead now; empty: it could
	MatchIndex    int64  `json:"matchIndex"`
	LagEntries    *int64 `json:"lagEntries"`            // of the leader's log, which the member lacks; null: not known
	Version       string `json:"version"`               // of the release; empty while unknown
	LogFormat     int64  `json:"logFormat"`             // the newest that the member can use; 0: not known
	HoldVersion   int64  `json:"holdVersion,omitempty"` // the newest version that its operator wants; 0: any
	Incarnation   uint64 `json:"incarnation,omitempty"` // of the member's start, by the log; 0: it has written nothing yet
}

// ClusterOf makes a document of a reply to RAFT.STATUS.
func ClusterOf(v protocol.Value) (Cluster, error) {
	if !isMap(v) {
		return Cluster{}, fmt.Errorf("RAFT.STATUS: %w", errReply)
	}
	f := fieldsOf(v)
	c := Cluster{
		Format: Format, Node: f.text("node"), NodeID: f.text("node-id"), ClusterID: f.text("cluster-id"),
		ClusterVersion: f.number("cluster-version"), HeldBackBy: f.texts("held-back-by"), Troubles: f.texts("troubles"),
		Warnings: f.texts("warnings"),
		Role:     f.text("role"), Leader: f.text("leader"), Term: f.number("term"),
		CommitIndex: f.number("commit-index"), AppliedIndex: f.number("applied-index"), LastIndex: f.number("last-index"),
		Voters: f.number("voters"), NonVoters: f.number("non-voters"), LiveVoters: f.number("live-voters"),
		Quorum: f.number("quorum"), AbleToLead: f.number("able-to-lead"), Margin: f.number("margin"),
		Waiting: f.text("waiting"),
		Members: make([]Member, len(f["members"].Elems)),
	}
	for i, row := range f["members"].Elems {
		m := fieldsOf(row)
		c.Members[i] = Member{
			Name: m.text("name"), ID: m.text("id"), PeerAddress: m.text("peer-address"), ClientAddress: m.text("client-address"),
			Voter: m.flag("voter"), Role: m.text("role"), Answers: !m.flag("silent"),
			CannotLead: m.text("cannot-lead"), MatchIndex: m.number("match-index"),
			LagEntries: m.limited("lag"), Version: m.text("version"), LogFormat: m.number("log-format"),
			HoldVersion: m.number("hold-version"),
		}
	}
	c.Verdict, c.Sentence = c.judge()
	return c, nil
}

// judge returns the verdict, and a sentence. A cluster of one voter has none to spare, and is OK.
func (c *Cluster) judge() (verdict, sentence string) {
	switch {
	case c.Waiting != "" && c.ClusterID != "":
		return VerdictNotReady, fmt.Sprintf("%s does not take part yet: %s.", c.Node, c.Waiting)
	case c.Waiting != "":
		return VerdictNoCluster, fmt.Sprintf("%s belongs to no cluster yet: %s.", c.Node, c.Waiting)
	case c.Leader == "":
		return VerdictNoLeader, fmt.Sprintf("No leader is known to %s, in term %d: %d voters, of which %d must answer.",
			c.Node, c.Term, c.Voters, c.Quorum)
	}
	verdict = VerdictOK
	missing := c.Quorum - c.LiveVoters
	switch {
	case missing > 0 && c.Voters > 1:
		verdict = VerdictNoQuorum
	case c.Margin <= 0 && (c.Voters > 1 || len(c.Members) > 1):
		verdict = VerdictAtRisk
	case len(c.Troubles) > 0:
		verdict = VerdictNotWell
	}
	if c.Voters == 1 {
		return verdict, fmt.Sprintf("%s leads alone, in term %d.", c.Leader, c.Term)
	}
	could, spare := "", fmt.Sprintf("%d may fail", c.Margin)
	if c.AbleToLead > 0 && c.AbleToLead < c.LiveVoters {
		could = fmt.Sprintf(", %d could lead", c.AbleToLead)
	}
	switch {
	case missing == 1:
		spare = "no lock can be granted: 1 more voter must answer"
	case missing > 1:
		spare = fmt.Sprintf("no lock can be granted: %d more voters must answer", missing)
	case c.Margin <= 0:
		spare = "the cluster stops when one more fails"
	}
	return verdict, fmt.Sprintf("%s leads in term %d: %d of %d voters answer%s, %s.", c.Leader, c.Term, c.LiveVoters,
		c.Voters, could, spare)
}
