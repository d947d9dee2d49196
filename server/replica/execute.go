package replica

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Execute runs b and returns when b.Replies is filled, one per request, or with a *protocol.Error
// row that answers every command of the batch. It is safe for many goroutines, but batches of one
// connection must follow each other.
//
// Execute returns soon after the time limit of a command, or, if this node's state machine is running the batch then,
// when it has run. The outcome of an error row for a batch with writes says whether the writes may have been applied.
// When the batch is more work than there was time for, the last replies are rows as well.
func (r *Replica) Execute(b *Batch) error {
	if r.quarantined() {
		return protocol.ErrQuarantined
	}
	return r.execute(b)
}

// execute is Execute, also in quarantine.
func (r *Replica) execute(b *Batch) error {
	deadline := time.Now().Add(r.config.CommandTimeout)
	switch {
	case len(b.Body) > r.config.Limits.BatchBytes:
		return errTooLarge
	case b.Write:
		return r.writes.run(b, deadline)
	default:
		if b.Census {
			r.census.renewed.Store(true)
		}
		return r.reader.read(b, deadline)
	}
}

// executeAll executes a batch. A request that was answered with an error is an error, too.
func (r *Replica) executeAll(b *Batch) error {
	if err := r.Execute(b); err != nil {
		return err
	}
	for i := range b.Replies {
		if b.Replies[i].IsError() {
			return errors.New(b.Replies[i].Str)
		}
	}
	return nil
}

// Announce has the log know this node's incarnation, by a batch without commands: once, as soon as a leader is there,
// or until ctx ends. So each member that has the log refuses an earlier incarnation, also a member that was away
// when this one was proved.
func (r *Replica) Announce(ctx context.Context) {
	led := make(chan struct{}, 1)
	r.WatchLeadership(func(l Leadership, _ []Member) {
		if l.Present {
			notify(led)
		}
	})
	for {
		select {
		case <-led:
		case <-ctx.Done():
			return
		}
		if r.execute(&Batch{Write: true}) == nil {
			return
		}
	}
}
