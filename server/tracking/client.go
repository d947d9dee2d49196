package tracking

import (
	"slices"
	"strings"
	"sync"

	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/server/push"
)

// Options are how a client tracks.
type Options struct {
	// Broadcast: BCAST. The client is told of all keys with one of Prefixes; "" is the prefix of all.
	Broadcast bool
	Prefixes  []string
	// NoLoop: not of the client's own changes.
	NoLoop bool
}

// Target takes messages to a client.
type Target interface {
	// Invalidate is called by any goroutine, and must not block. In RESP3 the message is a push, in RESP2
	// a message of [Channel].
	Invalidate(m *push.Message)
}

// Client is the client of one connection, whose goroutine alone calls the methods.
type Client struct {
	table   *Table
	options Options // guarded by Table.mu
	// rights are what the client may read, guarded by Table.mu; nil: everything.
	rights *rights.Rights
	tracks bool // the connection's

	mu sync.Mutex
	to Target // nil: the connection has ended
	// busy: commands are under way, and messages are held back in held. heldAll: all keys.
	busy    bool
	held    []*news
	heldAll bool
	count   int // of the keys in held
}

// maxHeld is the number of keys that are held back. Beyond that the client drops all keys.
const maxHeld = 1 << 14

// Client is a client that tracks nothing yet.
func (t *Table) Client(to Target) *Client { return &Client{table: t, to: to} }

// The bounds of prefixes: a changed key is looked up once for each length. MaxPrefixes is a client's number
// of prefixes; each is compared with all others.
const (
	MaxPrefixes      = 1 << 10
	MaxPrefixBytes   = 4 << 10
	maxPrefixLengths = 64
)

// Start begins to track, or changes the options; prefixes are added. It returns false, and changes nothing,
// if the prefixes of all clients would have too many lengths. Requires: no prefix is longer than
// MaxPrefixBytes, and the client's are at most MaxPrefixes.
func (c *Client) Start(o Options) bool {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	lengths := len(t.lengths)
	for i, p := range o.Prefixes {
		if t.lengths[len(p)] == 0 && !slices.ContainsFunc(o.Prefixes[:i], func(q string) bool { return len(q) == len(p) }) {
			lengths++
		}
	}
	if lengths > maxPrefixLengths {
		return false
	}
	if len(t.clients) == 0 {
		t.listen(true)
	}
	t.clients[c] = struct{}{}
	prefixes := c.options.Prefixes
	if c.options = o; o.Broadcast {
		for _, p := range o.Prefixes {
			if t.addPrefix(p, c) {
				prefixes = append(prefixes, p)
			}
		}
	}
	c.options.Prefixes, c.tracks = prefixes, true
	return true
}

// Stop ends tracking. What the table knows of the client goes as the keys change.
func (c *Client) Stop() {
	if !c.tracks {
		return
	}
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range c.options.Prefixes {
		t.dropPrefix(p, c)
	}
	delete(t.clients, c)
	c.options, c.tracks = Options{}, false
	if len(t.clients) == 0 {
		t.listen(false)
		t.empty()
	}
}

// End is Stop at the end of the connection. The table may know the client for as long as keys do not change,
// and must not keep the connection in memory.
func (c *Client) End() {
	c.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to, c.held = nil, nil
}

// Restrict has BCAST tell the client from now on of keys that may be read by these rights alone; nil: of all.
func (c *Client) Restrict(r *rights.Rights) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.rights = r
}

// Prefixes are the prefixes of BCAST, in order.
func (c *Client) Prefixes() []string {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	return slices.Sorted(slices.Values(c.options.Prefixes))
}

// addPrefix reports whether the prefix is new to the client.
func (t *Table) addPrefix(p string, c *Client) bool {
	if _, had := t.prefixes[p][c]; had {
		return false
	}
	if t.prefixes[p] == nil {
		t.prefixes[strings.Clone(p)] = make(clientSet)
		t.lengths[len(p)]++
	}
	t.prefixes[p][c] = struct{}{}
	return true
}

func (t *Table) dropPrefix(p string, c *Client) {
	if delete(t.prefixes[p], c); len(t.prefixes[p]) > 0 {
		return
	}
	delete(t.prefixes, p)
	if t.lengths[len(p)]--; t.lengths[len(p)] == 0 {
		delete(t.lengths, len(p))
	}
}

// Begin holds messages back until Settle: commands of the client go out.
func (c *Client) Begin() {
	c.mu.Lock()
	c.busy = true
	c.mu.Unlock()
}

// Settle sends what was held back: the replies of all commands have been written.
func (c *Client) Settle() {
	c.mu.Lock()
	to, held := c.to, c.held
	if c.heldAll {
		held = []*news{everything}
	}
	c.busy, c.held, c.heldAll, c.count = false, nil, false, 0
	c.mu.Unlock()
	for _, n := range held {
		n.tell(to)
	}
}

// Drop has the client drop all keys.
func (c *Client) Drop() { c.post(everything) }

// Read notes that the client is about to read keys. Requires: Begin was called.
func (c *Client) Read(keys ...string) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.remember(key, c)
	}
	t.start()
}

// Numbered notes that a batch of the client, with a script or with changes, got this number. It is called
// before the batch can be applied, by any goroutine.
func (c *Client) Numbered(number uint64) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.batches[number] = c
	t.order = append(t.order, number)
	if len(t.order) <= 2*maxBatches && len(t.batches) <= maxBatches {
		return
	}
	t.order = slices.DeleteFunc(t.order, func(n uint64) bool { return t.batches[n] == nil })
	for len(t.order) > maxBatches/2 {
		oldest := t.order[0]
		t.add(message{to: t.batches[oldest], news: everything}) // what the batch will look at is not noted
		delete(t.batches, oldest)
		t.order = t.order[1:]
	}
	t.start()
}

// post sends a message, or holds it back.
func (c *Client) post(n *news) {
	if to := c.hold(n); to != nil {
		n.tell(to)
	}
}

// hold holds a message back while commands are under way, or says whom to tell.
func (c *Client) hold(n *news) Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.busy || c.to == nil:
		return c.to
	case c.heldAll:
	case len(n.keys) == 0, c.count+len(n.keys) > maxHeld:
		c.held, c.heldAll = nil, true
	default:
		c.count += len(n.keys)
		c.held = append(c.held, n)
	}
	return nil
}
