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
