//go:build mutant_lock_fence || mutant_lock_short_wait || mutant_lock_dead_waiter || mutant_lock_leak || mutant_lock_session || mutant_lock_queue_lost

package locks

import (
	"runtime/debug"
	"slices"
	"strings"
)

// The switches of mutants.go in a server that is wrong on purpose: the build tag says which switch
// is turned.
var (
	fencesAtGrant = !builtWith("mutant_lock_fence")
	wholeWaits    = !builtWith("mutant_lock_short_wait")
	removesGone   = !builtWith("mutant_lock_leak") && !blocksGone
	blocksGone    = builtWith("mutant_lock_dead_waiter")
	endsAttached  = !builtWith("mutant_lock_session")
	loadsQueues   = !builtWith("mutant_lock_queue_lost")
)

func builtWith(tag string) bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), tag)
	})
}
