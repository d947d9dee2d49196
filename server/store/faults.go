package store

import (
	"slices"
	"sync"
	"time"
)

// Fault is an injected misbehaviour of a disk.
type Fault struct {
	// Op is the call that misbehaves, or empty for all calls.
	Op Op
	// Delay is added before the call.
	Delay time.Duration
	// Hang keeps the call from being made until the fault is switched off.
	Hang bool
	// Err is returned instead of making the call; syscall.ENOSPC for instance.
	Err error
	// Late returns Err after making the call, so that the disk has what was written.
	Late bool
	// Torn is called in the middle of the next append of several entries, when only the first half of them is on the
	// disk. After tornPatience appends of one entry each it is called before the next append, which writes nothing.
	// Torn must end the process or its simulation, since the append does not return. It excludes the other fields.
	Torn func()
	// Count is the number of calls after which the fault ends, or 0 for no end.
	Count int
}

// Faults injects faults into a Store. Its methods are safe for concurrent use. A nil *Faults injects nothing. A Faults
// for a synctest bubble must be made inside it.
type Faults struct {
	mu     sync.Mutex
	active []*activeFault
}

type activeFault struct {
	Fault
	left int           // number of calls still affected; -1 for no limit
	met  int           // number of appends before Torn was called
	off  chan struct{} // closed when the fault is switched off
}

// NewFaults returns a Faults without a fault.
func NewFaults() *Faults { return &Faults{} }

// Inject switches a fault on. The returned function switches it off. Faults of one call are combined: their delays add
// up, and the first error is returned.
func (f *Faults) Inject(fault Fault) (clear func()) {
	a := &activeFault{Fault: fault, left: fault.Count, off: make(chan struct{})}
	if fault.Count == 0 {
		a.left = -1
	}
	f.mu.Lock()
	f.active = append(f.active, a)
	f.mu.Unlock()
	var once sync.Once
	return func() {
		once.Do(func() { f.remove(func(other *activeFault) bool { return other == a }) })
	}
}

// Clear switches all faults off, which continues calls that hang or are delayed.
func (f *Faults) Clear() {
	f.remove(func(*activeFault) bool { return true })
}

func (f *Faults) remove(chosen func(*activeFault) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = slices.DeleteFunc(f.active, func(a *activeFault) bool {
		if !chosen(a) {
			return false
		}
		close(a.off)
		return true
	})
}

// take returns the faults that affect a call of op, and counts the call.
func (f *Faults) take(op Op) []*activeFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var met []*activeFault
	for _, a := range f.active {
		if a.left == 0 || a.Op != "" && a.Op != op {
			continue
		}
		if a.left > 0 {
			a.left--
		}
		met = append(met, a)
	}
	return met
}

// tornPatience is the number of appends of one entry after which Torn is called anyway.
const tornPatience = 50

// tear calls Torn in the middle of an append, if a fault has one. write writes the first entries.
func (f *Faults) tear(entries int, write func(first int) error) {
	if f == nil {
		return
	}
	torn := f.torn(entries)
	if torn == nil || entries > 1 && write(entries/2) != nil {
		return
	}
	torn()
	select {}
}

// torn returns the function to call in the middle of an append of that many entries, or nil.
func (f *Faults) torn(entries int) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.active {
		if a.Torn == nil {
			continue
		}
		if a.met++; entries > 1 || a.met > tornPatience {
			return a.Torn
		}
	}
	return nil
}

// run makes the call as the faults for op allow.
func (f *Faults) run(op Op, call func() error) error {
	if f == nil {
		return call()
	}
	var first *activeFault
	for _, a := range f.take(op) {
		a.wait()
		if a.Err != nil && first == nil {
			first = a
		}
	}
	if first == nil {
		return call()
	}
	if first.Late {
		if err := call(); err != nil {
			return err
		}
	}
	return first.Err
}

func (a *activeFault) wait() {
	if a.Delay > 0 {
		timer := time.NewTimer(a.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-a.off:
		}
	}
	if a.Hang {
		<-a.off
	}
}
