package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// prefetcher reads an entry some requests ahead of the present one, and prefetches the memory that those requests will
// look up. Prefetching is a hint, and changes no outcome.
type prefetcher struct {
	entry protocol.Entry
	body  string
	args  []string
	// left counts the requests that were read and have not run yet.
	left   int
	over   bool
	hashes [keyspace.MaxPrefetch]uint64
}

// start begins an entry. The prefetcher reads ahead only if a database is large.
func (p *prefetcher) start(e protocol.Entry, st *state) {
	p.entry, p.body, p.left, p.over = e, "", 0, true
	for _, d := range st.Databases {
		if d.Large() {
			p.over = false
		}
	}
}

// step is called before each request.
func (p *prefetcher) step(st *state) {
	if p.left--; p.left >= 0 || p.over {
		return
	}
	p.left = 0
	n, db := 0, 0
	r := protocol.Request{Args: p.args[:0]}
	for p.left < keyspace.MaxPrefetch && p.next(&r) {
		p.left++
		if n == 0 {
			db = r.DB
		}
		if i := likelyKey(&r); r.DB == db && i < len(r.Args) {
			p.hashes[n] = keyspace.Hash(r.Args[i])
			n++
		}
	}
	p.args = r.Args
	p.left--
	if n > 1 {
		st.Databases[db].Prefetch(p.hashes[:n])
	}
}

// next reads the next request, of the next batch at the end of a batch. Apply reports a corrupt request.
func (p *prefetcher) next(r *protocol.Request) bool {
	var err error
	for p.body == "" {
		var b protocol.Batch
		more, err := p.entry.Next(&b)
		if err != nil || !more {
			p.over = true
			return false
		}
		p.body = b.Body
	}
	if p.body, err = protocol.NextRequest(p.body, r); err != nil {
		p.over = true
	}
	return err == nil
}

// likelyKey returns the index of a request's first key, if there is one.
func likelyKey(r *protocol.Request) int {
	if strings.HasPrefix(r.Args[0], "eval") {
		return 3
	}
	if r.Args[0] == "lock-command" {
		return 5
	}
	return 1
}
