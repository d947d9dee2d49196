package fsm

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestTwins runs one random log through three machines: one that answers
// everything, one that answers nothing, and one that is put away in a snapshot and
// restored now and then. They must not differ in a byte.
func TestTwins(t *testing.T) {
	for seed := range int64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			log := newLog(seed)
			loud, quiet, restless := New(), New(), New()
			for i := range 150 {
				entry := log.next()
				require.NoError(t, loud.Apply(entry, new(recorder)))
				require.NoError(t, quiet.Apply(entry, nobody{}))
				require.NoError(t, restless.Apply(entry, nobody{}))
				if log.rng.Intn(10) == 0 {
					restless = restored(t, restless)
				}
				require.Equal(t, loud.Hash(), quiet.Hash(), "entry %d", i)
				require.Equal(t, loud.Hash(), restless.Hash(), "entry %d", i)
			}
			require.Equal(t, dump(t, loud), dump(t, restless))
			for _, db := range loud.st.databases {
				require.NoError(t, checkDatabase(db))
			}
		})
	}
}

// log makes random entries: of several nodes, with batches that come again, come
// late, or belong to a former life; with time that jumps.
type log struct {
	rng   *rand.Rand
	gen   *generator
	stamp int64
	seqs  map[protocol.Origin]uint64
}

func newLog(seed int64) *log {
	return &log{
		rng:   rand.New(rand.NewSource(seed)),
		gen:   newGenerator(seed, ""),
		stamp: 1,
		seqs:  map[protocol.Origin]uint64{},
	}
}

func (l *log) next() []byte {
	l.stamp += int64(l.rng.Intn(200)) - 20
	if l.rng.Intn(20) == 0 {
		l.stamp += 1_000_000_000
	}
	w := protocol.NewEntry(nil, l.stamp, 1_700_000_000_000+int64(l.rng.Intn(3)))
	for range l.rng.Intn(4) {
		o := protocol.Origin{Node: pick(l.rng, []string{"n1", "n2", "n3"}), Epoch: uint64(1 + l.stamp/2_000_000_000)}
		if l.rng.Intn(20) == 0 {
			o.Epoch = 1
		}
		seq := l.seqs[o] + uint64(l.rng.Intn(4))
		l.seqs[o] = max(seq, l.seqs[o])
		low := seq - min(seq, uint64(l.rng.Intn(5)))
		w.Add(o, low, seq, l.body())
	}
	return w.Bytes()
}

func (l *log) body() []byte {
	var body []byte
	for range 1 + l.rng.Intn(4) {
		db := l.rng.Intn(3)
		switch l.rng.Intn(12) {
		case 0:
			watches := []protocol.Watch{{DB: db, Key: pick(l.rng, generatedKeys), Version: uint64(l.rng.Intn(3))}}
			body = protocol.AppendTransaction(body, db, watches[:l.rng.Intn(2)], l.requests(db))
		case 1: // leases that do end
			body = request(body, db, "set", pick(l.rng, generatedKeys), "v", "px", fmt.Sprint(1+l.rng.Intn(500)))
		default:
			body = append(body, l.requests(db)...)
		}
	}
	return body
}

func (l *log) requests(db int) (body []byte) {
	for range 1 + l.rng.Intn(3) {
		body = request(body, db, l.gen.next()...)
	}
	return body
}
