package holdfast

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"time"
)

// Info is a lock as everybody can see it. A lock that nobody holds or waits for is the zero Info.
type Info struct {
	Holders, Waiters []Party // in order; at most 1,000 each
	HolderCount      int
	WaiterCount      int
	DelayLeft        time.Duration // until the lock can be granted after a loss
}

// Party is who holds a lock or waits for it.
type Party struct {
	Owner, Note string
	Mode        string // exclusive, shared, permits or stock
	Fence       int64  // 0: waits, or holds a stock lock
	Permits     int
	Since       time.Time // by the clock of the cluster
	// Client is the node and number of its connection, State connected, gone or unknown; Addr and Name are known while
	// the client is connected.
	Client, State, Addr, Name string
}

// Inspect returns who holds a lock and who waits for it.
func (c *Client) Inspect(ctx context.Context, name string) (Info, error) {
	v, err := c.do(ctx, "LOCK.INFO", name)
	if err != nil {
		return Info{}, err
	}
	return Info{
		Holders: parties(v.field("holders")), Waiters: parties(v.field("waiters")),
		HolderCount: int(v.field("holders-count").num), WaiterCount: int(v.field("waiters-count").num),
		DelayLeft: time.Duration(v.field("delay-left").num) * time.Millisecond,
	}, nil
}

func parties(v value) []Party {
	var ps []Party
	for _, e := range v.elems {
		text := func(name string) string { return e.field(name).text }
		ps = append(ps, Party{
			Owner: text("owner"), Note: text("note"), Mode: text("mode"), Fence: e.field("fence").num,
			Permits: int(e.field("permits").num), Since: time.UnixMilli(e.field("since").num),
			Client: text("client"), State: text("client-state"), Addr: text("client-addr"), Name: text("client-name"),
		})
	}
	return ps
}

// Watch yields who holds a lock and who waits for it: at once, and after each change; quick changes may be seen as one.
// It ends with an error, which is the cause of ctx when that ends.
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		c, err := c.observing()
		if err != nil {
			yield(Info{}, err)
			return
		}
		channel := fmt.Sprintf("__lock@%d__:%s", c.config.DB, name)
		w := &watch{signal: make(chan struct{}, 1)}
		c.addWatch(channel, w)
		defer c.removeWatch(channel, w)
		_, err = c.exchange(ctx, func(cn *conn) (value, error) { return cn.subscribe(ctx, channel) })
		for first, last := true, (Info{}); ; first = false {
			var info Info
			if err == nil {
				info, err = c.Inspect(ctx, name)
			}
			if first || err != nil || !reflect.DeepEqual(info, last) {
				if !yield(info, err) || err != nil {
					return
				}
				last = info
			}
			select {
			case <-w.signal:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
	}
}

// observing returns the client that watches for c. It has a connection of its own: a node without a leader closes
// connections with subscriptions, which would end the session of c.
func (c *Client) observing() (*Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if c.observer == nil {
		var err error
		if c.observer, err = New(c.config); err != nil {
			return nil, err
		}
	}
	return c.observer, nil
}

// watch is one iteration over a lock's changes.
type watch struct{ signal chan struct{} }

func (w *watch) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (c *Client) addWatch(channel string, w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers[channel] == nil {
		c.watchers[channel] = map[*watch]bool{}
	}
	c.watchers[channel][w] = true
}

func (c *Client) removeWatch(channel string, w *watch) {
	c.mu.Lock()
	delete(c.watchers[channel], w)
	last, cn := len(c.watchers[channel]) == 0, c.conn
	if last {
		delete(c.watchers, channel)
	}
	c.mu.Unlock()
	if !last || cn == nil {
		return
	}
	cn.send(request{words: []string{"UNSUBSCRIBE", channel}, subscribes: true, reply: func(value, error) {}})
	c.mu.Lock()
	watches := c.watchers[channel]
	c.mu.Unlock()
	if watches != nil { // added meanwhile: its SUBSCRIBE may have come before
		cn.send(request{words: []string{"SUBSCRIBE", channel}, subscribes: true, reply: func(value, error) {}})
	}
}

// subscribe has cn send the messages of all watched channels, and has the watchers look: they missed messages.
func (c *Client) subscribe(cn *conn) error {
	c.mu.Lock()
	var channels []string
	for channel, watches := range c.watchers {
		channels = append(channels, channel)
		for w := range watches {
			w.wake()
		}
	}
	c.mu.Unlock()
	for _, channel := range channels {
		if _, err := cn.subscribe(c.ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

// Pass reports whether no larger fence has passed at key before: whether the holder with this fence may still write to
// the resource that key stands for. It is for resources that cannot compare fences themselves.
func (c *Client) Pass(ctx context.Context, key string, fence int64) (bool, error) {
	v, err := c.do(ctx, "FENCE.PASS", key, strconv.FormatInt(fence, 10))
	return v.num == 1, err
}
