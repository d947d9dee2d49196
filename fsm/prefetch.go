package fsm

import (
	"strings"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/protocol"
)

// prefetcher reads requests of an entry before they run, and prefetches the memory of the keys that they will look up.
// It affects only the time of the requests.
type prefetcher struct {
	entry  protocol.Entry
	body   string
	args   []string
	left   int  // the number of requests that were read and have not run yet
	ended  bool // the prefetcher reads no further request of the entry
	hashes [keyspace.MaxPrefetch]uint64
}

// start begins an entry. The prefetcher reads ahead only if a database is large.
func (p *prefetcher) start(e protocol.Entry, st *state) {
	p.entry, p.body, p.left, p.ended = e, "", 0, true
	for _, d := range st.Databases {
		if d.Large() {
			p.ended = false
		}
	}
}

// step runs before each request of the entry. If no request has been read ahead, it reads the next ones.
func (p *prefetcher) step(st *state) {
	if p.left--; p.left >= 0 || p.ended {
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

// next reads the next request of the entry. It returns false at the end and for a corrupt request, which Apply reports.
func (p *prefetcher) next(r *protocol.Request) bool {
	var err error
	for p.body == "" {
		var b protocol.Batch
		more, err := p.entry.Next(&b)
		if err != nil || !more {
			p.ended = true
			return false
		}
		p.body = b.Body
	}
	if p.body, err = protocol.NextRequest(p.body, r); err != nil {
		p.ended = true
	}
	return err == nil
}

// likelyKey returns the index that the first key of a request has in most commands.
func likelyKey(r *protocol.Request) int {
	if strings.HasPrefix(r.Args[0], "eval") {
		return 3
	}
	if r.Args[0] == "lock-command" {
		return 5
	}
	return 1
}
