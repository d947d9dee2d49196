//go:build mutant_stuck_tail || mutant_nonvoter_ack || mutant_old_quorum

package raftnode

import (
	"runtime/debug"
	"slices"
	"strings"
)

// The switches of mutants.go in a server that is wrong on purpose: the build tag says which switch
// is turned.
var (
	followsBehindSnapshot = !builtWith("mutant_stuck_tail")
	nonVotersCount        = builtWith("mutant_nonvoter_ack")
	oldQuorumConfirms     = builtWith("mutant_old_quorum")
	roundsMove            = !oldQuorumConfirms
)

func builtWith(tag string) bool {
	info, _ := debug.ReadBuildInfo()
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), tag)
	})
}
