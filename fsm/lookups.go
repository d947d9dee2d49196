package fsm

// lookups are the hits and misses of keys, as Redis's lookupKeyRead counts them: what commands look for in
// order to read. A request counts on the nodes whose clients wait for the reply.
type lookups struct {
	counting     bool // the command under way counts
	hits, misses uint64
}

func (l *lookups) countLookup(hit bool) {
	if hit {
		l.hits++
	} else {
		l.misses++
	}
}

// countingWrites are the commands that read a key and write another, or the same, and count what they read. SET
// and BITFIELD count with some arguments.
var countingWrites = map[string]bool{
	"bitop": true, "copy": true, "getdel": true, "getex": true, "getset": true, "sort": true,
	"sdiffstore": true, "sinterstore": true, "sunionstore": true,
	"zdiffstore": true, "zinterstore": true, "zrangestore": true, "zunionstore": true,
}

// countLookups adds the lookups of a call, which starts anew.
func (m *machine) countLookups(c *call) {
	if c.hits > 0 {
		m.hits.Add(c.hits)
	}
	if c.misses > 0 {
		m.misses.Add(c.misses)
	}
	c.lookups = lookups{}
}
