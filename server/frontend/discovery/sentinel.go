package discovery

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// The port for Sentinel's clients describes the cluster as a group of Sentinels that watch one master. The master is
// the leader, the replicas are the followers, and the Sentinels are the nodes.

// Sentinel configures the port for Sentinel's clients.
type Sentinel struct {
	// Name is the name of the only master.
	Name string
	// DownAfter and FailoverTimeout are shown to clients.
	DownAfter, FailoverTimeout time.Duration
}

func sentinelReplies() map[string]Reply {
	return map[string]Reply{
		"sentinel|ckquorum":                aboutMaster(sentinelQuorum),
		"sentinel|get-master-addr-by-name": sentinelAddress,
		"sentinel|master":                  aboutMaster((*watched).master),
		"sentinel|masters":                 sentinelMasters,
		"sentinel|myid":                    sentinelID,
		"sentinel|pending-scripts":         func(*Directory, [][]byte) protocol.Value { return protocol.Array() },
		"sentinel|replicas":                aboutMaster((*watched).replicas),
		"sentinel|reset":                   sentinelReset,
		"sentinel|sentinels":               aboutMaster((*watched).sentinels),
		"sentinel|slaves":                  aboutMaster((*watched).replicas),
	}
}

// watched is the cluster as it is shown to Sentinel's clients.
type watched struct {
	cfg    *Sentinel
	leader replica.Member // the last leader; zero before the first
	up     bool           // there is a leader now
	since  time.Time      // the time since which up has its value
	self   string
	nodes  []replica.Member
	term   uint64
	commit uint64
}

// watched returns nil before this node knows a leader: it then watches no master.
func (d *Directory) watched() *watched {
	lead := d.lead.Load()
	if lead.Leader.ID == "" {
		return nil
	}
	st := d.status()
	return &watched{
		cfg: &d.cfg.Sentinel, leader: lead.Leader, up: lead.Present, since: lead.since,
		self: st.ID, nodes: st.Members, term: st.Term, commit: st.Committed,
	}
}

var errNoMaster = protocol.NewError("No such master with that name")

// aboutMaster returns a subcommand of SENTINEL that names the master.
func aboutMaster(f func(w *watched) protocol.Value) Reply {
	return func(d *Directory, args [][]byte) protocol.Value {
		w := d.watched()
		if w == nil || string(args[2]) != w.cfg.Name {
			return errNoMaster.Value()
		}
		return f(w)
	}
}

func sentinelAddress(d *Directory, args [][]byte) protocol.Value {
	w := d.watched()
	if w == nil || string(args[2]) != w.cfg.Name {
		return protocol.NullArray
	}
	host, port := SplitAddress(w.leader.ClientAddr)
	return protocol.Strings(host, port)
}

func sentinelMasters(d *Directory, _ [][]byte) protocol.Value {
	if w := d.watched(); w != nil {
		return protocol.Array(w.master())
	}
	return protocol.Array()
}

func sentinelID(d *Directory, _ [][]byte) protocol.Value {
	return protocol.Bulk(nodeID(d.status().ID))
}

// sentinelReset has nothing to reset, since a node always knows the others.
func sentinelReset(d *Directory, args [][]byte) protocol.Value {
	if w := d.watched(); w != nil && protocol.Match(string(args[2]), w.cfg.Name, false) {
		return protocol.Integer(1)
	}
	return protocol.Integer(0)
}

// fields returns the first fields of every entry in Sentinel's replies. Times since the last contact are 0: a node
// knows only whether another answers.
func (w *watched) fields(kind, name, addr string, m replica.Member, down bool) []protocol.Value {
	host, port := SplitAddress(addr)
	flags := kind
	if down {
		// The flag is never o_down, since the node does not ask the others.
		flags = "s_down," + kind + ",disconnected"
	}
	return bulks("name", name, "ip", host, "port", port, "runid", nodeID(m.ID), "flags", flags,
		"link-pending-commands", "0", "link-refcount", "1", "last-ping-sent", "0",
		"last-ok-ping-reply", "0", "last-ping-reply", "0", "down-after-milliseconds", millis(w.cfg.DownAfter))
}

func bulks(words ...string) []protocol.Value { return protocol.Strings(words...).Elems }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (w *watched) master() protocol.Value {
	return protocol.Map(append(w.fields("master", w.cfg.Name, w.leader.ClientAddr, w.leader, !w.up),
		bulks("info-refresh", "0", "role-reported", "master", "role-reported-time", millis(time.Since(w.since)),
			"config-epoch", strconv.FormatUint(w.term, 10),
			"num-slaves", strconv.Itoa(len(w.followers())),
			"num-other-sentinels", strconv.Itoa(len(w.others())),
			"quorum", strconv.Itoa(w.majority()),
			"failover-timeout", millis(w.cfg.FailoverTimeout), "parallel-syncs", strconv.Itoa(max(1, len(w.nodes)-1)))...)...)
}

// followers returns the members beside the leader that have a known address.
func (w *watched) followers() (ms []replica.Member) {
	for _, m := range w.nodes {
		if m.ID != w.leader.ID && m.ClientAddr != "" {
			ms = append(ms, m)
		}
	}
	return ms
}

// others returns the other nodes that have a port for Sentinel's clients.
func (w *watched) others() (ms []replica.Member) {
	for _, m := range w.nodes {
		if m.ID != w.self && m.SentinelAddr != "" {
			ms = append(ms, m)
		}
	}
	return ms
}

func (w *watched) majority() int { return majorityOf(w.nodes) }

func (w *watched) replicas() protocol.Value {
	host, port := SplitAddress(w.leader.ClientAddr)
	link := "ok"
	if !w.up {
		link = "err"
	}
	var all []protocol.Value
	for _, m := range w.followers() {
		link := link
		if m.Silent {
			link = "err"
		}
		all = append(all, protocol.Map(append(w.fields("slave", m.ClientAddr, m.ClientAddr, m, m.Silent),
			bulks("info-refresh", "0", "role-reported", "slave", "role-reported-time", millis(time.Since(w.since)),
				"master-link-down-time", "0", "master-link-status", link, "master-host", host, "master-port", port,
				"slave-priority", "100", "slave-repl-offset", strconv.FormatUint(min(m.LogIndex, w.commit), 10),
				"replica-announced", "1")...)...))
	}
	return protocol.Array(all...)
}

func (w *watched) sentinels() protocol.Value {
	var all []protocol.Value
	for _, m := range w.others() {
		leads := m.ID == w.leader.ID
		down := m.Silent && !leads || leads && !w.up
		all = append(all, protocol.Map(append(w.fields("sentinel", nodeID(m.ID), m.SentinelAddr, m, down),
			bulks("last-hello-message", "0", "voted-leader", "?", "voted-leader-epoch", "0")...)...))
	}
	return protocol.Array(all...)
}

// usable counts the nodes that answer, as far as this node knows.
func (w *watched) usable() int {
	if !w.up {
		return 1
	}
	n := 0
	for _, m := range w.nodes {
		if m.Voter && (!m.Silent || m.ID == w.leader.ID || m.ID == w.self) {
			n++
		}
	}
	return n
}

// SentinelRole returns the reply to ROLE on the port for Sentinel's clients: the names of the masters.
func (d *Directory) SentinelRole() protocol.Value {
	var names []string
	if d.watched() != nil {
		names = append(names, d.cfg.Sentinel.Name)
	}
	return protocol.Array(protocol.Bulk("sentinel"), protocol.Strings(names...))
}

func sentinelQuorum(w *watched) protocol.Value {
	n := w.usable()
	if n >= w.majority() {
		return protocol.Simple(fmt.Sprintf("OK %d usable Sentinels. Quorum and failover authorization can be reached", n))
	}
	return (&protocol.Error{
		Prefix: "NOQUORUM",
		Text: fmt.Sprintf("%d usable Sentinels. Not enough available Sentinels to reach "+
			"the specified quorum for this master. Not enough available Sentinels to reach the majority and "+
			"authorize a failover", n),
	}).Value()
}

// SentinelLines returns the lines of the section Sentinel of INFO.
func (d *Directory) SentinelLines() []string {
	masters, line := 0, []string(nil)
	if w := d.watched(); w != nil {
		status := "ok"
		if !w.up {
			status = "sdown"
		}
		masters, line = 1, []string{fmt.Sprintf("master0:name=%s,status=%s,address=%s,slaves=%d,sentinels=%d",
			w.cfg.Name, status, w.leader.ClientAddr, len(w.followers()), len(w.others())+1)}
	}
	return append([]string{
		"sentinel_masters:" + strconv.Itoa(masters), "sentinel_tilt:0", "sentinel_tilt_since_seconds:-1",
		"sentinel_running_scripts:0", "sentinel_scripts_queue_length:0", "sentinel_simulate_failure_flags:0",
	}, line...)
}

// Message is a message to subscribers on the port for Sentinel's clients.
type Message struct{ Channel, Payload string }

// messages returns the messages about a change of the leadership, in the words of Sentinel.
func (s *Sentinel) messages(was, now replica.Leadership, all []replica.Member) []Message {
	words := func(addr string) string {
		host, port := SplitAddress(addr)
		return host + " " + port
	}
	master := "master " + s.Name + " " + words(now.Leader.ClientAddr)
	switch {
	case now.Leader.ID == "":
		return nil
	case was.Leader.ID == "":
		return []Message{{"+monitor", fmt.Sprintf("%s quorum %d", master, majorityOf(all))}}
	case was.Leader.ClientAddr == now.Leader.ClientAddr && was.Present && !now.Present:
		return []Message{{"+sdown", master}}
	case was.Leader.ClientAddr == now.Leader.ClientAddr && !was.Present && now.Present:
		return []Message{{"-sdown", master}}
	case was.Leader.ClientAddr == now.Leader.ClientAddr:
		return nil
	}
	to := words(now.Leader.ClientAddr)
	switched := []Message{{"+switch-master", strings.Join([]string{s.Name, words(was.Leader.ClientAddr), to}, " ")}}
	for _, m := range all {
		if m.ID != now.Leader.ID && m.ClientAddr != "" {
			switched = append(switched, Message{"+slave", fmt.Sprintf("slave %s %s @ %s %s", m.ClientAddr, words(m.ClientAddr),
				s.Name, to)})
		}
	}
	return switched
}
