//go:build unix

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// votes says what a node knows of a member's vote: "yes", "no", or "" if there is no such member.
func votes(through *node, member string) string {
	all, err := ask(context.Background(), through.addr, "RAFT.MEMBERS")
	if err != nil {
		return err.Error()
	}
	for _, row := range all.Elems {
		if m := fieldsOf(row); m.text("name") == member {
			return yesNo(m["voter"].Num != 0)
		}
	}
	return ""
}

// all waits until all those nodes know the same of a member's vote.
func all(t *testing.T, nodes []*node, member, vote string) {
	t.Helper()
	for _, n := range nodes {
		require.Eventually(t, func() bool { return votes(n, member) == vote }, 30*time.Second, 5*time.Millisecond,
			"%s of %s", member, n.name)
	}
}

// changes runs `holdfast cluster` through nodes, and requires how it ends and what it says.
func changes(t *testing.T, servers string, status int, like string, args ...string) {
	t.Helper()
	got, out, complaint := clusterOf(build(t), servers, args...)
	require.Equal(t, status, got, "%v: %s%s", args, out, complaint)
	require.Contains(t, out+complaint, like)
}

// begun runs the same in the background.
func begun(t *testing.T, servers string, args ...string) (ended func(like string)) {
	t.Helper()
	over := make(chan struct{})
	var status int
	var out, complaint string
	exe := build(t)
	go func() {
		defer close(over)
		status, out, complaint = clusterOf(exe, servers, args...)
	}()
	return func(like string) {
		t.Helper()
		<-over
		require.Zero(t, status, "%v: %s%s", args, out, complaint)
		require.Contains(t, out, like)
	}
}

// parts are the leader and the others.
func parts(t *testing.T, nodes []*node) (leader, one, other *node) {
	t.Helper()
	leader = leaderOf(t, nodes)
	rest := others(nodes, leader)
	return leader, rest[0], rest[1]
}

// staysOut waits until a node has ended as one that was removed, and requires that it does not start again.
func staysOut(t *testing.T, n *node) {
	t.Helper()
	n.fails(t, statusRemoved, "this node was removed from its cluster")
	n.start(t)
	n.fails(t, statusRemoved, "this node was removed from its cluster, and the folder cannot be used again")
}

// TestMembersByCommand: votes are taken and given; a removal that leaves too few is refused, or waits for the others if
// it is forced; and the leader, removed through a follower, hands over before it ends.
func TestMembersByCommand(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, build(t), 3)
	leader, one, other := parts(t, nodes)
	require.NoError(t, client(t, one).Set(t.Context(), "k", "v", 0).Err())
	changes(t, other.addr, 0, one.name+" lost its vote: 2 voters, and the loss of one that answers stops the cluster",
		"demote", one.name)
	all(t, nodes, one.name, "no")
	changes(t, one.addr, 0, one.name+" got a vote: 3 voters, of which 1 may fail", "promote", one.name)
	all(t, nodes, one.name, "yes")

	other.Kill()
	changes(t, one.addr, 1, "without "+one.name+" 1 of 2 voters would answer, and 2 must: mend or remove "+other.name+
		" first, or use force", "remove", one.name)
	all(t, []*node{leader, one}, one.name, "yes")
	forced := begun(t, leader.addr, "remove", one.name, "--force")
	all(t, []*node{leader}, one.name, "")
	changes(t, leader.addr, statusAtRisk, "", "status")
	other.start(t)
	forced(one.name + " was removed: 2 voters, ") // by this leader, or by the next one
	staysOut(t, one)

	waitServing(t, other)
	leader = leaderOf(t, []*node{leader, other})
	if leader == other {
		other = nodes[slices.IndexFunc(nodes, func(n *node) bool { return n != leader && n != one })]
	}
	changes(t, other.addr, 0, leader.name+" handed the leadership over to "+other.name+"\n"+leader.name+
		" was removed: 1 voter, and its loss stops the cluster", "remove", leader.name)
	staysOut(t, leader)
	require.Equal(t, "v", client(t, other).Get(t.Context(), "k").Val())
	changes(t, other.addr, 1, "no member is called \""+one.name, "remove", one.name, leader.name)
	changes(t, other.addr, 1, "no member is called \"n9\", the members are "+other.name, "remove", "n9")
	changes(t, other.addr, 1, "no member is called \"n9\"; nothing was changed", "remove", other.name, "n9")
	changes(t, other.addr, 0, "holdfast cluster: "+one.name+" is no member\nholdfast cluster: "+leader.name+
		" is no member\n", "remove", one.name, leader.name, "--gone-ok")
	changes(t, other.addr, 0, "holdfast cluster: n9 is no member\n", "remove", "n9", "--gone-ok")
	changes(t, other.addr, 1, other.name+" is the last voter", "remove", other.name, "--force")
}

// TestRemovedThroughItself: who has a node remove itself is told so, be it a follower or the leader, although the node
// ends.
func TestRemovedThroughItself(t *testing.T) {
	nodes := startNodes(t, build(t), 5)
	for len(nodes) > 2 {
		leader, _, gone := parts(t, nodes)
		if len(nodes) == 4 {
			gone = leader
		}
		changes(t, gone.addr, 0, gone.name+" was removed: ", "remove", gone.name, "--timeout", "20s")
		staysOut(t, gone)
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n == gone })
	}
}

// TestAskedNodeDies: the command goes on at the members that it was not given.
func TestAskedNodeDies(t *testing.T) {
	nodes := startNodes(t, build(t), 3, "--debug")
	leader, one, other := parts(t, nodes)
	require.NoError(t, client(t, other).Do(t.Context(), "DEBUG", "DISK", "DELAY", "300").Err())
	ended := begun(t, one.addr, "demote", one.name)
	require.Eventually(t, func() bool { return votes(leader, one.name) == "no" }, 30*time.Second, time.Millisecond)
	one.Kill()
	ended(one.name + " has no vote")
}

// TestChangeWithoutMajority is told apart from a node that does not answer, and is not made later.
func TestChangeWithoutMajority(t *testing.T) {
	t.Parallel()
	nodes := startNodes(t, build(t), 3)
	_, one, other := parts(t, nodes)
	for _, n := range others(nodes, one) {
		n.Kill()
	}
	require.Eventually(t, func() bool { return leaderless(one) }, 20*time.Second, 20*time.Millisecond)
	changes(t, one.addr, 1, ": 3 voters, of which 2 must answer; nothing was changed", "remove", other.name)
	changes(t, one.addr, 1, "No leader is known to "+one.name, "remove", other.name, "--timeout", "1s")
}

// leaderless reports whether a node knows no leader.
func leaderless(n *node) bool {
	_, out, _ := clusterOf(n.exe, n.addr, "status")
	return strings.HasPrefix(out, "No leader is known")
}

// TestReplaceByTheOnlyOneThatCan: the member without a vote need not be named, if there is one that answers.
func TestReplaceByTheOnlyOneThatCan(t *testing.T) {
	nodes := startNodes(t, build(t), 3)
	_, old, other := parts(t, nodes)
	changes(t, other.addr, 1, "no member without a vote answers that could replace "+old.name+": start one with --join",
		"replace", old.name)
	leader := leaderOf(t, nodes)
	changes(t, other.addr, 1, other.name+" has a vote already, and "+leader.name+" answers: if "+leader.name+
		" is to go without a successor, remove it", "replace", leader.name, other.name)
	n4 := newcomer(t, "n4", nodes, "--non-voter")
	n5 := newcomer(t, "n5", nodes, "--non-voter")
	all(t, []*node{other, n4, n5}, "n4", "no")
	all(t, []*node{other, n4, n5}, "n5", "no")
	waitServing(t, n4, n5)
	changes(t, other.addr, 1, "say which member is to replace "+old.name+": n4, n5 have no vote", "replace", old.name)
	changes(t, other.addr, 1, `no member is called "n9"`, "replace", "n9", "n4")
	changes(t, other.addr, 0, "n5 was removed", "remove", "n5")
	changes(t, other.addr, 0, old.name+" was removed", "replace", old.name)
	all(t, []*node{other, n4}, "n4", "yes")
	staysOut(t, old)
}
