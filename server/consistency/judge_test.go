package consistency

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/store"
)

// TestJudge shows that the right state is that of a majority of all voters, not only of those that answered.
func TestJudge(t *testing.T) {
	for _, c := range []struct{ voters, others, hashes, right, differ string }{
		{"a b c", "", "a=1 b=1 c=1", "1", ""},
		{"a b c", "", "a=1 b=1 c=2", "1", "c"},
		{"a b c", "", "a=2 b=1 c=1", "1", "a"},
		{"a b c", "", "a=1 b=1", "1", ""},
		{"a b c", "", "a=1 b=2", "", "a b"},
		{"a b c", "", "a=1", "", ""},
		{"a b c", "", "a=1 b=2 c=3", "", "a b c"},
		{"a b", "", "a=1 b=1", "1", ""},
		{"a b", "", "a=1 b=2", "", "a b"},
		{"a b c d", "", "a=1 b=1 c=2 d=2", "", "a b c d"},
		{"a b c d", "", "a=1 b=1 c=1 d=2", "1", "d"},
		{"a b c d e", "", "a=1 b=1 c=2", "", "a b c"},
		{"a b c d e", "", "a=1 b=1 c=2 d=1 e=3", "1", "c e"},
		{"a b c", "d", "a=1 b=1 c=1 d=2", "1", "d"},
		{"a b c", "d e", "a=1 b=1 c=2 d=2 e=2", "1", "c d e"},
		{"a b c", "d e", "a=1 d=2 e=2", "", "a d e"},
		{"a", "d", "a=1 d=2", "1", "d"},
	} {
		var all []members.Member
		for _, id := range strings.Fields(c.voters) {
			all = append(all, members.Member{ID: id, Voter: true})
		}
		for _, id := range strings.Fields(c.others) {
			all = append(all, members.Member{ID: id})
		}
		hashes := make(map[string]string)
		for _, word := range strings.Fields(c.hashes) {
			id, hash, _ := strings.Cut(word, "=")
			hashes[id] = hash
		}
		right, differ := judge(members.NewConfiguration(1, all...), hashes)
		require.Equal(t, c.right, right, c)
		require.Equal(t, c.differ, strings.Join(differ, " "), c)
	}
}

// slowNode is a Replica and a Folder whose quarantine takes a second to begin and to end.
type slowNode struct {
	Replica
	Folder
	on, frozen atomic.Bool
}

func (n *slowNode) Quarantined() (on, frozen bool) { return n.on.Load(), n.frozen.Load() }

func (n *slowNode) Quarantine() {
	time.Sleep(time.Second)
	n.on.Store(true)
	n.frozen.Store(true)
}

func (n *slowNode) Release() error {
	time.Sleep(time.Second)
	n.on.Store(false)
	return nil
}

func (n *slowNode) SetIdentity(func(*store.Identity)) error { return nil }

// TestVerdictComesTwice shows that if the leader sends a verdict twice, as soon as it is known and at the end, the
// quarantine begins or ends once, and is reported once.
func TestVerdictComesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &slowNode{}
		told := make(chan Event, 9)
		c := New(Config{Self: "a", Folder: n, Replica: func() Replica { return n }, OnEvent: func(e Event) { told <- e }})
		take := func(index uint64, own string) (events []Event) {
			c.hashes = []hashed{{index: index, hash: own}}
			var verdicts sync.WaitGroup
			for range 2 {
				verdicts.Go(func() { require.NoError(t, c.take(t.Context(), verdict{Index: index, Right: "right"})) })
			}
			verdicts.Wait()
			for len(told) > 0 {
				events = append(events, <-told)
			}
			return events
		}
		require.Equal(t, []Event{Differs{Index: 1, Own: "wrong", Right: "right"}}, take(1, "wrong"))
		n.frozen.Store(false)
		require.Equal(t, []Event{Checked{Index: 2}, Released{Index: 2}}, take(2, "right"))
	})
}
