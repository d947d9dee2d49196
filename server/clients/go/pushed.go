package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// patient is the time within which something must arrive that a server sends by itself.
const patient = 10 * time.Second

// runPushed checks what a server sends later than its command: messages, elements for blocked
// clients, invalidations of a cache. Everything happens on one node and is seen on the others.
func (s *suite) runPushed(ctx context.Context) error {
	for _, protocol := range []int{3, 2} {
		s.check(fmt.Sprintf("go-redis RESP%d: subscribers on all nodes see one order", protocol), func() error {
			return s.messages(ctx, protocol)
		})
		s.check(fmt.Sprintf("go-redis RESP%d: blocked clients on all nodes are served in order", protocol), func() error {
			return s.queue(ctx, protocol)
		})
	}
	for i, node := range s.nodes {
		other := s.nodes[(i+1)%len(s.nodes)]
		s.check("rueidis's cache on "+node+" hears of writes on "+other, func() error {
			return cached(ctx, node, other, "go:cache:"+node)
		})
	}
	if err := s.lockers(ctx); err != nil {
		return err
	}
	return s.pushedOverTheKill(ctx)
}

// reader is a subscriber: what it got so far, in order.
type reader struct {
	sub *redis.PubSub
	got []string
}

func (r *reader) until(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	for len(r.got) < count {
		m, err := r.sub.ReceiveMessage(ctx)
		if err != nil {
			return fmt.Errorf("after %d of %d messages: %w", len(r.got), count, err)
		}
		r.got = append(r.got, m.Payload)
	}
	return nil
}

// subscribe opens a subscriber of each kind on each of the nodes. All get the same messages.
func subscribe(ctx context.Context, nodes []string, protocol int, channel string) ([]*reader, error) {
	var readers []*reader
	for _, node := range nodes {
		c := newClient(node, protocol)
		for _, sub := range []*redis.PubSub{c.Subscribe(ctx, channel), c.PSubscribe(ctx, channel[:len(channel)-1]+"?")} {
			if _, err := sub.ReceiveTimeout(ctx, patient); err != nil { // the confirmation
				return nil, err
			}
			readers = append(readers, &reader{sub: sub})
		}
	}
	return readers, nil
}

func (s *suite) messages(ctx context.Context, protocol int) error {
	channel := fmt.Sprintf("go:messages:%d", protocol)
	readers, err := subscribe(ctx, s.nodes, protocol, channel)
	if err != nil {
		return err
	}
	const each = 50
	sent := make(chan error)
	for _, node := range s.nodes {
		go func() {
			c := newClient(node, protocol)
			for i := range each {
				if err := c.Publish(ctx, channel, node+" "+strconv.Itoa(i)).Err(); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
	}
	for range s.nodes {
		if err := <-sent; err != nil {
			return err
		}
	}
	return sameOrder(ctx, readers, each*len(s.nodes))
}

func sameOrder(ctx context.Context, readers []*reader, count int) error {
	for i, r := range readers {
		if err := r.until(ctx, count); err != nil {
			return fmt.Errorf("subscriber %d: %w", i, err)
		}
		if !slices.Equal(r.got, readers[0].got) {
			return fmt.Errorf("subscriber %d saw another order than the first", i)
		}
	}
	return nil
}

// queue blocks two clients on each node one after the other, and pushes for them through other nodes.
func (s *suite) queue(ctx context.Context, protocol int) error {
	key := fmt.Sprintf("go:queue:%d", protocol)
	var waiting []chan string
	for i := range 2 * len(s.nodes) {
		got, err := s.block(ctx, s.nodes[i%len(s.nodes)], protocol, key)
		if err != nil {
			return err
		}
		waiting = append(waiting, got)
	}
	for i := range waiting {
		if err := newClient(s.nodes[(i+1)%len(s.nodes)], protocol).RPush(ctx, key, i).Err(); err != nil {
			return err
		}
	}
	return served(waiting)
}

// block starts a BLPOP, and returns when the server has it.
func (s *suite) block(ctx context.Context, node string, protocol int, key string) (chan string, error) {
	conn := newClient(node, protocol).Conn()
	id, err := conn.ClientID(ctx).Result()
	if err != nil {
		return nil, err
	}
	got := make(chan string, 1)
	go func() {
		reply, err := conn.BLPop(ctx, 30*time.Second, key).Result()
		if err != nil {
			reply = []string{key, err.Error()}
		}
		got <- reply[1]
	}()
	return got, within(patient, func() error {
		list, err := newClient(node, 3).Do(ctx, "CLIENT", "LIST", "ID", id).Text()
		if err == nil && !strings.Contains(list, "flags=b") {
			err = errors.New("not blocked yet: " + list)
		}
		return err
	})
}

func served(waiting []chan string) error {
	for i, got := range waiting {
		select {
		case element := <-got:
			if element != strconv.Itoa(i) {
				return fmt.Errorf("waiter %d got %s", i, element)
			}
		case <-time.After(patient):
			return fmt.Errorf("waiter %d got nothing", i)
		}
	}
	return nil
}

func cachingClient(node string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{node}, DisableRetry: true})
}

// cached reads through rueidis's cache on one node what another node writes.
func cached(ctx context.Context, node, other, key string) error {
	c, err := cachingClient(node)
	if err != nil {
		return err
	}
	defer c.Close()
	read := func() rueidis.RedisResult {
		return c.DoCache(ctx, c.B().Get().Key(key).Cache(), time.Minute)
	}
	o := newClient(other, 3)
	for i := range 20 {
		value := strconv.Itoa(i)
		if err := o.Set(ctx, key, value, time.Minute).Err(); err != nil {
			return err
		}
		err := within(patient, func() error {
			found, err := read().ToString()
			if err == nil && found != value {
				err = fmt.Errorf("the cache has %q, written was %q", found, value)
			}
			return err
		})
		if err != nil {
			return err
		}
		err = within(patient, func() error { // the write's own invalidation may come behind the read
			if !read().IsCacheHit() {
				return errors.New("no read came from the cache")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := o.PExpire(ctx, key, 300*time.Millisecond).Err(); err != nil {
		return err
	}
	return within(patient, func() error {
		if _, err := read().ToString(); !rueidis.IsRedisNil(err) {
			return fmt.Errorf("the cache has what ended: %v", err)
		}
		return nil
	})
}

// pushedOverTheKill: who waits, listens or caches on the nodes that are left goes on.
func (s *suite) pushedOverTheKill(ctx context.Context) error {
	doomed := s.leader(ctx)
	alive := s.others(doomed)
	readers, err := subscribe(ctx, alive, 3, "go:messages:kill")
	if err != nil {
		return err
	}
	var waiting []chan string
	for i := range 4 {
		got, err := s.block(ctx, alive[i%2], 2+i%2, "go:queue:kill")
		if err != nil {
			return err
		}
		waiting = append(waiting, got)
	}
	held := s.holdAndWait(ctx, alive)
	dead, err := s.kill()
	if err != nil || dead != doomed {
		return fmt.Errorf("killed %s, expected %s: %w", dead, doomed, err)
	}
	c := newClient(alive[0], 3)
	s.check("blocked clients over the kill", func() error {
		for i := range waiting {
			if err := within(soon, func() error { return c.RPush(ctx, "go:queue:kill", i).Err() }); err != nil {
				return err
			}
		}
		return served(waiting)
	})
	s.check("subscribers over the kill", func() error {
		for i := range 50 {
			if err := newClient(alive[i%2], 3).Publish(ctx, "go:messages:kill", i).Err(); err != nil {
				return err
			}
		}
		return sameOrder(ctx, readers, 50)
	})
	for i, node := range alive {
		s.check("rueidis's cache on "+node+" after the kill", func() error {
			return cached(ctx, node, alive[1-i], "go:cache:kill")
		})
	}
	s.check("rueidislock over the kill", held)
	return nil
}

// leader is the node that kill-leader will kill.
func (s *suite) leader(ctx context.Context) string {
	for _, node := range slices.Backward(s.nodes) {
		if info := newClient(node, 3).Info(ctx, "replication").Val(); strings.Contains(info, "role:master") {
			return node
		}
	}
	return ""
}
