package replica

import "sync"

// Leadership describes the leader for clients.
type Leadership struct {
	// Leader is the last leader whose address for clients was known, or zero.
	Leader Member
	// Present is set if there is a leader now, and Leader is that leader.
	Present bool
}

// leaders notifies watchers of every change of the leadership, in order.
type leaders struct {
	mu       sync.Mutex
	id       string // the present leader, or empty
	told     Leadership
	watchers []func(Leadership, []Member)
}

// see sets the present leader. id is empty if there is none.
func (ls *leaders) see(id string, members []Member) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.id = id
	ls.notify(members)
}

// moved updates the members' addresses.
func (ls *leaders) moved(members []Member) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.notify(members)
}

// notify calls the watchers if something changed that clients can see. A leader without a known address is not passed
// on. The caller holds ls.mu.
func (ls *leaders) notify(members []Member) {
	now := Leadership{Leader: ls.told.Leader}
	for _, m := range members {
		if m.ID == ls.id && m.ClientAddr != "" {
			m.Silent, m.DiskFull, m.LogIndex = false, false, 0
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
