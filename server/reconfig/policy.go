package reconfig

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/server/members"
)

// Action is the kind of a step.
type Action int

// The actions.
const (
	Nothing    Action = iota // the request is complete
	Watch                    // measure whether the member keeps up
	HandOver                 // the leadership goes to the member
	AddMember                // the node becomes a member without a vote
	GiveVote                 // the member gets a vote
	TakeVote                 // the member loses its vote
	TakeOut                  // the member leaves the cluster
	SetAddress               // the member gets the address
	TakeState                // the member replaces its state by the leader's
)

// Step is one change towards what a request asks for. Outcome is the line that reports it once it is done.
type Step struct {
	Do      Action
	Member  members.Member
	Outcome string
	// Risky reports that a voter does not answer, and that after the step the loss of another one stops the cluster.
	Risky bool
}

// Next returns the next step towards what q asks for, on the leader whose view is v. The step depends on v and q alone,
// so that a new leader continues where the last one stopped.
func Next(v View, q Request) (Step, *Refusal) {
	decide, ok := deciders[q.Op]
	if !ok {
		return Step{}, refuse("%q is no operation on members", q.Op)
	}
	return decide(&v, q)
}

var deciders = map[Op]func(v *View, q Request) (Step, *Refusal){
	Join: join, Promote: promote, Demote: demote, Remove: remove, Replace: replace, Transfer: transfer,
	Readdress: readdress, Repair: repair,
}

func done(format string, args ...any) (Step, *Refusal) {
	return Step{Outcome: fmt.Sprintf(format, args...)}, nil
}

// member returns a member by ID or name.
func (v *View) member(who string) (members.Member, *Refusal) {
	if m, ok := v.find(who); ok {
		return m, nil
	}
	return members.Member{}, v.refuseUnknown(who)
}

// refuseUnknown refuses a request about a node that is no member. The text lists the members.
func (v *View) refuseUnknown(who string) *Refusal {
	var names []string
	for _, m := range v.Members {
		names = append(names, m.Name())
	}
	return refuse("no member is called %q, the members are %s", who, strings.Join(names, ", "))
}

// join adds a node as a member without a vote.
func join(v *View, q Request) (Step, *Refusal) {
	name := members.Name(q.Member)
	if q.Cluster != "" && q.Cluster != v.Cluster {
		return Step{}, refuse("the folder of %s belongs to cluster %s, and this is cluster %s: join with an empty folder",
			name, q.Cluster, v.Cluster)
	}
	if m, ok := v.Find(q.Member); ok {
		if m.Addr == q.Addr {
			return done("%s is a member already", name)
		}
		return readdress(v, q)
	}
	if q.LogFormat < v.Version {
		return Step{},
			refuse("%s runs an older release, with log format %d, and this cluster has version %d: install the newer "+
				"release there", name, q.LogFormat, v.Version)
	}
	if !members.ValidName(name) || q.Member == "" {
		return Step{}, refuse("name %q: use 1 to 64 letters, digits, '-', '_' or '.'", name)
	}
	if m, ok := v.Named(name); ok {
		return Step{},
			refuse("the name %s is in use: take another name, or remove that member first (holdfast cluster remove %s)", name,
				m.ID)
	}
	if refusal := v.checkAddress(q.Addr); refusal != nil {
		return Step{}, refusal
	}
	if len(v.Members) >= members.Max {
		return Step{}, refuse("the cluster has %d members, which is the most: remove one first", len(v.Members))
	}
	return Step{
		Do: AddMember, Member: members.Member{ID: q.Member, Addr: q.Addr},
		Outcome: fmt.Sprintf("%s joined at %s, without a vote", name, q.Addr),
	}, nil
}

// checkAddress refuses an address that is invalid, that other nodes cannot dial, or that a member has.
func (v *View) checkAddress(addr string) *Refusal {
	host, port, err := net.SplitHostPort(addr)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n == 0 || host == "" {
		return refuse("address %q: use host:port", addr)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return refuse("address %s: other nodes cannot dial it; say the address of one interface", addr)
	}
	if m, ok := v.At(addr); ok {
		return refuse("the address %s is in use by %s", addr, m.Name())
	}
	return nil
}

func readdress(v *View, q Request) (Step, *Refusal) {
	m, refusal := v.member(q.Member)
	if refusal != nil {
		return Step{}, refusal
	}
	if m.Addr == q.Addr {
		return done("%s has the address %s", m.Name(), m.Addr)
	}
	if refusal := v.checkAddress(q.Addr); refusal != nil {
		return Step{}, refusal
	}
	was := m.Addr
	m.Addr = q.Addr
	return Step{Do: SetAddress, Member: m, Outcome: fmt.Sprintf("%s moved from %s to %s", m.Name(), was, m.Addr)}, nil
}

func promote(v *View, q Request) (Step, *Refusal) {
	m, refusal := v.member(q.Member)
	if refusal != nil {
		return Step{}, refusal
	}
	if m.Voter {
		return done("%s has a vote", m.Name())
	}
	return v.giveVote(m)
}

// giveVote promotes a member that keeps up.
func (v *View) giveVote(m members.Member) (Step, *Refusal) {
	n := v.Nodes[m.ID]
	switch {
	case !v.isLive(m.ID):
		return Step{}, &Refusal{Text: fmt.Sprintf("%s does not answer the leader", m.Name()), Transient: true}
	case n.Pace == Lags:
		return Step{}, refuse("%s does not keep up: its log is %d entries behind the leader's", m.Name(),
			max(0, int64(v.Last)-int64(n.Match)))
	case n.Quarantined:
		return Step{}, refuse("%s is in quarantine, as its state differs from the other members', and could not lead: "+
			"repair it first (holdfast cluster repair %s)", m.Name(), m.Name())
	case n.Pace == PaceUnknown:
		return Step{Do: Watch, Member: m}, nil
	}
	m.Voter = true
	c := v.countVoters("")
	c.voters, c.live, c.canLead = c.voters+1, c.live+1, c.canLead+1
	return Step{GiveVote, m, fmt.Sprintf("%s got a vote: %s", m.Name(), c), c.isRisky()}, nil
}

func demote(v *View, q Request) (Step, *Refusal) {
	m, refusal := v.member(q.Member)
	if refusal != nil {
		return Step{}, refusal
	}
	if !m.Voter {
		return done("%s has no vote", m.Name())
	}
	if refusal := v.checkRemovable(m, q.Force); refusal != nil {
		return Step{}, refusal
	}
	if step, ok := v.handOverFirst(m); ok {
		return step, nil
	}
	c := v.countVoters(m.ID)
	return Step{TakeVote, m, fmt.Sprintf("%s lost its vote: %s", m.Name(), c), c.isRisky()}, nil
}

func remove(v *View, q Request) (Step, *Refusal) {
	m, ok := v.target(q)
	if !ok && q.removed() {
		return done("%s is no member", q.Member)
	}
	if !ok {
		_, refusal := v.member(q.Member)
		return Step{}, refusal
	}
	return v.removeMember(m, q.Force)
}

// removeMember removes a member, after it handed the leadership over if it leads.
func (v *View) removeMember(m members.Member, force bool) (Step, *Refusal) {
	if !m.Voter {
		return Step{Do: TakeOut, Member: m, Outcome: fmt.Sprintf("%s was removed: it had no vote", m.Name())}, nil
	}
	if refusal := v.checkRemovable(m, force); refusal != nil {
		return Step{}, refusal
	}
	if step, ok := v.handOverFirst(m); ok {
		return step, nil
	}
	c := v.countVoters(m.ID)
	return Step{TakeOut, m, fmt.Sprintf("%s was removed: %s", m.Name(), c), c.isRisky()}, nil
}

// replace gives Member's vote to By, which has joined before, and removes Member. If Member answers, By gets its vote
// first, so that no fewer voters answer at any time. If Member is silent, it is removed first: until then its vote only
// raises the number of voters that must answer. A By that has a vote already is accepted only to complete an
// interrupted replacement, or if Member is silent: otherwise the cluster would lose a voter that answers.
func replace(v *View, q Request) (Step, *Refusal) {
	by, joined := v.find(q.By)
	old, there := v.target(q)
	switch {
	case !joined:
		return Step{}, refuse("no member is called %q: start that node with --join first", q.By)
	case !there && !q.removed():
		_, refusal := v.member(q.Member)
		if !by.Voter {
			refusal.Text += fmt.Sprintf("; if it is removed already, give %s its vote (holdfast cluster promote %s)", by.Name(),
				by.Name())
		}
		return Step{}, refusal
	case there && old.ID == by.ID:
		return Step{}, refuse("%s cannot replace itself", by.Name())
	case there && !old.Voter: // a member without a vote
		return v.removeMember(old, q.Force)
	case !by.Voter:
		step, refusal := v.giveVote(by)
		if refusal == nil && step.Do == GiveVote && there && !v.isLive(old.ID) {
			return v.removeMember(old, q.Force)
		}
		return step, refusal
	case there && q.WasVoter && v.isLive(old.ID) && !q.Force: // a mistyped name would remove a good voter
		return Step{}, refuse("%s has a vote already, and %s answers: if %s is to go without a successor, remove it",
			by.Name(), old.Name(), old.Name())
	case there:
		return v.removeMember(old, q.Force)
	}
	return done("%s has the place of %s", by.Name(), members.Name(q.Member))
}

func transfer(v *View, q Request) (Step, *Refusal) {
	if q.Member == "" {
		best, ok := v.bestSuccessor("")
		if !ok {
			return Step{}, &Refusal{Text: "no other voter answers that could lead", Transient: true}
		}
		return handOver(v, best), nil
	}
	m, refusal := v.member(q.Member)
	switch {
	case refusal != nil:
		return Step{}, refusal
	case m.ID == v.Self:
		return done("%s leads", m.Name())
	case !m.Voter:
		return Step{}, refuse("%s has no vote, and cannot lead", m.Name())
	case !v.isLive(m.ID):
		return Step{}, &Refusal{Text: fmt.Sprintf("%s does not answer the leader", m.Name()), Transient: true}
	case v.whyCannotLead(m) != "":
		return Step{},
			refuse("%s is in quarantine, as its state differs from the other members', and cannot lead: repair it first",
				m.Name())
	}
	return handOver(v, m), nil
}

// repair replaces a member's state by the leader's.
func repair(v *View, q Request) (Step, *Refusal) {
	m, refusal := v.member(q.Member)
	switch {
	case refusal != nil:
		return Step{}, refusal
	case m.ID == v.Self:
		return Step{},
			refuse("%s leads, and its state is what the others get: have another member lead first (holdfast cluster transfer)",
				m.Name())
	case !v.isLive(m.ID):
		return Step{}, &Refusal{Text: fmt.Sprintf("%s does not answer the leader", m.Name()), Transient: true}
	case !v.Nodes[m.ID].Differs && !q.Force:
		return Step{},
			refuse("the state of %s is not known to differ from the other members': use force if it is to be replaced "+
				"all the same", m.Name())
	}
	return Step{Do: TakeState, Member: m}, nil
}

func handOver(v *View, to members.Member) Step {
	outcome := fmt.Sprintf("%s handed the leadership over to %s", members.Name(v.Self), to.Name())
	return Step{Do: HandOver, Member: to, Outcome: outcome}
}

// handOverFirst returns the hand-over that a leader makes before it loses its vote, if another voter can lead.
func (v *View) handOverFirst(m members.Member) (Step, bool) {
	if m.ID != v.Self {
		return Step{}, false
	}
	best, ok := v.bestSuccessor(m.ID)
	return handOver(v, best), ok
}

// bestSuccessor returns the voter with most of the log among those that can lead, other than this node and except.
func (v *View) bestSuccessor(except string) (best members.Member, ok bool) {
	for _, m := range v.Members {
		if m.ID == v.Self || m.ID == except || v.whyCannotLead(m) != "" {
			continue
		}
		if !ok || v.Nodes[m.ID].Match > v.Nodes[best.ID].Match {
			best, ok = m, true
		}
	}
	return best, ok
}

// voterCounts are numbers of voters: all, those that answer, those that can lead, and those that are not in quarantine,
// whether they answer or not.
type voterCounts struct{ voters, live, canLead, trusted int }

// countVoters counts the voters other than without.
func (v *View) countVoters(without string) (c voterCounts) {
	for _, m := range v.Members {
		if !m.Voter || m.ID == without {
			continue
		}
		c.voters++
		if v.isLive(m.ID) {
			c.live++
		}
		if v.whyCannotLead(m) == "" {
			c.canLead++
		}
		if !v.Nodes[m.ID].Quarantined {
			c.trusted++
		}
	}
	return c
}

// checkRemovable refuses to take a vote without which no majority answers or no voter could lead. Force overrides that,
// but not the loss of the last voter or of the last one whose state is good.
func (v *View) checkRemovable(m members.Member, force bool) *Refusal {
	c, quorum := v.countVoters(m.ID), members.Quorum(v.Voters()-1)
	var silent, quarantined []string
	for _, other := range v.Members {
		switch {
		case !other.Voter || other.ID == m.ID:
		case v.Nodes[other.ID].Quarantined:
			quarantined = append(quarantined, other.Name())
		case !v.isLive(other.ID):
			silent = append(silent, other.Name())
		}
	}
	repair := fmt.Sprintf("repair %s first (holdfast cluster repair)", strings.Join(quarantined, ", "))
	switch {
	case c.voters == 0:
		return refuse("%s is the last voter", m.Name())
	case c.trusted == 0:
		return refuse("%s is the last voter that is not in quarantine, and without it none could lead: %s", m.Name(), repair)
	case force:
		return nil
	case c.live < quorum:
		return &Refusal{
			Text: fmt.Sprintf("without %s %d of %d voters would answer, and %d must: mend or remove %s first, or use force",
				m.Name(), c.live, c.voters, quorum, strings.Join(silent, ", ")),
			Transient: true,
		}
	case c.canLead == 0:
		return &Refusal{
			Text:      fmt.Sprintf("without %s no voter that answers could lead: %s, or use force", m.Name(), repair),
			Transient: true,
		}
	}
	return nil
}

// isRisky reports whether some voter cannot lead and the loss of another one stops the cluster.
func (c voterCounts) isRisky() bool {
	return c.canLead < c.voters && members.Margin(c.voters, c.live, c.canLead) <= 0
}

// String describes how many voters may fail.
func (c voterCounts) String() string {
	switch margin := members.Margin(c.voters, c.live, c.canLead); {
	case c.voters == 1:
		return "1 voter, and its loss stops the cluster"
	case c.live < members.Quorum(c.voters):
		return fmt.Sprintf("%d voters, of which %d answer: the cluster stands still", c.voters, c.live)
	case c.canLead == 0:
		return fmt.Sprintf("%d voters, of which none could lead: the cluster stands still", c.voters)
	case margin == 0 && c.canLead < c.live:
		return fmt.Sprintf("%d voters, of which %d could lead: the loss of one stops the cluster", c.voters, c.canLead)
	case margin == 0:
		return fmt.Sprintf("%d voters, and the loss of one that answers stops the cluster", c.voters)
	case margin == 1:
		return fmt.Sprintf("%d voters, of which 1 may fail", c.voters)
	default:
		return fmt.Sprintf("%d voters, of which %d may fail", c.voters, margin)
	}
}

// String returns the action in a few words.
func (a Action) String() string {
	return [...]string{
		"nothing", "watch", "hand over", "add", "give a vote", "take the vote", "take out", "set the address",
		"take the state",
	}[a]
}
