//go:build mutant_no_dedup || mutant_lost_wakeup || mutant_served_twice

package fsm

import (
	"runtime/debug"
	"slices"
	"strings"
)

// The switches of mutants.go in a server that is wrong on purpose: the build tag says which switch
// is turned.
var (
	appliesOnce  = !builtWith("mutant_no_dedup")
	wakesWaiters = !builtWith("mutant_lost_wakeup")
	servesOnce   = !builtWith("mutant_served_twice")
)

func builtWith(tag string) bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), tag)
	})
}
