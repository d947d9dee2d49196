package history

import (
	"sync"
	"time"
)

// Recorder records the operations of a run. It is safe for concurrent use.
type Recorder struct {
	start time.Time // with its monotonic reading

	mu      sync.Mutex
	ops     []Op
	faults  []Fault
	process []int // by worker: the present process
	pipes   int
}

// NewRecorder starts the clock of a run with so many workers.
func NewRecorder(workers int) *Recorder {
	r := &Recorder{start: time.Now()}
	for w := range workers {
		r.process = append(r.process, w)
	}
	return r
}

// Now is the time on the run's clock, in nanoseconds.
func (r *Recorder) Now() int64 { return int64(time.Since(r.start)) }

// Pending is an operation under way. Exactly one of the three methods is called, once.
type Pending struct {
	r      *Recorder
	index  int
	worker int
}

// Invoke records that a worker is about to do o. It uses F, Key, Node, Input, Txn and Pipe of o. It must be called
// before the first byte is sent.
func (r *Recorder) Invoke(worker int, o Op) *Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Index = len(r.ops)
	o.Process = r.process[worker]
	o.Outcome = Info
	o.Error = "the run ended"
	o.Call = r.Now()
	o.Return = o.Call
	r.ops = append(r.ops, o)
	return &Pending{r: r, index: o.Index, worker: worker}
}

// Since records that something happened at some time from start (by [Recorder.Now]) until now. Requires: nothing
// else is on record for the worker since then.
func (r *Recorder) Since(worker int, o Op, start int64) {
	p := r.Invoke(worker, o)
	p.complete(OK, "", func(o *Op) { o.Call = min(start, o.Call) })
}

// Held records what was true from one instant to another. Requires: the worker has no other operation on record then.
func (r *Recorder) Held(worker int, o Op, from, until int64) {
	p := r.Invoke(worker, o)
	p.complete(OK, "", func(o *Op) { o.Call, o.Return = from, until })
}

// NewPipe numbers a pipeline.
func (r *Recorder) NewPipe() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pipes++
	return r.pipes
}

// OK records that the operation was done, with the outputs.
func (p *Pending) OK(output ...int64) Op {
	return p.complete(OK, "", func(o *Op) { o.Output = output })
}

// OKTxn records that a transaction was done, with what the steps read.
func (p *Pending) OKTxn(txn []Micro) Op {
	return p.complete(OK, "", func(o *Op) { o.Txn = txn })
}

// Complete records an outcome that is not OK, and why.
func (p *Pending) Complete(outcome Outcome, why string) Op {
	return p.complete(outcome, why, func(*Op) {})
}

func (p *Pending) complete(outcome Outcome, why string, fill func(*Op)) Op {
	r := p.r
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.ops[p.index]
	o.Outcome, o.Error, o.Return = outcome, why, r.Now()
	fill(o)
	if outcome == Info {
		// The worker continues as another process, since this operation may still be under way.
		r.process[p.worker] += len(r.process)
	}
	return *o
}

// Fault records a fault that began at f.Start (by [Recorder.Now]) and is over now.
func (r *Recorder) Fault(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Stop = r.Now()
	r.faults = append(r.faults, f)
}

// History is everything recorded so far.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &History{Ops: make([]Op, len(r.ops)), Faults: make([]Fault, len(r.faults))}
	copy(h.Ops, r.ops)
	copy(h.Faults, r.faults)
	return h
}
