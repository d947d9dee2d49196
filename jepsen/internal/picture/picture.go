// Package picture draws which clients believed to hold a lock, over time, in runs of one schedule
// of faults against several targets: a panel for each, all above one axis of time.
//
// It promises that a bar is what the checker of exclusion goes by: from the reply that granted the
// lock until the client sent the release, or until the lease was over by the client's own clock.
// The same runs give the same bytes.
//
// Start reading at [Picture].
package picture

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
)

// Picture is the runs, and what the runs have in common.
type Picture struct {
	Seed    uint64        `json:"seed"`
	Time    time.Duration `json:"time"`
	Nodes   int           `json:"nodes"`
	Clients int           `json:"clients"`
	Runs    []Run         `json:"runs"`
}

// Run is one run of the workload onelock.
type Run struct {
	Target  string `json:"target"`
	Version string `json:"version"` // as the server prints

	History *history.History `json:"-"`
}

// The files of a picture; beside them is a history for each target.
const (
	drawing = "picture.svg"
	facts   = "runs.json"
)

// Write writes the picture and all data of the picture into a folder.
func (p *Picture) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	files := map[string][]byte{facts: append(text, '\n'), drawing: p.SVG()}
	for _, r := range p.Runs {
		var lines strings.Builder
		if err := essence(r.History).WriteJSON(&lines); err != nil {
			return err
		}
		files[r.Target+".jsonl"] = []byte(lines.String())
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("write picture: %w", err)
		}
	}
	return nil
}

// Read reads what [Picture.Write] wrote.
func Read(dir string) (*Picture, error) {
	text, err := os.ReadFile(filepath.Join(dir, facts))
	if err != nil {
		return nil, fmt.Errorf("read picture: %w", err)
	}
	p := &Picture{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("read %s: %w", facts, err)
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		if r.History, err = history.ReadFile(filepath.Join(dir, r.Target+".jsonl")); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// essence is the part of a history that is drawn: grants, the releases of their owners, and faults.
func essence(h *history.History) *history.History {
	granted := map[int64]bool{}
	return h.Filter(func(o *history.Op) bool {
		if o.F == "acquire" && o.Outcome == history.OK && o.Out(0) == 1 {
			granted[o.In(0)] = true
			return true
		}
		return o.F == "release" && granted[o.In(0)]
	})
}

// span is from one time to another, in nanoseconds on the run's clock.
type span struct{ from, to int64 }

// bar is a time in which a client believed to hold the lock, and the parts in which another did, too.
type bar struct {
	client int
	span
	shared []span
}

// bars are the bars of a run in the order they began, and how many began while another was there.
func bars(h *history.History) (bars []bar, double int) {
	for _, b := range checker.Beliefs(h.Ops, checker.Clocks{}) {
		if b.Until > b.From {
			bars = append(bars, bar{client: int(b.Grant.In(2)), span: span{b.From, b.Until}})
		}
	}
	for i := range bars {
		met := false
		for j := range bars {
			from, to := max(bars[i].from, bars[j].from), min(bars[i].to, bars[j].to)
			if i == j || from >= to {
				continue
			}
			bars[i].shared = append(bars[i].shared, span{from, to})
			met = met || j < i
		}
		if met {
			double++
		}
		bars[i].shared = union(bars[i].shared)
	}
	return bars, double
}

// union joins spans that touch.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	var joined []span
	for _, s := range spans {
		if last := len(joined) - 1; last >= 0 && s.from <= joined[last].to {
			joined[last].to = max(joined[last].to, s.to)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// name is what a reader calls a target.
func (r *Run) name() string {
	switch r.Target {
	case "redis-sentinel":
		return "Redis with Sentinel"
	case "holdfast":
		return "Holdfast"
	}
	return r.Target
}

// release is the name with the version: "Redis 7.0.15 with Sentinel".
func (r *Run) release() string {
	product, rest, _ := strings.Cut(r.name(), " ")
	words := []string{product}
	for word := range strings.FieldsSeq(r.Version) {
		word = strings.TrimPrefix(word, "v=")
		if word[0] >= '0' && word[0] <= '9' {
			words = append(words, word)
			break
		}
	}
	return strings.TrimSpace(strings.Join(words, " ") + " " + rest)
}

// count is what a panel says of a run.
func count(double int) string {
	switch double {
	case 0:
		return "never two holders at once"
	case 1:
		return "two holders at once, one time"
	}
	return fmt.Sprintf("two holders at once, %d times", double)
}

// happened names a fault for a reader with five seconds.
func happened(fault string) string {
	switch word, _, _ := strings.Cut(fault, "-"); word {
	case "kill":
		return "leader killed"
	case "partition":
		return "leader cut off"
	}
	return fault
}
