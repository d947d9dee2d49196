// Package report writes what a run leaves behind, in store/<time>/:
//
//	verdict.txt    the verdict, the seed, and the line that reproduces the run
//	report.html    the same, with plots of latency and service, faults shaded
//	results.json   the same for programs
//	history.jsonl  every operation and fault
//	history.edn    the same as Jepsen keeps it
//	schedule.txt   what was to be broken when
//	timeline-*.html  porcupine's page for the key that tells most
//	*.log          what the processes wrote
//
// Verdicts come from package checker. Start reading at [Report].
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast/holdfast/jepsen/internal/checker"
	"github.com/holdfast/holdfast/jepsen/internal/history"
	"github.com/holdfast/holdfast/jepsen/internal/schedule"
)

// Run says what was run.
type Run struct {
	Target    string        `json:"target"`
	Network   string        `json:"network"`
	Workload  string        `json:"workload"`
	Nemesis   string        `json:"nemesis"`
	Nodes     int           `json:"nodes"`
	Seed      uint64        `json:"seed"`
	Time      time.Duration `json:"time"`
	Version   string        `json:"version"` // of the server
	Began     time.Time     `json:"began"`
	Reproduce string        `json:"reproduce"`
}

// Report is everything known at the end of a run.
type Report struct {
	Run     Run              `json:"run"`
	Verdict checker.Verdict  `json:"verdict"`
	Results []checker.Result `json:"results"`
	Outages []checker.Outage `json:"outages"`
	// Skipped are faults that were asked for and were not possible, and why.
	Skipped []string `json:"skipped,omitempty"`

	History  *history.History `json:"-"`
	Schedule []schedule.Step  `json:"-"`
}

// Write writes all files into a folder.
func (r *Report) Write(dir string) error {
	writers := []struct {
		name  string
		write func(io.Writer) error
	}{
		{"history.jsonl", r.History.WriteJSON},
		{"history.edn", r.History.WriteEDN},
		{"schedule.txt", r.writeSchedule},
		{"results.json", r.writeJSON},
		{"verdict.txt", r.WriteText},
		{"report.html", r.writeHTML},
	}
	for _, f := range writers {
		if err := writeFile(filepath.Join(dir, f.name), f.write); err != nil {
			return err
		}
	}
	for _, res := range r.Results {
		if res.Timeline == nil {
			continue
		}
		if err := res.Timeline(filepath.Join(dir, timelineName(res.Name))); err != nil {
			return fmt.Errorf("write timeline: %w", err)
		}
	}
	return nil
}

// timelineName is the file of a checker's timeline.
func timelineName(check string) string {
	return "timeline-" + strings.NewReplacer(": ", "-", " ", "-").Replace(check) + ".html"
}

// files are the other files that are written, beside what the processes write.
func (r *Report) files() []string {
	names := []string{"verdict.txt", "results.json", "schedule.txt", "history.jsonl", "history.edn"}
	for _, res := range r.Results {
		if res.Timeline != nil {
			names = append(names, timelineName(res.Name))
		}
	}
	return names
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Close()
}

func (r *Report) writeSchedule(w io.Writer) error {
	for _, s := range r.Schedule {
		if _, err := fmt.Fprintln(w, s); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the verdict as text.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s under %s, %d nodes, %s, network by %s, seed %d\n",
		r.Run.Target, r.Run.Workload, r.Run.Nemesis, r.Run.Nodes, r.Run.Time, r.Run.Network, r.Run.Seed)
	if r.Run.Version != "" {
		fmt.Fprintf(&b, "%s\n", r.Run.Version)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "skipped: %s\n", s)
	}
	h := r.History
	fmt.Fprintf(&b, "%d operations: %d ok, %d failed, %d unknown\n\n", len(h.Ops),
		h.Count(history.OK), h.Count(history.Fail), h.Count(history.Info))
	for _, res := range r.Results {
		for line := range strings.Lines(res.String()) {
			fmt.Fprintln(&b, shorten(strings.TrimSuffix(line, "\n")))
		}
	}
	r.writeOutages(&b)
	fmt.Fprintf(&b, "\nverdict: %s\nagain:   %s\n", r.Verdict, r.Run.Reproduce)
	_, err := io.WriteString(w, b.String())
	return err
}

// lineLimit is how much of a finding verdict.txt shows, in bytes; results.json has all of it.
const lineLimit = 240

func shorten(line string) string {
	if len(line) <= lineLimit {
		return line
	}
	return line[:lineLimit/2] + " […] " + line[len(line)-lineLimit/2:]
}

func (r *Report) writeOutages(b *strings.Builder) {
	if len(r.Outages) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%8s %8s  %-17s %10s %10s  %s\n", "from", "to", "fault", "silence", "recovery", "whom")
	var silence, recovery checker.Outage
	for _, o := range r.Outages {
		fmt.Fprintf(b, "%7.1fs %7.1fs  %-17s %10s %10s  %s\n",
			time.Duration(o.Fault.Start).Seconds(), time.Duration(o.Fault.Stop).Seconds(),
			o.Fault.Name, short(o.Silence), recovered(o), o.Fault.Detail)
		if o.Silence > silence.Silence {
			silence = o
		}
		if o.Recovery > recovery.Recovery {
			recovery = o
		}
	}
	fmt.Fprintf(b, "longest time without service: %s (%s at %.1fs)\n", short(silence.Silence), silence.Fault.Name,
		time.Duration(silence.Fault.Start).Seconds())
	fmt.Fprintf(b, "slowest recovery:             %s (%s, after %s at %.1fs)\n",
		short(recovery.Recovery), recovery.Slowest, recovery.Fault.Name, time.Duration(recovery.Fault.Start).Seconds())
}

func short(d time.Duration) string { return d.Round(time.Millisecond).String() }

func recovered(o checker.Outage) string {
	if o.Recovery < 0 {
		return "-"
	}
	return short(o.Recovery)
}
