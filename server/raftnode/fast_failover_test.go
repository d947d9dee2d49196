package raftnode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The longer log is elected, and of equal ones the node that has applied more of it, as far as both tell.
func TestFitterCandidate(t *testing.T) {
	fit := []candidate{
		{id: "n3", length: 9, applied: 2, tells: true},
		{id: "n2", length: 8, applied: 8, tells: true},
		{id: "n1", length: 8, applied: 7, tells: true},
		{id: "n4", length: 8, applied: 7, tells: true},
		{id: "n5", length: 8, tells: false}, // an older release: the name decides
		{id: "n6", length: 7, applied: 7, tells: true},
	}
	for i := range fit {
		for j := range fit {
			require.Equal(t, i < j, fit[i].moreUpToDate(fit[j]), "%v, %v", fit[i], fit[j])
		}
	}
}
