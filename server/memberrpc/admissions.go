package memberrpc

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/members"
)

const (
	// admissionsEvery is the time between two rounds of handshakes, and admissionsAgain while any was refused: a refusal
	// is told of within a minute.
	admissionsEvery = 50 * time.Second
	admissionsAgain = 5 * time.Second
	// admissionWithin is how long a handshake and a reply may take.
	admissionWithin = 5 * time.Second
	// maxRefusals and maxWarnings bound what is taken from a reply.
	maxRefusals = 64
	maxWarnings = 8
)

// opAdmissions asks a node which other members it does not admit, or is not admitted by, and what it warns of.
const opAdmissions = "admissions"

// statement is a reply to opAdmissions.
type statement struct {
	Refusals []Refusal `json:"refusals"`
	Warnings []string  `json:"warnings"`
}

// Refusal is why two members do not admit each other.
type Refusal struct {
	A string `json:"a"` // the names of the two
	B string `json:"b"`
	// Text is the reason, as one of them learnt it.
	Text string `json:"text"`
}

// Admissions watches whether the other members admit this node, and this node them. A connection outlives the secret
// and the certificate that it was made with: without a look, one that no longer fits shows at the next failover.
type Admissions struct {
	config AdmissionsConfig
	now    chan struct{} // Check was called
	soon   chan struct{} // Suspect was called

	mu    sync.Mutex
	found map[string]admission // by ID: of members with which something is wrong
}

// admission is what the last round found out by asking a member.
type admission struct {
	refused string    // why the two do not admit each other; "": they do
	times   int       // in a row; the first time may be in the middle of a change of all secrets
	told    time.Time // when refused was told of
	said    statement // by the member
}

// lasts reports whether the refusal was met again.
func (f *admission) lasts() bool { return f.times > 1 }

// AdmissionsConfig is what [Admissions] needs. All fields must be set.
type AdmissionsConfig struct {
	Client *Client
	Self   string // this node's ID
	// Members returns the members of the cluster, this node among them or not.
	Members func() []members.Member
	// Own is what this node warns of in itself, as the others cannot see it; a sentence each.
	Own func() []string
	// Misfit reports whether an error of a dial is a refusal that no waiting mends.
	Misfit func(error) bool
	// Refused is told about each minute that a member and this node do not admit each other, and Admitted that they do
	// again.
	Refused  func(member members.Member, why string)
	Admitted func(member members.Member)
}

// NewAdmissions makes a watch that answers requests at s. Nothing is asked before Run.
func NewAdmissions(c AdmissionsConfig, s *Server) *Admissions {
	a := &Admissions{
		config: c, now: make(chan struct{}, 1), soon: make(chan struct{}, 1),
		found: make(map[string]admission),
	}
	Handle(s, opAdmissions, func(context.Context, Caller, struct{}) (statement, error) {
		return statement{a.own(), a.config.Own()}, nil
	})
	return a
}

// Check has the next round begin at once.
func (a *Admissions) Check() { notify(a.now) }

// Suspect has the next round begin soon: this node has refused another.
func (a *Admissions) Suspect() { notify(a.soon) }

// notify wakes the goroutine that listens on c, a channel with a buffer of one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run makes rounds until ctx ends.
func (a *Admissions) Run(ctx context.Context) {
	timer := time.NewTimer(admissionsAgain) // the other members may be starting, too
	defer timer.Stop()
	hurried := true
	for {
		select {
		case <-timer.C:
		case <-a.now:
		case <-a.soon:
			if !hurried { // strangers may have it called all the time
				timer.Reset(admissionsAgain)
				hurried = true
			}
			continue
		case <-ctx.Done():
			return
		}
		a.round(ctx)
		if hurried = a.suspects(); hurried {
			timer.Reset(admissionsAgain)
		} else {
			timer.Reset(admissionsEvery)
		}
	}
}

// round asks all other members at the same time.
func (a *Admissions) round(ctx context.Context) {
	all := slices.DeleteFunc(slices.Clone(a.config.Members()), func(m members.Member) bool {
		return m.ID == a.config.Self
	})
	a.forget(all)
	var asked sync.WaitGroup
	for _, m := range all {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, admissionWithin)
			defer cancel()
			said, err := Call[statement](ctx, a.config.Client, m.ID, opAdmissions, struct{}{})
			a.note(m, said, err)
		})
	}
	asked.Wait()
}

// suspects reports whether the last round found anything wrong.
func (a *Admissions) suspects() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.found) > 0
}

// forget drops what is known of members that are members no more.
func (a *Admissions) forget(all []members.Member) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.found { // unordered: each is looked at
		if !slices.ContainsFunc(all, func(m members.Member) bool { return m.ID == id }) {
			delete(a.found, id)
		}
	}
}

// note takes the end of asking m. A member that cannot be asked for another reason than a refusal admits whom it
// admitted before; what it warned of in itself may be over.
func (a *Admissions) note(m members.Member, said statement, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, next := a.found[m.ID], admission{}
	var remote *RemoteError // it has admitted this node, which it answers
	switch {
	case err != nil && a.config.Misfit(err):
		next = admission{refused: line(err.Error()), times: was.times + 1, told: was.told}
		if now := time.Now(); next.lasts() && now.Sub(was.told) >= admissionsEvery {
			next.told = now
			a.config.Refused(m, next.refused)
		}
	case err != nil && !errors.As(err, &remote):
		next = was
		next.said.Warnings = nil
	default:
		for _, r := range said.Refusals[:min(len(said.Refusals), maxRefusals)] {
			next.said.Refusals = append(next.said.Refusals, Refusal{line(r.A), line(r.B), line(r.Text)})
		}
		for _, text := range said.Warnings[:min(len(said.Warnings), maxWarnings)] {
			next.said.Warnings = append(next.said.Warnings, line(text))
		}
		if was.lasts() {
			a.config.Admitted(m)
		}
	}
	if a.found[m.ID] = next; next.refused == "" && next.said.Refusals == nil && next.said.Warnings == nil {
		delete(a.found, m.ID)
	}
}

// own are the refusals that this node has met.
func (a *Admissions) own() []Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Refusal
	for id, found := range a.found { // sorted below
		if found.lasts() {
			all = append(all, Refusal{members.Name(a.config.Self), members.Name(id), found.refused})
		}
	}
	slices.SortFunc(all, func(x, y Refusal) int { return strings.Compare(x.B, y.B) })
	return all
}

// Refusals are those between any two members that are known here: each pair once, by name.
func (a *Admissions) Refusals() []Refusal {
	all := a.own()
	a.mu.Lock()
	for _, found := range a.found { // sorted below
		all = append(all, found.said.Refusals...)
	}
	a.mu.Unlock()
	for i := range all {
		if r := &all[i]; r.B < r.A {
			r.A, r.B = r.B, r.A
		}
	}
	pair := func(x, y Refusal) int { return cmp.Or(strings.Compare(x.A, y.A), strings.Compare(x.B, y.B)) }
	slices.SortStableFunc(all, pair) // what this node has met comes first
	return slices.CompactFunc(all, func(x, y Refusal) bool { return pair(x, y) == 0 })
}

// Warnings are what this node warns of in itself, and then what the other members do, each behind the member's name.
func (a *Admissions) Warnings() (all []string) {
	warns := func(id string, texts []string) {
		for _, text := range texts {
			all = append(all, members.Name(id)+": "+text)
		}
	}
	warns(a.config.Self, a.config.Own())
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(a.found)) {
		warns(id, a.found[id].said.Warnings)
	}
	return all
}
