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
	Nothing    Action = iota // all is done
	Watch                    // find out whether the member keeps up
	HandOver                 // the member leads
	AddMember                // the member is one, without a vote
	GiveVote                 // the member gets a vote
	TakeVote                 // the member loses its vote
	TakeOut                  // the member is one no more
	SetAddress               // the member has the address
	TakeState                // the member's state is the leader's
)

// Step is the next thing to do. Says is what to tell when the step is done.
type Step struct {
	Do     Action
	Member members.Member
	Says   string
	// Risky: a voter does not answer, and after the step the loss of another one stops the cluster.
	Risky bool
}

// Next decides the next step towards what is asked, on the leader whose view is v. The step depends on nothing else, so
// that any leader goes on where another one was lost.
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
	return Step{Says: fmt.Sprintf(format, args...)}, nil
}

// member finds the node that a request is about.
func (v *View) member(who string) (members.Member, *Refusal) {
	if m, ok := v.find(who); ok {
		return m, nil
	}
	return members.Member{}, v.unknown(who)
}

// unknown refuses a request about a node that is no member, and names those that are.
func (v *View) unknown(who string) *Refusal {
	var names []string
	for _, m := range v.Members {
		names = append(names, m.Name())
	}
	return refuse("no member is called %q, the members are %s", who, strings.Join(names, ", "))
}

// join takes a node in as a member without a vote.
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
	if refusal := v.addressFree(q.Addr); refusal != nil {
		return Step{}, refusal
	}
	if len(v.Members) >= members.Max {
		return Step{}, refuse("the cluster has %d members, which is the most: remove one first", len(v.Members))
	}
	return Step{
		Do: AddMember, Member: members.Member{ID: q.Member, Addr: q.Addr},
		Says: fmt.Sprintf("%s joined at %s, without a vote", name, q.Addr),
	}, nil
}

// addressFree reports why no node can have the address.
func (v *View) addressFree(addr string) *Refusal {
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
	if refusal := v.addressFree(q.Addr); refusal != nil {
		return Step{}, refusal
	}
	was := m.Addr
	m.Addr = q.Addr
	return Step{Do: SetAddress, Member: m, Says: fmt.Sprintf("%s moved from %s to %s", m.Name(), was, m.Addr)}, nil
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

// giveVote makes a voter of a member that keeps up.
func (v *View) giveVote(m members.Member) (Step, *Refusal) {
	n := v.Nodes[m.ID]
	switch {
	case !v.live(m.ID):
		return Step{}, &Refusal{Text: fmt.Sprintf("%s does not answer the leader", m.Name()), Passing: true}
	case n.Pace == Lags:
		return Step{}, refuse("%s does not keep up: its log is %d entries behind the leader's", m.Name(),
			max(0, int64(v.Last)-int64(n.Match)))
	case n.Quarantined:
		return Step{}, refuse("%s is in quarantine, as its state differs from the other members', and could not lead: "+
			"repair it first (holdfast cluster repair %s)", m.Name(), m.Name())
	case n.Pace == Unseen:
		return Step{Do: Watch, Member: m}, nil
	}
	m.Voter = true
	c := v.count("")
	c.voters, c.live, c.lead = c.voters+1, c.live+1, c.lead+1
	return Step{GiveVote, m, fmt.Sprintf("%s got a vote: %s", m.Name(), c), c.risky()}, nil
}

func demote(v *View, q Request) (Step, *Refusal) {
	m, refusal := v.member(q.Member)
	if refusal != nil {
		return Step{}, refusal
	}
	if !m.Voter {
		return done("%s has no vote", m.Name())
	}
	if refusal := v.spare(m, q.Force); refusal != nil {
		return Step{}, refusal
	}
	if step, ok := v.leaveFirst(m); ok {
		return step, nil
	}
	c := v.count(m.ID)
	return Step{TakeVote, m, fmt.Sprintf("%s lost its vote: %s", m.Name(), c), c.risky()}, nil
}

func remove(v *View, q Request) (Step, *Refusal) {
	m, ok := v.about(q)
	if !ok && q.removed() {
		return done("%s is no member", q.Member)
	}
	if !ok {
		_, refusal := v.member(q.Member)
		return Step{}, refusal
	}
	return v.takeOut(m, q.Force)
}

// takeOut removes a member.
func (v *View) takeOut(m members.Member, force bool) (Step, *Refusal) {
	if !m.Voter {
		return Step{Do: TakeOut, Member: m, Says: fmt.Sprintf("%s was removed: it had no vote", m.Name())}, nil
	}
	if refusal := v.spare(m, force); refusal != nil {
		return Step{}, refusal
	}
	if step, ok := v.leaveFirst(m); ok {
		return step, nil
	}
	c := v.count(m.ID)
	return Step{TakeOut, m, fmt.Sprintf("%s was removed: %s", m.Name(), c), c.risky()}, nil
}

// replace gives By the place of Member. By has joined before. If the old member answers, the new one gets its vote
// first, so that as many voters as before answer at any time. If the old one is silent, it goes first: until it is
// gone, its vote only raises the number of voters that must answer. A member that has a vote replaces another only to
// complete what was interrupted, or if the old one is silent: nobody would take the place.
func replace(v *View, q Request) (Step, *Refusal) {
	by, joined := v.find(q.By)
	old, there := v.about(q)
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
	case there && !old.Voter: // an observer, whose place has no vote
		return v.takeOut(old, q.Force)
	case !by.Voter:
		step, refusal := v.giveVote(by)
		if refusal == nil && step.Do == GiveVote && there && !v.live(old.ID) {
			return v.takeOut(old, q.Force)
		}
		return step, refusal
	case there && q.Voted && v.live(old.ID) && !q.Force: // a slip in the second name would take a good voter out
		return Step{}, refuse("%s has a vote already, and %s answers: if %s is to go without a successor, remove it",
			by.Name(), old.Name(), old.Name())
	case there:
		return v.takeOut(old, q.Force)
	}
	return done("%s has the place of %s", by.Name(), members.Name(q.Member))
}

func transfer(v *View, q Request) (Step, *Refusal) {
	if q.Member == "" {
		best, ok := v.best("")
		if !ok {
			return Step{}, &Refusal{Text: "no other voter answers that could lead", Passing: true}
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
	case !v.live(m.ID):
		return Step{}, &Refusal{Text: fmt.Sprintf("%s does not answer the leader", m.Name()), Passing: true}
	case v.cannotLead(m) != "":
		return Step{},
			refuse("%s is in quarantine, as its state differs from the other members', and cannot lead: repair it first",
				m.Name())
	}
	return handOver(v, m), nil
}

// repair has a member replace its state.
func repair(v *View, q Request) (Step, *Refusal) {
	m, refusal := v.member(q.Member)
	switch {
	case refusal != nil:
		return Step{}, refusal
	case m.ID == v.Self:
		return Step{},
			refuse("%s leads, and its state is what the others get: have another member lead first (holdfast cluster transfer)",
				m.Name())
	case !v.live(m.ID):
		return Step{}, &Refusal{Text: fmt.Sprintf("%s does not answer the leader", m.Name()), Passing: true}
	case !v.Nodes[m.ID].Differs && !q.Force:
		return Step{},
			refuse("the state of %s is not known to differ from the other members': use force if it is to be replaced "+
				"all the same", m.Name())
	}
	return Step{Do: TakeState, Member: m}, nil
}

func handOver(v *View, to members.Member) Step {
	return Step{Do: HandOver, Member: to, Says: fmt.Sprintf("%s handed the leadership over to %s", members.Name(v.Self),
		to.Name())}
}

// leaveFirst has the leader hand over before it loses its vote, if another voter answers.
func (v *View) leaveFirst(m members.Member) (Step, bool) {
	if m.ID != v.Self {
		return Step{}, false
	}
	best, ok := v.best(m.ID)
	return handOver(v, best), ok
}

// best is the voter that could lead and has most of the log, other than this node.
func (v *View) best(except string) (best members.Member, ok bool) {
	for _, m := range v.Members {
		if m.ID == v.Self || m.ID == except || v.cannotLead(m) != "" {
			continue
		}
		if !ok || v.Nodes[m.ID].Match > v.Nodes[best.ID].Match {
			best, ok = m, true
		}
	}
	return best, ok
}

// tally counts voters: all, those that answer, those that could lead, and those that are not in quarantine, whether
// they answer or not.
type tally struct{ voters, live, lead, good int }

// count counts the voters but for one.
func (v *View) count(without string) (c tally) {
	for _, m := range v.Members {
		if !m.Voter || m.ID == without {
			continue
		}
		c.voters++
		if v.live(m.ID) {
			c.live++
		}
		if v.cannotLead(m) == "" {
			c.lead++
		}
		if !v.Nodes[m.ID].Quarantined {
			c.good++
		}
	}
	return c
}

// spare reports why the cluster cannot do without a voter. That none is left whose state is good nobody can want.
func (v *View) spare(m members.Member, force bool) *Refusal {
	c, quorum := v.count(m.ID), members.Quorum(v.Voters()-1)
	var silent, quarantined []string
	for _, other := range v.Members {
		switch {
		case !other.Voter || other.ID == m.ID:
		case v.Nodes[other.ID].Quarantined:
			quarantined = append(quarantined, other.Name())
		case !v.live(other.ID):
			silent = append(silent, other.Name())
		}
	}
	repair := fmt.Sprintf("repair %s first (holdfast cluster repair)", strings.Join(quarantined, ", "))
	switch {
	case c.voters == 0:
		return refuse("%s is the last voter", m.Name())
	case c.good == 0:
		return refuse("%s is the last voter that is not in quarantine, and without it none could lead: %s", m.Name(), repair)
	case force:
		return nil
	case c.live < quorum:
		return &Refusal{
			Text: fmt.Sprintf("without %s %d of %d voters would answer, and %d must: mend or remove %s first, or use force",
				m.Name(), c.live, c.voters, quorum, strings.Join(silent, ", ")),
			Passing: true,
		}
	case c.lead == 0:
		return &Refusal{
			Text:    fmt.Sprintf("without %s no voter that answers could lead: %s, or use force", m.Name(), repair),
			Passing: true,
		}
	}
	return nil
}

// risky reports whether a voter could not lead, and the loss of another one stops the cluster.
func (c tally) risky() bool {
	return c.lead < c.voters && members.Margin(c.voters, c.live, c.lead) <= 0
}

// String says what the cluster bears.
func (c tally) String() string {
	switch margin := members.Margin(c.voters, c.live, c.lead); {
	case c.voters == 1:
		return "1 voter, and its loss stops the cluster"
	case c.live < members.Quorum(c.voters):
		return fmt.Sprintf("%d voters, of which %d answer: the cluster stands still", c.voters, c.live)
	case c.lead == 0:
		return fmt.Sprintf("%d voters, of which none could lead: the cluster stands still", c.voters)
	case margin == 0 && c.lead < c.live:
		return fmt.Sprintf("%d voters, of which %d could lead: the loss of one stops the cluster", c.voters, c.lead)
	case margin == 0:
		return fmt.Sprintf("%d voters, and the loss of one that answers stops the cluster", c.voters)
	case margin == 1:
		return fmt.Sprintf("%d voters, of which 1 may fail", c.voters)
	default:
		return fmt.Sprintf("%d voters, of which %d may fail", c.voters, margin)
	}
}

// String is the action in a few words.
func (a Action) String() string {
	return [...]string{
		"nothing", "watch", "hand over", "add", "give a vote", "take the vote", "take out", "set the address",
		"take the state",
	}[a]
}
