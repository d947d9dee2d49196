package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/server"
)

const variablePrefix = "HOLDFAST_"

// strangeVariables looks at variables that begin as settings do, and belong to no flag. One that a slip of the keyboard
// makes of a flag's is an error: the node would run without the setting. Others may be somebody else's, such as
// Kubernetes's for a service of that name, and are only logged. Values are not shown: they may be secrets.
func strangeVariables(environ []string) (others []string, err error) {
	var settings, known []string
	c := server.DefaultConfig()
	for _, o := range options(&c) {
		if o.heading == "" {
			settings = append(settings, o.env())
		}
	}
	client := newClientFlags()
	for _, o := range client.lockRows() {
		known = append(known, o.env())
	}
	// `holdfast lock` gives three to its command; the fourth is this program's own.
	known = append(known, "HOLDFAST_LOCK", "HOLDFAST_OWNER", "HOLDFAST_FENCE", "HOLDFAST_TIMER_SLACK_IS_SET")
	var slips []string
	for _, line := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(settings, name) || slices.Contains(known, name) {
			continue
		}
		nearest := nearestOf(name, settings)
		hint := fmt.Sprintf("%s: no flag has this variable; the nearest is %s (--%s)", name, nearest, flagOf(nearest))
		if distance(name, nearest) <= max(1, (len(name)-len(variablePrefix))/4) {
			slips = append(slips, hint)
		} else {
			others = append(others, hint)
		}
	}
	if slips != nil {
		return nil, fmt.Errorf("%s", strings.Join(slips, "; "))
	}
	return others, nil
}

// flagOf is the flag of a variable.
func flagOf(variable string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, variablePrefix)), "_", "-")
}

// nearestOf is the first of the names that are closest to name.
func nearestOf(name string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// distance is how many letters must be put in, left out, exchanged or changed with their neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
