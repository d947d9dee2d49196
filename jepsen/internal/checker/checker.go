// Package checker judges histories.
//
// It promises: a history called [Invalid] cannot have come from a server that keeps
// Holdfast's promises, for the checkers never report what clocks and unknown outcomes
// can explain; and a history called [Valid] was looked at: too few operations, or a
// search that ran out of time, give [Unknown]. The tests hold histories that are
// wrong on purpose, and a checker must refuse each.
//
// Two kinds stand side by side. Models of package porcupine (models.go, lock.go,
// list.go) decide linearizability exactly, key by key; counters have a quicker way to the
// same answer (linear.go). Direct checks look at a whole history in one
// pass and say in words what is wrong: exclusion.go (two holders, lost
// leases), ttl.go, counter.go, list.go, queue.go, messages.go,
// caches.go, sharing.go. availability.go only counts.
//
// What a lease promises, and what the checkers therefore hold the server to:
// a holder counts a lease from before the request was sent, on the holder's own
// monotonic clock, for ttl × (1 − drift), where drift is the bound on the error of clock
// rates under which the promise is given (zero unless a run bends rates). A holder stops to
// believe when the release is sent. Nothing is promised after that.
//
// Workloads say which checkers apply. Start reading at [Result].
package checker

import (
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Verdict is what a checker says.
type Verdict string

// The verdicts, from best to worst.
const (
	Valid   Verdict = "valid"
	Unknown Verdict = "unknown"
	Invalid Verdict = "INVALID"
)

// maxFindings is how many findings a result spells out; all are counted.
const maxFindings = 12

// minOps is the number of successful operations below which nothing was shown.
const minOps = 10

// Result is one checker's judgement of one history.
type Result struct {
	Name     string   `json:"name"`
	Verdict  Verdict  `json:"verdict"`
	Looked   int      `json:"looked"`   // operations that were judged
	Total    int      `json:"total"`    // findings
	Findings []string `json:"findings"` // the first of them
	// Counts are numbers worth showing, by name.
	Counts map[string]int `json:"counts,omitempty"`
	// Timeline writes porcupine's page for the key that tells most; nil without.
	Timeline func(path string) error `json:"-"`
}

// Func is a checker.
type Func func(*history.History) Result

// newResult starts a result that is valid until a finding says otherwise.
func newResult(name string, looked int) *Result {
	r := &Result{Name: name, Verdict: Valid, Looked: looked, Counts: map[string]int{}}
	if looked < minOps {
		r.Verdict = Unknown
		r.Findings = append(r.Findings, fmt.Sprintf("only %d operations to judge: nothing was shown", looked))
	}
	return r
}

// find adds a finding.
func (r *Result) find(format string, args ...any) {
	r.Verdict = Invalid
	r.Total++
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// String is the result in a few lines.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %s (%d operations", r.Name, r.Verdict, r.Looked)
	for _, name := range sortedKeys(r.Counts) {
		fmt.Fprintf(&b, ", %s %d", name, r.Counts[name])
	}
	b.WriteString(")")
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n    %s", f)
	}
	if r.Total > len(r.Findings) {
		fmt.Fprintf(&b, "\n    … and %d more", r.Total-len(r.Findings))
	}
	return b.String()
}

// Worst is the verdict over several results: all must be valid.
func Worst(results []Result) Verdict {
	worst := Valid
	if len(results) == 0 {
		worst = Unknown
	}
	for _, r := range results {
		switch {
		case r.Verdict == Invalid:
			return Invalid
		case r.Verdict == Unknown:
			worst = Unknown
		}
	}
	return worst
}

// External makes a result of what was found outside the history (state hashes,
// processes that ended).
func External(name string, looked int, findings []string) Result {
	r := Result{Name: name, Verdict: Valid, Looked: looked}
	for _, f := range findings {
		r.find("%s", f)
	}
	return r
}
