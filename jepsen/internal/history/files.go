package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// line is one line of the JSON form: an operation or a fault.
type line struct {
	*Op
	Fault *Fault `json:"fault,omitempty"`
}

// WriteJSON writes the history, one operation or fault a line.
func (h *History) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for i := range h.Ops {
		if err := enc.Encode(line{Op: &h.Ops[i]}); err != nil {
			return fmt.Errorf("write operation: %w", err)
		}
	}
	for i := range h.Faults {
		if err := enc.Encode(line{Fault: &h.Faults[i]}); err != nil {
			return fmt.Errorf("write fault: %w", err)
		}
	}
	return out.Flush()
}

// ReadJSON reads what [History.WriteJSON] wrote.
func ReadJSON(r io.Reader) (*History, error) {
	h := &History{}
	dec := json.NewDecoder(bufio.NewReader(r))
	for {
		var l line
		err := dec.Decode(&l)
		switch {
		case errors.Is(err, io.EOF):
			return h, h.Validate()
		case err != nil:
			return nil, fmt.Errorf("read history: %w", err)
		case l.Fault != nil:
			h.Faults = append(h.Faults, *l.Fault)
		case l.Op != nil:
			h.Ops = append(h.Ops, *l.Op)
		}
	}
}

// ReadFile reads a file of that form.
func ReadFile(path string) (*History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	defer f.Close()
	return ReadJSON(f)
}

// event is an invocation, a completion or a fault's beginning or end.
type event struct {
	time    int64
	op      *Op
	fault   *Fault
	invoked bool // the beginning of an operation
}

// WriteEDN writes the history as Jepsen keeps it: one map an event, in order of
// time. A value is [key value], as jepsen.independent has it; a transaction's is
// its list of steps, which Elle reads as it is.
func (h *History) WriteEDN(w io.Writer) error {
	var events []event
	for i := range h.Ops {
		o := &h.Ops[i]
		events = append(events, event{o.Call, o, nil, true}, event{o.Return, o, nil, false})
	}
	for i := range h.Faults {
		f := &h.Faults[i]
		events = append(events, event{f.Start, nil, f, true}, event{f.Stop, nil, f, false})
	}
	// Events at one instant: an operation invoked then overlaps an operation completed then.
	slices.SortStableFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.time, b.time); c != 0 || a.invoked == b.invoked {
			return c
		}
		if a.invoked {
			return -1
		}
		return 1
	})
	out := bufio.NewWriter(w)
	for i, e := range events {
		fmt.Fprintf(out, "{:index %d, :time %d, %s}\n", i, e.time, e.edn())
	}
	return out.Flush()
}

func (e event) edn() string {
	if e.fault != nil {
		word := "stop-"
		if e.invoked {
			word = "start-"
		}
		return fmt.Sprintf(":type :info, :process :nemesis, :f :%s%s, :value %s", word, e.fault.Name,
			ednString(e.fault.Detail))
	}
	kind := string(e.op.Outcome)
	if e.invoked {
		kind = "invoke"
	}
	s := fmt.Sprintf(":type :%s, :process %d, :f :%s, :value %s", kind, e.op.Process, e.op.F, e.value())
	if e.op.Node != "" {
		s += ", :node " + ednString(e.op.Node)
	}
	if !e.invoked && e.op.Error != "" {
		s += ", :error " + ednString(e.op.Error)
	}
	return s
}

func (e event) value() string {
	done := !e.invoked && e.op.Outcome == OK
	if e.op.Txn != nil {
		steps := make([]string, len(e.op.Txn))
		for i, m := range e.op.Txn {
			steps[i] = m.edn(done)
		}
		return "[" + strings.Join(steps, " ") + "]"
	}
	ns := e.op.Input
	// A completion repeats what was asked, followed by what was answered.
	if done {
		ns = append(slices.Clone(ns), e.op.Output...)
	}
	v := ednInts(ns)
	if len(ns) == 0 {
		v = "nil"
	} else if len(ns) == 1 && e.op.F != "read-list" {
		v = strconv.FormatInt(ns[0], 10)
	}
	if e.op.Key == "" {
		return v
	}
	return fmt.Sprintf("[%s %s]", ednString(e.op.Key), v)
}

func (m Micro) edn(done bool) string {
	switch {
	case m.F != "r":
		return fmt.Sprintf("[:%s %s %d]", m.F, ednString(m.Key), m.Value)
	case !done:
		return fmt.Sprintf("[:r %s nil]", ednString(m.Key))
	default:
		return fmt.Sprintf("[:r %s %s]", ednString(m.Key), ednInts(m.List))
	}
}

func ednInts(ns []int64) string {
	words := make([]string, len(ns))
	for i, n := range ns {
		words[i] = strconv.FormatInt(n, 10)
	}
	return "[" + strings.Join(words, " ") + "]"
}

// ednString is text as EDN has it. A JSON string will do; Go's own is no EDN where it says \x00.
func ednString(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
}
