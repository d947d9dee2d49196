package store

import (
	"slices"
	"sync"
	"time"
)

// Fault is one misbehaviour of a disk.
type Fault struct {
	// Op is the call that misbehaves; empty: all of them.
	Op Op
	// Delay is added before the call.
	Delay time.Duration
	// Hang keeps the call from being made until the fault is switched off.
	Hang bool
	// Err is returned instead of making the call; syscall.ENOSPC for instance.
	Err error
	// Late makes the call all the same, and then returns Err: what was written is on the disk.
	Late bool
	// Torn is called in the middle of the next append of several entries: the first half of them
	// is on the disk, the others never will be. When tornPatience appends come with one entry
	// each, Torn is called before the next append, which writes nothing. Torn must end the process,
	// or what stands for a process: the append does not return. Nothing else misbehaves.
	Torn func()
	// Count ends the fault after so many calls. 0: never.
	Count int
}

// Faults makes a Store misbehave. All methods may be called at any time, also
// on nil, which never misbehaves. A Faults for a synctest bubble is made inside.
type Faults struct {
	mu     sync.Mutex
	active []*activeFault
}

type activeFault struct {
	Fault
	left int           // calls still to meet; -1: all
	met  int           // appends that Torn let pass
	off  chan struct{} // closed when switched off
}

// NewFaults returns a switchboard with nothing switched on.
func NewFaults() *Faults { return &Faults{} }

// Inject switches a fault on; the result switches it off. Faults of one
// operation add up: delays one after the other, the first error wins.
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

// Clear switches all faults off and lets calls that hang or wait go on.
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

// take returns the faults that meet a call of op, and counts the call.
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

// tornPatience is how many appends of one entry go by before a torn one.
const tornPatience = 50

// tear ends the process in the middle of an append, if a fault says so: write
// writes the first entries.
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

// torn is what to call in the middle of an append of so many entries, if anything.
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

// run makes the call, after or without what the faults say.
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
