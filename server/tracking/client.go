package tracking

import (
	"slices"
	"strings"
	"sync"

	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/server/push"
)

// Options has the options of CLIENT TRACKING.
type Options struct {
	// Broadcast is set by BCAST: the client gets the changes of all keys with one of Prefixes. The prefix "" matches all
	// keys.
	Broadcast bool
	Prefixes  []string
	// NoLoop leaves the client's own changes out.
	NoLoop bool
}

// Target is the connection of a client.
type Target interface {
	// Invalidate sends a message. Any goroutine calls it, and it must not block. In RESP3 the message is a push, in RESP2
	// a message of [Channel].
	Invalidate(m *push.Message)
}

// Client is the client of one connection. Only the connection's goroutine calls its methods.
type Client struct {
	table   *Table
	options Options // guarded by Table.mu
	// rights has what the client may read, or is nil for everything. Table.mu guards it.
	rights *rights.Rights
	tracks bool // a copy for the connection's goroutine

	mu sync.Mutex
	to Target // nil after the end of the connection
	// busy is set while commands run. Messages are then held back in held, or replaced by heldAll, which is all keys.
	busy    bool
	held    []*news
	heldAll bool
	count   int // the number of keys in held
}

// maxHeld bounds the keys that are held back. A client with more drops all keys.
const maxHeld = 1 << 14

// Client returns a client that tracks nothing yet.
func (t *Table) Client(to Target) *Client { return &Client{table: t, to: to} }

// The bounds of prefixes. A changed key is looked up once for each length. MaxPrefixes bounds the prefixes of a client,
// each of which is compared with all others.
const (
	MaxPrefixes      = 1 << 10
	MaxPrefixBytes   = 4 << 10
	maxPrefixLengths = 64
)

// Start begins tracking, or changes the options and adds prefixes. It returns false, and changes nothing, if the
// prefixes of all clients would have too many lengths. Requires: no prefix is longer than MaxPrefixBytes, and the
// client has at most MaxPrefixes.
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

// Stop ends tracking. The table drops what it has of the client as the keys change.
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

// End is Stop at the end of the connection. The table may refer to the client until its keys change, so End drops the
// connection.
func (c *Client) End() {
	c.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to, c.held = nil, nil
}

// Restrict limits BCAST to keys that these rights allow to read, or does not if r is nil.
func (c *Client) Restrict(r *rights.Rights) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.rights = r
}

// Prefixes returns the prefixes of BCAST, in order.
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

// Begin holds messages back until Settle, since commands of the client will run.
func (c *Client) Begin() {
	c.mu.Lock()
	c.busy = true
	c.mu.Unlock()
}

// Settle sends the messages that were held back. The replies of all commands have been written.
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

// Read records that the client will read keys. Requires: Begin was called.
func (c *Client) Read(keys ...string) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.remember(key, c)
	}
	t.start()
}

// Numbered records the number of a batch of the client that has a script or changes. Any goroutine calls it, before the
// batch can be applied.
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
		t.add(message{to: t.batches[oldest], news: everything}) // nothing that the batch reads is recorded
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

// hold holds a message back while commands run. Otherwise it returns the target.
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
