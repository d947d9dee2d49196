//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commands runs the commands of a chapter, "n1$ holdfast …" on the first machine. A node that a command starts stops the
// one before it on its machine, and is awaited as a member at its address.
func (m *machines) commands(t *testing.T, chapter string) {
	t.Helper()
	_, text, _ := strings.Cut(operatorPages(t), "\n### "+chapter+"\n")
	text = strings.ReplaceAll(regexp.MustCompile(`(?m)^##`).Split(text, 2)[0], "\\\n", " ")
	lines := regexp.MustCompile(`(?m)^n(\d)\$ (holdfast .*)$`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, lines, "no chapter %q, or none with commands", chapter)
	for _, line := range lines {
		i, code := int(line[1][0]-'1'), m.here(int(line[1][0]-'1'), line[2])
		switch {
		case strings.HasPrefix(code, "holdfast serve"):
			m.sh(t, i, fmt.Sprintf("systemctl stop holdfast || true\n"+
				"{ %s & echo $! >%s; wait $! || echo $? >%s; } </dev/null >>%s 2>&1 &",
				code, m.path(i, "pid"), m.path(i, "status"), m.path(i, "log")))
			votes := map[bool]string{false: "yes", true: "no"}[strings.Contains(code, "--non-voter")]
			addr := regexp.MustCompile(`--peer-addr (\S+)`).FindStringSubmatch(code)[1]
			m.sh(t, 0, fmt.Sprintf("until holdfast cluster members | grep '^n%d .* %s .* %s'; do sleep 1; done",
				i+1, votes, addr))
		case strings.HasPrefix(code, "holdfast cluster status"):
			m.sh(t, i, "until "+code+"; do sleep 1; done") // the document says to wait for it
		default:
			t.Logf("%s\n%s", line[0], m.sh(t, i, code))
		}
	}
}

// TestOperatingMembers runs the chapters about members as they are written.
func TestOperatingMembers(t *testing.T) {
	m := newMachines(t, build(t))
	m.run(t, "install", 0, 1, 2)
	for i := 3; i < 6; i++ {
		m.sh(t, i, "cp holdfast "+m.path(i, "bin"))
	}
	members := func() string { return m.sh(t, 0, "holdfast cluster members") }
	m.commands(t, "Add a node")
	m.commands(t, "Remove a node")
	status := m.path(3, "status")
	require.Equal(t, "4\n", m.sh(t, 3, "until test -s "+status+"; do sleep 1; done; cat "+status),
		"a removed node has its own status")
	m.commands(t, "Replace a node")
	m.sh(t, 2, "while grep -qs '^State:.[^Z]' /proc/$(cat "+m.path(2, "pid")+")/status; do sleep 1; done")
	require.NotRegexp(t, `(?m)^n3 `, members())
	require.Regexp(t, `(?m)^n5 .* yes `, members())
	m.kill(1)
	require.NoError(t, os.RemoveAll(m.path(1, "data")))
	m.commands(t, "Replace a node that is lost")
	m.commands(t, "Move a node to another address")
	m.commands(t, "Have another node lead")
	require.Equal(t, 4, strings.Count(members(), "\n"), "three members and a heading\n%s", members())
}
