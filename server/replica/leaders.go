package replica

import "sync"

// Leadership is what a node tells clients about the leader.
type Leadership struct {
	// Leader is the last leader that this node knew with the address for clients; zero: none yet.
	Leader Member
	// Present: the node knows a leader now, and Leader is that leader.
	Present bool
}

// leaders tells watchers about every change of the leadership, in order.
type leaders struct {
	mu       sync.Mutex
	id       string // of the present leader; empty: none is known
	told     Leadership
	watchers []func(Leadership, []Member)
}

// see notes who leads at present; empty: no leader is known.
func (ls *leaders) see(id string, members []Member) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.id = id
	ls.notify(members)
}

// moved notes the members' addresses.
func (ls *leaders) moved(members []Member) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.notify(members)
}

// notify tells the watchers, if anything has changed that clients can see. A leader whose address is not
// known yet is not told. The caller holds ls.mu.
func (ls *leaders) notify(members []Member) {
	now := Leadership{Leader: ls.told.Leader}
	for _, m := range members {
		if m.ID == ls.id && m.ClientAddr != "" {
			m.Silent, m.LogIndex = false, 0
			now = Leadership{Leader: m, Present: true}
		}
	}
	if now == ls.told {
		return
	}
	ls.told = now
	for _, f := range ls.watchers {
		f(now, members)
	}
}
