package backup

import (
	"errors"
	"fmt"
	"io"

	"github.com/holdfast/holdfast/fsm"
)

// Report is what is in a file.
type Report struct {
	Meta    Meta
	Summary Summary
	Survey  fsm.Survey
}

// Inspect reads a whole file, proves it, and looks at the state, with at most so many keys that look like fences.
func Inspect(in io.Reader, fenceKeys int) (Report, error) {
	r, m, err := load(in)
	if err != nil {
		return Report{}, err
	}
	return Report{Meta: r.Meta, Summary: r.Summary(), Survey: m.Survey(fenceKeys)}, nil
}

// load reads a whole file into a machine. The machine refuses what is no state, and reads to the end.
func load(in io.Reader) (*Reader, fsm.Machine, error) {
	r, err := NewReader(in)
	if err != nil {
		return nil, nil, err
	}
	m := fsm.New()
	err = m.Restore(r)
	switch {
	case err == nil:
		return r, m, nil
	case r.err != nil && !errors.Is(r.err, io.EOF):
		return nil, nil, r.err // which is the reason
	case errors.Is(err, fsm.ErrCorruptSnapshot):
		return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	default:
		return nil, nil, fmt.Errorf("%w: %w", ErrNewer, err)
	}
}
