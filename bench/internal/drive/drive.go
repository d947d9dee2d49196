// Package drive runs a workload in another program. A client of etcd or ZooKeeper needs modules that this module must
// not depend on, so each is a small program in its own module under bench/. The program links the same workloads,
// generator and recorder as the benchmark, so that the figures are comparable, and only adds clients.
//
// The caller writes a JSON [Request] to the program's standard input and reads a JSON [Reply] from its standard output.
// Start reading at [Run] for the caller's side and at [Serve] for the program's.
package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

// Request describes a run.
type Request struct {
	Workload      string         `json:"workload"`
	Target        target.Target  `json:"target"`
	PIDs          []int          `json:"pids,omitempty"`
	Client        target.Options `json:"client"`
	Connections   int            `json:"connections"`
	RatePerSecond float64        `json:"rate_per_second,omitempty"`
	Dir           string         `json:"dir,omitempty"` // see target.Target
	Warmup        time.Duration  `json:"warmup"`
	Measure       time.Duration  `json:"measure"`
	Sizes         workload.Sizes `json:"sizes"`
}

// Reply is the result of a run.
type Reply struct {
	Figures *workload.Figures `json:"figures,omitempty"`
	Error   string            `json:"error,omitempty"`
}

// Run runs a workload in the target's driver.
func Run(ctx context.Context, w workload.Workload, e workload.Env) (*workload.Figures, error) {
	request := Request{
		Workload: w.Name, Target: e.Target, Client: e.Client, Connections: e.Connections, RatePerSecond: e.RatePerSecond,
		Warmup: e.Warmup, Measure: e.Measure, Sizes: e.Sizes, Dir: e.Target.Dir,
	}
	if e.Target.PIDs != nil {
		request.PIDs = e.Target.PIDs()
	}
	in, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, e.Target.Driver)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run %s's driver: %w: %s", e.Target.Name, err, strings.TrimSpace(complaint.String()))
	}
	var reply Reply
	if err := json.Unmarshal(out.Bytes(), &reply); err != nil {
		return nil, fmt.Errorf("read what %s's driver says: %w", e.Target.Name, err)
	}
	if reply.Error != "" {
		return nil, errors.New(reply.Error)
	}
	return reply.Figures, nil
}

// Serve is the driver's side: it reads a request from in and runs it. A failed run is a reply; an error means that the
// exchange failed.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var r Request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var reply Reply
	figures, err := r.run(ctx)
	if reply.Figures = figures; err != nil {
		reply = Reply{Error: err.Error()}
	}
	return json.NewEncoder(out).Encode(reply)
}

func (r Request) run(ctx context.Context) (*workload.Figures, error) {
	w, err := workload.Named(r.Workload)
	if err != nil {
		return nil, err
	}
	if len(r.PIDs) > 0 {
		r.Target.PIDs = func() []int { return r.PIDs }
	}
	r.Target.Dir = r.Dir
	return w.Run(ctx, workload.Env{
		Target: r.Target, Client: r.Client, Connections: r.Connections, RatePerSecond: r.RatePerSecond,
		Warmup: r.Warmup, Measure: r.Measure, Sizes: r.Sizes,
	})
}
