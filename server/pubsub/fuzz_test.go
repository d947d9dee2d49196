package pubsub

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
)

// FuzzHub has three clients subscribe to channels, patterns and shard channels, unsubscribe and leave, between
// messages. Each must receive what its subscriptions match, and nothing else. After a gap all subscribers are
// disconnected. Each byte is a step: three bits choose the operation, and the others the client and the name.
func FuzzHub(f *testing.F) {
	f.Add([]byte{0x00, 0x06, 0x09, 0x16, 0x02, 0x07, 0x0b, 0x1e, 0x04, 0x06})
	f.Add([]byte{0x01, 0x21, 0x41, 0x06, 0x26, 0x46, 0x03, 0x05, 0x06, 0xff})
	f.Fuzz(func(t *testing.T, steps []byte) {
		const clients = 3
		names := []string{"a", "b", "a*", "[ab]", "*", "\\a", "a\x00", ""}
		h := newHub()
		var listeners [clients]listener
		var all [clients]*Client
		var subscribed [clients][kinds]map[string]bool
		forget := func(i int) {
			for k := range kinds {
				subscribed[i][k] = map[string]bool{}
			}
		}
		for i := range all {
			all[i] = h.Client(&listeners[i])
			forget(i)
		}
		for n, step := range steps[:min(len(steps), 200)] {
			who, name := int(step>>3)%clients, names[int(step>>3)/clients%len(names)]
			switch what := step & 7; what {
			case 0, 1, 2:
				require.Equal(t, !subscribed[who][what][name], all[who].Subscribe(Kind(what), name))
				subscribed[who][what][name] = true
			case 3, 4:
				kind := Kind(n) % kinds
				require.Equal(t, subscribed[who][kind][name], all[who].Unsubscribe(kind, name))
				delete(subscribed[who][kind], name)
			case 5:
				all[who].Leave()
				forget(who)
			default:
				sharded := what == 7
				payload := fmt.Sprint(n)
				h.Events([]event.Event{{Kind: event.Published, Name: name, Payload: payload, Sharded: sharded}})
				heard := 0
				for i := range all {
					want := times(&subscribed[i], name, sharded)
					require.Len(t, listeners[i].take(h), want, "client %d, %q", i, name)
					heard += want
				}
				require.Equal(t, heard, h.Receivers(name, sharded))
			}
		}
		total := 0
		for i := range all {
			for k := range kinds {
				require.Len(t, all[i].Names(k), len(subscribed[i][k]))
				require.True(t, slices.IsSorted(all[i].Names(k)))
				total += len(subscribed[i][k])
			}
		}
		h.Gap()
		for i := range all {
			some := all[i].Count(Channel)+all[i].Count(Pattern)+all[i].Count(Shard) > 0
			require.Equal(t, some, listeners[i].isCut(h) != "")
			all[i].Leave()
		}
		require.Zero(t, h.Clients())
		require.Zero(t, h.subscriptions.Load(), "of %d", total)
	})
}

// times returns how many copies of a message a client receives.
func times(subscribed *[kinds]map[string]bool, channel string, sharded bool) (n int) {
	if sharded {
		if subscribed[Shard][channel] {
			n++
		}
		return n
	}
	if subscribed[Channel][channel] {
		n++
	}
	for pattern := range subscribed[Pattern] {
		if protocol.Match(pattern, channel, false) {
			n++
		}
	}
	return n
}
