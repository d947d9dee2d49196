//go:build mutant_early_ack || mutant_stale_read || mutant_wall_lease

package replica

import (
	"runtime/debug"
	"slices"
	"strings"
)

// The switches of mutants.go in a server that is wrong on purpose: the build tag says which switch
// is turned.
var (
	answersBeforeCommit = builtWith("mutant_early_ack")
	confirmsLeadership  = !builtWith("mutant_stale_read")
	leasesByWallClock   = builtWith("mutant_wall_lease")
)

func builtWith(tag string) bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), tag)
	})
}
