package replica

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Execute runs b. It returns nil with a reply in b.Replies for each request, or a *protocol.Error row that is the reply
// to every command. It is safe for concurrent use, but a connection must run its batches one after another.
//
// Execute returns soon after the time limit of a command, or after the state machine of this node, if it is running the
// batch then, has run it. If the batch has writes, the outcome of the error row says whether they may have been
// applied. If there was no time for all of the batch, the last replies are rows, too.
func (r *Replica) Execute(b *Batch) error {
	if r.quarantined() {
		return protocol.ErrQuarantined
	}
	return r.execute(b)
}

// execute is Execute without the check for quarantine.
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

// executeAll executes a batch. The error reply of any request is an error, too.
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

// Announce writes this node's incarnation to the log, by one batch without commands, as soon as there is a leader, or
// until ctx ends. Each member with that entry refuses earlier incarnations, even a member that was away when this one
// was confirmed.
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
