package fsm

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestTwins applies one random log to three machines: one that answers everything, one that answers nothing, and one
// that is sometimes replaced by its snapshot. Their states must be equal byte for byte, and their events equal.
func TestTwins(t *testing.T) {
	protocoltest.SkipShort(t, "many programs; TestModel is one")
	for seed := range int64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			log := newLog(seed)
			loud, quiet, restless := newMachine(), newMachine(), newMachine()
			log.machine = loud
			for i := range 150 {
				entry := log.next()
				loud.Listen(event.InMessages | event.InChanges)
				quiet.Listen(event.InMessages | event.InChanges)
				restless.Listen(event.InMessages | event.InChanges)
				var answered recorder
				var asQuiet, asRestless listener
				require.NoError(t, loud.Apply(entry, &answered))
				require.NoError(t, quiet.Apply(entry, &asQuiet))
				require.NoError(t, restless.Apply(entry, &asRestless))
				want := told(answered.events)
				require.Equal(t, want, told(asQuiet.events), "entry %d", i)
				require.Equal(t, want, told(asRestless.events), "entry %d", i)
				if log.rng.Intn(10) == 0 {
					restless = restored(t, restless)
				}
				require.Equal(t, loud.Hash(), quiet.Hash(), "entry %d", i)
				require.Equal(t, loud.Hash(), restless.Hash(), "entry %d", i)
				used := loud.Stats().UsedBytes
				require.Equal(t, used, quiet.Stats().UsedBytes, "entry %d", i)
				require.Equal(t, used, restless.Stats().UsedBytes, "entry %d", i)
			}
			require.Equal(t, dump(t, loud), dump(t, restless))
			for _, db := range loud.st.Databases {
				require.NoError(t, db.Verify())
			}
		})
	}
}

// TestLookingAhead: prefetching an entry's keys has no visible effect: each batch in an entry of its own gives the same
// replies and state. A truncated entry is refused.
func TestLookingAhead(t *testing.T) {
	log := newLog(1)
	together, apart := newDriver(t), newDriver(t)
	for _, d := range []*driver{together, apart} {
		d.fill("k", 1<<14+1000, 1<<40)
		require.True(t, d.m.st.Databases[0].Large())
	}
	looked := 0
	for i := range 200 {
		entry := log.next()
		var got, want recorder
		require.NoError(t, together.m.Apply(entry, &got))
		looked += len(together.m.call.prefetch.args)

		e, err := protocol.DecodeEntry(string(entry))
		require.NoError(t, err)
		empty := protocol.NewEntry(nil, e.Version, e.StampMillis, e.WallOffsetMillis, e.Limits)
		require.NoError(t, apart.m.Apply(empty.Bytes(), &want))
		var b protocol.Batch
		for more, err := e.Next(&b); more; more, err = e.Next(&b) {
			require.NoError(t, err)
			w := protocol.NewEntry(nil, e.Version, e.StampMillis, e.WallOffsetMillis, e.Limits)
			w.Add(b.Origin, b.Low, b.Seq, []byte(b.Body))
			require.NoError(t, apart.m.Apply(w.Bytes(), &want))
		}
		require.Equal(t, want, got, "entry %d", i)
	}
	require.Positive(t, looked)
	require.Equal(t, apart.m.Hash(), together.m.Hash())
	for entry := log.next(); len(entry) > 20; entry = entry[:len(entry)-1] {
		_ = together.m.Apply(entry, clientless{})
	}
	var c recorder
	broken := append(log.next(), 1)
	require.ErrorIs(t, together.m.Apply(broken, &c), protocol.ErrCorruptEntry)
}

// log generates random entries of several nodes, with batches that are repeated, late, or from a previous incarnation,
// and with jumps of time.
type log struct {
	rng   *rand.Rand
	gen   *generator
	stamp int64
	seqs  map[protocol.Incarnation]uint64
	// machine, if not nil, has applied the log so far.
	machine *machine
	bodies  func() []byte // of batches
}

func newLog(seed int64) *log {
	l := &log{
		rng:   rand.New(rand.NewSource(seed)),
		gen:   newGenerator(seed, ""),
		stamp: 1,
		seqs:  map[protocol.Incarnation]uint64{},
	}
	l.bodies = l.body
	return l
}

func (l *log) next() []byte {
	l.stamp += int64(l.rng.Intn(200)) - 20
	if l.rng.Intn(20) == 0 {
		l.stamp += 1_000_000_000
	}
	offset, limits := 1_700_000_000_000+int64(l.rng.Intn(3)), protocol.EntryLimits{MemoryBytes: l.memoryLimit()}
	w := protocol.NewEntry(nil, protocol.EntryVersion, l.stamp, offset, limits)
	for range l.rng.Intn(4) {
		o := protocol.Incarnation{Node: pick(l.rng, []string{"n1", "n2", "n3"}), Epoch: uint64(1 + l.stamp/2_000_000_000)}
		if l.rng.Intn(20) == 0 {
			o.Epoch = 1
		}
		seq := l.seqs[o] + uint64(l.rng.Intn(4))
		l.seqs[o] = max(seq, l.seqs[o])
		low := seq - min(seq, uint64(l.rng.Intn(5)))
		w.Add(o, low, seq, l.bodies())
	}
	return w.Bytes()
}

func (l *log) body() []byte {
	var body []byte
	for range 1 + l.rng.Intn(4) {
		db := l.rng.Intn(3)
		body = l.quota(body)
		switch l.rng.Intn(15) {
		case 3, 4, 5:
			body = l.lockRequest(body, db)
		case 0:
			watches := []protocol.Watch{{DB: db, Key: pick(l.rng, generatedKeys), Mark: l.mark()}}
			body = protocol.AppendTransaction(body, db, watches[:l.rng.Intn(2)], l.requests(db))
		case 2:
			body = request(body, 0, "set-notifications", pick(l.rng, []string{"", "KEA", "KEAn", "Exn", "K$g"}))
		case 1: // leases that expire
			body = request(body, db, "set", pick(l.rng, generatedKeys), "v", "px", fmt.Sprint(1+l.rng.Intn(500)),
				pick(l.rng, []string{"nx", "xx"}))
		default:
			body = append(body, l.requests(db)...)
		}
	}
	return body
}

// memoryLimit returns no limit, or one near the present usage.
func (l *log) memoryLimit() uint64 {
	if l.machine == nil || l.rng.Intn(3) == 0 {
		return 0
	}
	return uint64(max(1, l.machine.Stats().UsedBytes+int64(l.rng.Intn(4000))-1000))
}

// mark returns a recent mark of WATCH.
func (l *log) mark() uint64 {
	versions := uint64(0)
	if l.machine != nil {
		versions = l.machine.st.Versions
	}
	return uint64(newMark(versions-min(versions, uint64(l.rng.Intn(10))), l.rng.Intn(2) == 0))
}

// quota gives some requests a user with a quota.
func (l *log) quota(body []byte) []byte {
	if l.rng.Intn(3) > 0 {
		return body
	}
	return protocol.AppendQuota(body, &protocol.Quota{
		User: pick(l.rng, []string{"alice", "bob", "carol"}),
		Keys: uint64(l.rng.Intn(8)), Bytes: uint64(l.rng.Intn(3) * 1000), Waiters: uint64(l.rng.Intn(4)),
	})
}

func (l *log) requests(db int) (body []byte) {
	for range 1 + l.rng.Intn(3) {
		if body != nil {
			body = l.quota(body)
		}
		words := l.gen.next()
		switch n := l.rng.Intn(6); {
		case n < 2 && strings.HasPrefix(words[0], "eval"):
			body = ofUser(body, db, pick(l.rng, []string{
				"~a ~b +@all", "+@all -set ~*", "%R~* +@read",
				"-@all (~a +incr) (~b +del +get)",
			}), words...)
		case n < 3:
			body = request(body, db, words...)
		default:
			body = requestFrom(body, db, uint64(l.rng.Intn(300)), words...)
		}
	}
	return body
}
