// Package checker judges histories.
//
// A history that is called [Invalid] cannot have come from a server that keeps Holdfast's promises: checkers report
// nothing that clocks and unknown outcomes can explain. A history that is called [Valid] was judged: too few
// operations, or a search that ran out of time, give [Unknown]. The tests have histories that are wrong on purpose,
// each of which a checker must refuse.
//
// There are two kinds of checkers. Models of package porcupine (models.go, lock.go, native.go, list.go) decide
// linearizability exactly, key by key; for counters there is a faster way (linear.go). Direct checks read a whole
// history, and say in words what is wrong: exclusion.go (two holders, lost leases), ttl.go, counter.go, list.go,
// queue.go, messages.go, caches.go, sharing.go. availability.go only measures.
//
// The checkers assume of a lease: the holder counts it from before the request was sent, on the holder's own monotonic
// clock, for ttl × (1 − drift). Drift is the bound on the error of clock rates for which the promise is given, zero
// unless a run changes clock rates. Once the holder has sent the release, nothing is promised.
//
// Workloads name the checkers that apply. Start reading at [Result].
package checker

import (
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Verdict is the judgement of a checker.
type Verdict string

// The verdicts, from best to worst.
const (
	Valid   Verdict = "valid"
	Unknown Verdict = "unknown"
	Invalid Verdict = "INVALID"
)

// maxFindings bounds the findings that a result spells out. All are counted.
const maxFindings = 12

// minOps is the number of successful operations below which a result is Unknown.
const minOps = 10

// Result is one checker's judgement of one history.
type Result struct {
	Name     string   `json:"name"`
	Verdict  Verdict  `json:"verdict"`
	Looked   int      `json:"looked"`   // operations that were judged
	Total    int      `json:"total"`    // number of findings
	Findings []string `json:"findings"` // the first of them
	// Counts has further numbers by name.
	Counts map[string]int `json:"counts,omitempty"`
	// Timeline writes porcupine's page for the most informative key. It is nil for other checkers.
	Timeline func(path string) error `json:"-"`
}

// Func is a checker.
type Func func(*history.History) Result

// newResult returns a result that is valid until a finding is added. With too few operations it is Unknown.
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

// String returns the result in a few lines.
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

// Worst returns the verdict over several results, which is valid only if all of them are.
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

// External returns a result with what was found outside the history, such as state hashes or processes that ended.
func External(name string, looked int, findings []string) Result {
	r := Result{Name: name, Verdict: Valid, Looked: looked}
	for _, f := range findings {
		r.find("%s", f)
	}
	return r
}
