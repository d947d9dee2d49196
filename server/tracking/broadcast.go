package tracking

import (
	"maps"
	"slices"
)

// change is a key that changed, and the client that did it, if the client is this node's.
type change struct {
	key string
	by  *Client
}

// broadcast queues the changes of an entry for the clients of BCAST: one message for each prefix with a
// changed key, the keys in order. The caller holds t.mu.
func (t *Table) broadcast(changed []change) {
	byPrefix := make(map[string]map[string]*Client) // the keys, and who changed each last
	for _, ch := range changed {
		for length := range t.lengths {
			if length > len(ch.key) || t.prefixes[ch.key[:length]] == nil {
				continue
			}
			keys := byPrefix[ch.key[:length]]
			if keys == nil {
				keys = make(map[string]*Client)
				byPrefix[ch.key[:length]] = keys
			}
			keys[ch.key] = ch.by
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(byPrefix)) {
		keys := byPrefix[prefix]
		all := make([]string, 0, len(keys))
		for key := range keys {
			all = append(all, key)
		}
		slices.Sort(all)
		own := make(map[*Client]int) // how many of the keys a client of NOLOOP changed
		for _, by := range keys {
			if by != nil && by.options.NoLoop {
				own[by]++
			}
		}
		toAll := newNews(all)
		for c := range t.prefixes[prefix] {
			switch n := own[c]; n {
			case 0:
				t.add(message{to: c, news: toAll})
			case len(all):
			default:
				t.add(message{to: c, news: &news{keys: all, bytes: toAll.bytes, changed: keys, but: c}})
			}
		}
	}
}
