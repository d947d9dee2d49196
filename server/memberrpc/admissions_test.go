package memberrpc

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/peer/peertest"
)

// watching is a node that watches which members admit each other.
type watching struct {
	*Admissions
	client *Client

	mu      sync.Mutex
	secrets []string // its own first
	own     []string // what it warns of in itself
	events  []string // what the watch reported
}

// use sets the node's secrets, its own first.
func (w *watching) use(words ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = words
}

func (w *watching) warned() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own
}

func (w *watching) report(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
}

func (w *watching) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// watch runs the nodes n1 to n3. At first all have the secret "s".
func watch(t *testing.T, network *peertest.Network) map[string]*watching {
	t.Helper()
	all := map[string]*watching{}
	conf := []members.Member{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}
	for _, m := range conf {
		w := &watching{secrets: []string{"s"}}
		all[m.ID] = w
		l, err := network.Listen(m.ID + ":1")
		require.NoError(t, err)
		b := &members.Addresses{}
		for _, other := range conf {
			b.Hint(other.ID, other.ID+":1")
		}
		mux, err := peer.New(peer.Config{
			Listener: l, Dial: network.Dial(m.ID + ":1"), ID: m.ID, ClusterID: func() string { return "c1" }, Addresses: b,
			OnMisfit: func() { w.Suspect() }, Incarnations: firstLife(),
			Secrets: func() (words [][]byte) {
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, s := range w.secrets {
					words = append(words, []byte(s))
				}
				return words
			},
		})
		require.NoError(t, err)
		layer := mux.Layer(peer.KindMember)
		s := NewServer(layer, slog.New(slog.DiscardHandler))
		w.client = NewClient(layer)
		w.Admissions = NewAdmissions(AdmissionsConfig{
			Client: w.client, Self: m.ID, Misfit: peer.Misfit,
			Members:  func() []members.Member { return conf },
			Own:      w.warned,
			Refused:  func(m members.Member, _ string) { w.report("refused " + m.ID) },
			Admitted: func(m members.Member) { w.report("admitted " + m.ID) },
		}, s)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 3)
		go func() { done <- mux.Run(ctx) }()
		go func() { done <- s.Run(ctx) }()
		go func() {
			w.Run(ctx)
			done <- nil
		}()
		t.Cleanup(func() {
			cancel()
			for range 3 {
				require.NoError(t, <-done)
			}
		})
	}
	return all
}

// pairs returns the pairs of members that do not admit each other, as the node knows them.
func (w *watching) pairs() (all []string) {
	for _, r := range w.Refusals() {
		all = append(all, r.A+"-"+r.B)
	}
	return all
}

// TestSecretThatFitsNoMore shows that a secret that does not match is known on all nodes within about a minute, and as
// long as it lasts.
func TestSecretThatFitsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := peertest.New()
		n := watch(t, network)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, w := range n {
			require.Empty(t, w.pairs())
			require.Empty(t, w.reported())
		}
		n["n3"].use("other")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"n1-n3"}, n["n1"].pairs()[:1])
		require.Equal(t, []string{"refused n3"}, n["n1"].reported()[:1])
		require.Equal(t, []string{"n1-n3", "n2-n3"}, n["n3"].pairs())
		require.Contains(t, n["n1"].Refusals()[0].Text, "secret")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"n1-n3", "n2-n3"}, n["n1"].pairs(), "n2 said so")
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		require.GreaterOrEqual(t, len(n["n1"].reported()), 3, "it is told again while it lasts")
		require.LessOrEqual(t, len(n["n1"].reported()), 6)

		n["n3"].use("s")
		time.Sleep(2 * admissionsAgain)
		synctest.Wait()
		for id, w := range n {
			require.Empty(t, w.pairs(), id)
			require.Contains(t, w.reported()[len(w.reported())-1], "admitted")
		}
	})
}

// TestWarningsOfOthers shows that the warnings of a node are known on all others within a minute, and are removed when
// they end or the node is down. Neither a warning nor a node that is down is a refusal.
func TestWarningsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := peertest.New()
		n := watch(t, network)
		set := func(id string, texts ...string) {
			n[id].mu.Lock()
			defer n[id].mu.Unlock()
			n[id].own = texts
		}
		set("n3", "the disk\nis slow")
		set("n2", slices.Repeat([]string{"much is wrong"}, 2*maxWarnings)...)
		time.Sleep(time.Minute)
		synctest.Wait()
		want := append(slices.Repeat([]string{"n2: much is wrong"}, maxWarnings), "n3: the disk is slow")
		require.Equal(t, want, n["n1"].Warnings())
		require.Equal(t, "n3: the disk\nis slow", n["n3"].Warnings()[0], "its own come first")
		require.Empty(t, n["n1"].pairs())
		set("n2")
		network.Isolate("n3")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, n["n1"].Warnings())
		require.Empty(t, n["n1"].pairs(), "that it is gone is no refusal")
	})
}

// TestOneSecretOfTwo shows that a node that knows two secrets finds that two others, each of which knows one of them,
// do not admit each other.
func TestOneSecretOfTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := watch(t, peertest.New())
		n["n1"].use("old")
		n["n2"].use("new")
		n["n3"].use("new", "old")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"n1-n2"}, n["n3"].pairs())
		require.Empty(t, n["n3"].reported(), "it is not about that node")
		n["n2"].use("new", "old")
		time.Sleep(3 * admissionsAgain)
		synctest.Wait()
		require.Empty(t, n["n3"].pairs())
	})
}

// TestChangeOfAllSecrets shows that a single refusal while all secrets are changed, and a member that is down, are not
// reported.
func TestChangeOfAllSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := peertest.New()
		n := watch(t, network)
		time.Sleep(admissionsAgain - time.Millisecond)
		n["n3"].use("other")
		n["n1"].Check()
		synctest.Wait()
		n["n1"].use("other")
		n["n2"].use("other")
		time.Sleep(2 * admissionsAgain)
		network.Isolate("n2")
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, w := range n {
			require.Empty(t, w.reported())
			require.Empty(t, w.Refusals())
		}
	})
}

// TestLookIsAtOnce shows that Check, which is called after the files were read again, checks the members at once.
func TestLookIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := watch(t, peertest.New())
		time.Sleep(2 * admissionsAgain)
		n["n1"].use("other")
		n["n1"].Check()
		time.Sleep(admissionsAgain)
		synctest.Wait()
		require.Equal(t, []string{"n1-n2", "n1-n3"}, n["n1"].pairs())
		time.Sleep(2 * admissionsAgain)
		synctest.Wait()
		require.Equal(t, []string{"n1-n2", "n1-n3"}, n["n3"].pairs(), "that node has refused the other")
	})
}

// TestRefusalsOfOthersAreBounded shows that the refusals that another node reports are bounded, and forgotten with the
// node.
func TestRefusalsOfOthersAreBounded(t *testing.T) {
	all := []members.Member{{ID: "n2"}}
	a := NewAdmissions(AdmissionsConfig{Self: "n1", Members: func() []members.Member { return all }}, NewServer(nil, nil))
	said := make([]Refusal, 2*maxRefusals)
	for i := range said {
		said[i] = Refusal{A: fmt.Sprintf("m%03d", i), B: "x", Text: "two\nlines"}
	}
	a.note(all[0], statement{Refusals: said}, nil)
	require.Len(t, a.Refusals(), maxRefusals)
	require.Equal(t, "two lines", a.Refusals()[0].Text)
	a.config.Misfit = peer.Misfit
	a.note(all[0], statement{}, context.DeadlineExceeded)
	require.Len(t, a.Refusals(), maxRefusals, "a member that does not answer is as before")
	a.note(all[0], statement{}, &RemoteError{Unknown: true})
	require.Empty(t, a.Refusals())
	a.note(all[0], statement{Refusals: said}, nil)
	a.forget(nil)
	require.Empty(t, a.Refusals())
}
