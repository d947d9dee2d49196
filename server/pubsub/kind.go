package pubsub

import (
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/push"
)

// Kind is a kind of subscription.
type Kind uint8

// The kinds.
const (
	Channel Kind = iota
	Pattern
	Shard
	kinds
)

// message is what subscribers of the kind hear. name is the pattern, if the kind is.
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
