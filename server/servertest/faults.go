package servertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
	"github.com/holdfast/holdfast/server/store"
)

// The words of transcripts that are about the cluster.

func (p *player) advance(args []string) []string {
	p.need(len(args) == 1)
	time.Sleep(p.duration(args[0]))
	return nil
}

// leader waits until a node leads. Which node that is after an election is a matter of chance. So
// the name is printed only as the answer whether a certain node leads.
func (p *player) leader(args []string) []string {
	leader := p.cluster.Leader()
	switch {
	case len(args) == 0:
		return nil
	case leader.Name == args[0]:
		return []string{args[0] + " leads"}
	}
	return []string{"another node leads"}
}

// lead has the named node take over from the elected node.
func (p *player) lead(args []string) []string {
	p.need(len(args) == 1)
	p.cluster.Lead(p.node(args[0]))
	time.Sleep(time.Second) // followers find the new leader
	return []string{args[0] + " leads"}
}

// transfer has the leader hand over. Raft chooses the next leader.
func (p *player) transfer([]string) []string {
	if err := p.cluster.Leader().Transfer(); err != nil {
		return []string{"(" + err.Error() + ")"}
	}
	return nil
}

// partition puts the named nodes on one side and all others on the other side. Clients reach both
// sides.
func (p *player) partition(args []string) []string {
	p.need(len(args) > 0)
	p.cluster.Net.Partition(args, p.cluster.Names(args...))
	return nil
}

func (p *player) oneWay(args []string) []string {
	p.need(len(args) == 2)
	p.cluster.Net.Cut(args[0], args[1])
	return nil
}

func (p *player) heal([]string) []string {
	p.cluster.Net.Heal()
	return nil
}

func (p *player) crash(args []string) []string {
	p.need(len(args) > 0)
	for _, n := range p.nodes(args) {
		n.Crash()
	}
	return nil
}

func (p *player) restart(args []string) []string {
	p.need(len(args) > 0)
	for _, n := range p.nodes(args) {
		n.Start()
	}
	return nil
}

func (p *player) stop(args []string) []string {
	p.need(len(args) == 1)
	begun := time.Now()
	if err := p.node(args[0]).Stop(); err != nil {
		return []string{"(" + err.Error() + ")"}
	}
	if took := time.Since(begun); took > time.Second {
		return []string{fmt.Sprintf("after %v", took)}
	}
	return nil
}

func (p *player) snapshot(args []string) []string {
	p.need(len(args) > 0)
	for _, n := range p.nodes(args) {
		require.NoError(p.t, n.Replica().TakeSnapshot())
	}
	return nil
}

func (p *player) wallClock(args []string) []string {
	p.need(len(args) == 2)
	for _, n := range p.nodes(args[:1]) {
		n.Clock.Jump(p.duration(args[1]))
	}
	return nil
}

func (p *player) disk(args []string) []string {
	p.need(len(args) == 2)
	n := p.node(args[0])
	switch args[1] {
	case "ok":
		n.Faults.Clear()
	case "hang":
		n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Hang: true})
	case "error":
		n.Faults.Inject(store.Fault{Op: store.OpStoreLogs, Err: syscall.EIO})
	default:
		p.need(false)
	}
	return nil
}

// deaths prints why nodes ended by themselves.
func (p *player) deaths(args []string) []string {
	p.need(len(args) > 0)
	var lines []string
	for _, n := range p.nodes(args) {
		for _, err := range n.Deaths() {
			lines = append(lines, n.Name+": "+err.Error())
		}
	}
	if lines == nil {
		return []string{"none"}
	}
	return lines
}

// installed prints how many snapshots of other nodes a node has taken over.
func (p *player) installed(args []string) []string {
	p.need(len(args) == 1)
	count := 0
	for _, e := range p.node(args[0]).Events() {
		if _, ok := e.(replica.Restored); ok {
			count++
		}
	}
	return []string{fmt.Sprintf("%d snapshots", count)}
}

// log prints by how many entries the log has grown since the last look.
func (p *player) log([]string) []string {
	before := p.entries
	p.entries = p.cluster.Entries()
	return []string{fmt.Sprintf("%d entries more", p.entries-before)}
}

// state prints all keys with what is left of their leases, and requires that
// the nodes have the same log and the same state.
func (p *player) state(args []string) []string {
	c := p.cluster.Client(p.cluster.Leader(), protocol.RESP2)
	defer c.Close()
	var lines []string
	for db := range 16 {
		lines = append(lines, p.database(c, db)...)
	}
	return append(lines, "the same on "+strings.Join(p.cluster.Settle(p.nodes(args)...), " "))
}

func (p *player) database(c *Client, db int) []string {
	ask := func(words ...string) protocol.Value {
		v, err := c.Do(words...)
		require.NoError(p.t, err)
		require.False(p.t, v.IsError(), v.Str)
		return v
	}
	ask("SELECT", strconv.Itoa(db))
	var lines []string
	for _, key := range sorted(ask("KEYS", "*")) {
		line := fmt.Sprintf("%s = %s", key, Show(ask("GET", key)))
		if db > 0 {
			line = fmt.Sprintf("%d: %s", db, line)
		}
		if ttl := ask("PTTL", key).Num; ttl >= 0 {
			line += fmt.Sprintf(" for %v", time.Duration(ttl)*time.Millisecond)
		}
		lines = append(lines, line)
	}
	return lines
}

// sorted returns the strings of an array in order.
func sorted(v protocol.Value) []string {
	var all []string
	for _, e := range v.Elems {
		all = append(all, e.Str)
	}
	slices.Sort(all)
	return all
}
