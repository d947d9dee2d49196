package pubsub

import (
	"strings"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// topic is a channel, a shard channel or a pattern with its subscribers.
type topic struct {
	name string
	// at is the index of a pattern in its list.
	at   int
	subs []subscription
}

// subscription is a subscriber of a topic.
type subscription struct {
	client *Client
	// since is the number of the last message that the subscriber does not get.
	since uint64
}

// topics has the topics of one kind, by name.
type topics map[string]*topic

// add subscribes c, which is no subscriber yet, and returns the topic.
func (t topics) add(c *Client, kind Kind, name string, since uint64) *topic {
	found := t[name]
	if found == nil {
		found = &topic{name: name}
		t[name] = found
	}
	c.names[kind][found.name] = len(found.subs)
	found.subs = append(found.subs, subscription{c, since})
	return found
}

// remove ends a subscription; the last subscriber takes its index. It returns the topic if that has no subscribers
// left.
func (t topics) remove(c *Client, kind Kind, name string) (empty *topic) {
	found := t[name]
	at, last := c.names[kind][name], len(found.subs)-1
	moved := found.subs[last]
	found.subs[at] = moved
	moved.client.names[kind][found.name] = at
	found.subs[last] = subscription{}
	found.subs = found.subs[:last]
	delete(c.names[kind], name)
	if last > 0 {
		return nil
	}
	delete(t, name)
	return found
}

// patterns finds the patterns that may match a channel. It lists patterns by their text before the first wildcard, and
// compares a message only with lists whose text fits. So 100,000 patterns such as user:123:* cost a message one
// look-up.
type patterns struct {
	lists map[string][]*topic
	// lengths counts the lists by the lengths of their texts.
	lengths [maxBeginning + 1]int
}

// maxBeginning bounds the lengths of these texts, and so the look-ups for each message.
const maxBeginning = 32

func beginning(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		pattern = pattern[:i]
	}
	return pattern[:min(len(pattern), maxBeginning)]
}

func (p *patterns) add(t *topic) {
	key := beginning(t.name)
	list, known := p.lists[key]
	if !known {
		if p.lists == nil {
			p.lists = make(map[string][]*topic)
		}
		p.lengths[len(key)]++
	}
	t.at = len(list)
	p.lists[key] = append(list, t)
}

func (p *patterns) remove(t *topic) {
	key := beginning(t.name)
	list := p.lists[key]
	last := len(list) - 1
	list[t.at] = list[last]
	list[t.at].at = t.at
	list[last] = nil
	if last > 0 {
		p.lists[key] = list[:last]
		return
	}
	p.lengths[len(key)]--
	if delete(p.lists, key); len(p.lists) == 0 {
		p.lists = nil
	}
}

// each calls f with every pattern that may match the channel, until f returns false.
func (p *patterns) each(channel string, f func(*topic) bool) {
	for n, lists := range p.lengths {
		if lists == 0 || n > len(channel) {
			continue
		}
		for _, t := range p.lists[channel[:n]] {
			if !f(t) {
				return
			}
		}
	}
}

// Kind is a kind of subscription.
type Kind uint8

// The kinds.
const (
	Channel Kind = iota
	Pattern
	Shard
	kinds
)

// message returns the message for subscribers of the kind. name is the name of a pattern.
func (k Kind) message(name, channel, payload string) *push.Message {
	switch k {
	case Pattern:
		return push.New(protocol.Push(protocol.Bulk("pmessage"), protocol.Bulk(name), protocol.Bulk(channel),
			protocol.Bulk(payload)))
	case Shard:
		return push.New(protocol.Push(protocol.Bulk("smessage"), protocol.Bulk(channel), protocol.Bulk(payload)))
	default:
		return push.New(protocol.Push(protocol.Bulk("message"), protocol.Bulk(channel), protocol.Bulk(payload)))
	}
}
