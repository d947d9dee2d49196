// Package invariant says whether the checks of invariants run. A check looks at a whole structure, or at every reply,
// and panics at what cannot be: the tests, the race detector, fuzzing and the partition tests run with the build tag
// invariants, which the race detector implies. Without the tag [On] is a constant false, and the compiler drops what it
// guards: a release has none of this.
//
// The idea is Pebble's (internal/invariants).
package invariant

import "fmt"

// Broken panics with what is wrong: the invariant named is broken.
func Broken(format string, args ...any) { panic("invariant: " + fmt.Sprintf(format, args...)) }

// Require panics if err is not nil.
func Require(err error) {
	if err != nil {
		Broken("%v", err)
	}
}
