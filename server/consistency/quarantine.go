package consistency

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// Event is something that an operator may want to know.
type Event interface{ consistencyEvent() }

// Differs: this node's state differed at Index from what a majority of the voters has, and is in quarantine from now
// on.
type Differs struct {
	Index      uint64
	Own, Right string
}

// Undecided: the states of Members differ at Index, and no majority of the voters has the same.
type Undecided struct {
	Index   uint64
	Members []string // names
}

// OthersDiffer: the states of other members differed at Index.
type OthersDiffer struct {
	Index   uint64
	Members []string // names
}

// Replaced: the state of the member From, which ends at Index, took the place of this node's.
type Replaced struct {
	Index uint64
	From  string // name
}

// Released: the state was replaced and compared, and is the majority's: the quarantine is over.
type Released struct{ Index uint64 }

// Checked: the states were compared, and this node's is the majority's.
type Checked struct{ Index uint64 }

func (Differs) consistencyEvent()      {}
func (Undecided) consistencyEvent()    {}
func (OthersDiffer) consistencyEvent() {}
func (Replaced) consistencyEvent()     {}
func (Released) consistencyEvent()     {}
func (Checked) consistencyEvent()      {}

// Report is what a node knows of the checks.
type Report struct {
	Index     uint64    // of the last verdict
	agreed    uint64    // the index where this node's state was last found to be the majority's
	Agreed    time.Time // when this node's state was last found to be the majority's
	Differ    []string  // IDs of members whose states differ
	Undecided bool      // no majority has the same
	Took      time.Duration
	// InQuarantine are the IDs of the members in quarantine, this node among them or not.
	InQuarantine []string
	// Quarantined: this node is in quarantine. Replaced: its state was replaced since, and is not compared yet.
	Quarantined, Replaced bool
}

// Report returns what this node knows.
func (c *Checker) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	report := c.report
	if r := c.config.Replica(); r != nil {
		var frozen bool
		report.Quarantined, frozen = r.Quarantined()
		report.Replaced = report.Quarantined && !frozen
	}
	if report.InQuarantine = c.away; !report.Undecided {
		report.InQuarantine = union(c.away, without(report.Differ, c.config.Self))
	}
	if report.Quarantined {
		report.InQuarantine = union(report.InQuarantine, []string{c.config.Self})
	}
	return report
}

// without are the IDs but for one.
func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
}

// Troubles are what is wrong, a sentence each.
func (c *Checker) Troubles() (all []string) {
	report := c.Report()
	differ := union(report.Differ, report.InQuarantine)
	switch {
	case report.Undecided && !report.Quarantined:
		return []string{fmt.Sprintf("the states of %s differ since log index %d or before, and no majority has the same: "+
			"see 'Replicas that differ' in TROUBLES.md", list(differ), report.Index)}
	case report.Replaced:
		return []string{members.Name(c.config.Self) + " is in quarantine: its state was replaced, and is compared next"}
	}
	for _, id := range differ {
		name := members.Name(id)
		all = append(all,
			fmt.Sprintf("%s is in quarantine, as its state differs from the majority's: replace it (holdfast "+
				"cluster repair %s)", name, name))
	}
	return all
}

// list is the names behind IDs in a sentence.
func list(ids []string) string { return strings.Join(names(ids), ", ") }

// take takes what the leader found.
func (c *Checker) take(ctx context.Context, v verdict) error {
	r := c.config.Replica()
	if r == nil {
		return nil
	}
	c.mu.Lock()
	i := slices.IndexFunc(c.hashes, func(h hashed) bool { return h.index == v.Index })
	own := ""
	if i >= 0 {
		own = c.hashes[i].hash
	}
	var news []Event
	if v.Index < c.report.Index {
		own = "" // a verdict that comes late
	} else {
		news = c.note(v, own)
	}
	c.signal()
	c.mu.Unlock()
	for _, e := range news {
		c.config.OnEvent(e)
	}
	on, frozen := r.Quarantined()
	switch {
	case own == "" || v.Right == "":
	case own != v.Right && !(on && frozen): // also if the state that was taken differs again
		return c.quarantine(ctx, r, v.Index, Differs{Index: v.Index, Own: own, Right: v.Right})
	case own == v.Right && on && !frozen:
		return c.release(ctx, r, v.Index)
	}
	return nil
}

// note notes a verdict, and returns what is new. Requires: mu is held.
func (c *Checker) note(v verdict, own string) (events []Event) {
	before := c.report
	c.report.Index, c.report.Differ, c.report.Undecided = v.Index, v.Differ, v.Right == "" && len(v.Differ) > 0
	others := without(v.Differ, c.config.Self)
	news := before.Undecided != c.report.Undecided || !slices.Equal(before.Differ, v.Differ)
	switch {
	case c.report.Undecided && news:
		events = append(events, Undecided{Index: v.Index, Members: names(v.Differ)})
	case !c.report.Undecided && len(others) > 0 && news:
		events = append(events, OthersDiffer{Index: v.Index, Members: names(others)})
	}
	if v.Right != "" {
		c.away = slices.DeleteFunc(slices.Clone(c.away), func(id string) bool {
			return slices.Contains(v.Compared, members.Name(id)) && !slices.Contains(v.Differ, id)
		})
	}
	if own != "" && own == v.Right && c.report.agreed != v.Index {
		c.report.agreed, c.report.Agreed, c.times.single = v.Index, time.Now(), false
		events = append(events, Checked{Index: v.Index})
	}
	return events
}

// quarantine puts this node into quarantine, over restarts, and tells why, unless it is there: a verdict may come
// twice. The state of a node that is there since before its state was replaced is frozen again.
func (c *Checker) quarantine(ctx context.Context, r Replica, index uint64, why ...Event) error {
	return c.decide(ctx, func() error {
		if on, frozen := r.Quarantined(); on && frozen {
			return nil
		}
		for _, e := range why {
			c.config.OnEvent(e)
		}
		r.Quarantine()
		c.mu.Lock()
		c.hashes = nil
		c.signal()
		c.mu.Unlock()
		return c.mark(&store.Quarantine{Index: index, At: time.Now().UTC()})
	})
}

// release ends the quarantine of this node, unless it has ended.
func (c *Checker) release(ctx context.Context, r Replica, index uint64) error {
	return c.decide(ctx, func() error {
		if on, frozen := r.Quarantined(); !on || frozen {
			return nil
		}
		if err := r.Release(); err != nil {
			return err
		}
		if err := c.mark(nil); err != nil {
			return err
		}
		c.config.OnEvent(Released{Index: index})
		c.mu.Lock()
		c.report.Differ = without(c.report.Differ, c.config.Self)
		c.signal()
		c.mu.Unlock()
		return nil
	})
}

// decide lets one goroutine at a time change the quarantine.
func (c *Checker) decide(ctx context.Context, change func() error) error {
	select {
	case c.deciding <- struct{}{}:
		defer func() { <-c.deciding }()
		return change()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// mark notes the quarantine in the folder.
func (c *Checker) mark(q *store.Quarantine) error {
	err := c.config.Folder.SetIdentity(func(id *store.Identity) {
		if id.Quarantine = q; q != nil {
			q.Cluster = id.ClusterID
		}
	})
	if err != nil {
		c.config.Fail(fmt.Errorf("note the quarantine: %w", err))
	}
	return err
}
