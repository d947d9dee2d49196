package replica

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
)

// reader executes reads: on the leader from the state, on other nodes by forwarding.
type reader struct {
	serving   *atomic.Pointer[leaderTerm]
	serves    *gate  // open while serving is not nil
	elsewhere *queue // reads that wait for another leader
	rounds    *rounds
	writes    *queue
	machine   fsm.Machine
	stamps    *watermark // cluster time of the applied entries
	// want requests an entry that brings cluster time to stampMillis.
	want func(l *leaderTerm, stampMillis int64)
	// census asks all nodes for this one.
	census func(question string, deadline time.Time) ([]protocol.Value, error)
	long   chan struct{} // has room for one long read
	// room bounds the memory of the replies of a batch. The rest is read again after other readers.
	room   int
	logger *slog.Logger
}

// read executes a batch of reads, on this node or on the leader.
func (r *reader) read(b *Batch, deadline time.Time) error {
	for {
		err := r.readOnce(b, deadline)
		if err != errReroute {
			return err
		}
		if !time.Now().Before(deadline) {
			return protocol.ErrNoLeader
		}
	}
}

func (r *reader) readOnce(b *Batch, deadline time.Time) error {
	if r.serving.Load() == nil {
		return r.elsewhere.run(b, deadline)
	}
	var err error
	if b.Census {
		b.Replies, err = r.census(string(b.Body), deadline)
		return err
	}
	if err := r.rounds.confirm(deadline); err != nil {
		return err
	}
	b.Replies, err = r.readHere(string(b.Body), b.Count, deadline)
	return err
}

// readHere reads this node's state at the leader's time. The caller has confirmed that this node leads.
func (r *reader) readHere(body string, count int, deadline time.Time) ([]protocol.Value, error) {
	replies, rest, err := r.readSome(body, count, deadline, fsm.ReadShort)
	if err == nil && rest != "" {
		replies, err = r.readOn(replies, rest, count, deadline)
	}
	return replies, err
}

// readOn reads the rest of a batch that exceeds a short read. Such batches take turns, one at a time, since entries
// wait for reads, and reads for entries. A small request can have a large reply, so their replies are bounded.
func (r *reader) readOn(replies []protocol.Value, rest string, count int, deadline time.Time) ([]protocol.Value,
	error,
) {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	for used := 0; rest != ""; {
		if used >= r.room {
			return withoutRoom(replies, count), nil
		}
		select {
		case r.long <- struct{}{}:
		case <-late.C:
			return withoutRoom(replies, count), nil
		}
		more, left, err := r.readSome(rest, count-len(replies), deadline, fsm.ReadLong)
		<-r.long
		if err != nil {
			return nil, err
		}
		replies, rest = append(replies, more...), left
		used += protocol.MemoryWithin(more, r.room)
	}
	return replies, nil
}

// withoutRoom adds the error of the remaining requests of a batch.
func withoutRoom(replies []protocol.Value, count int) []protocol.Value {
	for len(replies) < count {
		replies = append(replies, protocol.ErrNoRoom.Value())
	}
	return replies
}

// readSome reads what one call of the machine allows, and returns the rest of body.
func (r *reader) readSome(body string, count int, deadline time.Time, class fsm.ReadClass) (replies []protocol.Value,
	rest string, err error,
) {
	l := r.serving.Load()
	if l == nil {
		return nil, "", errReroute
	}
	// All attempts have one time. At a later time more could be due, while entries still end what was due before.
	stamp, offset := l.clock.read()
	for {
		replies, rest, due, err := r.machine.Read(body, count, stamp, offset, class)
		if err != nil {
			r.logger.Error("read state", "error", err)
			return nil, "", errInternal
		}
		if !due {
			return replies, rest, nil
		}
		if applied, _ := r.machine.Clock(); applied >= stamp {
			// Entries have left the key for later, since much was due. An entry with the request ends the key first.
			b := &Batch{Body: []byte(body), Count: count, Write: true}
			err := r.writes.run(b, deadline)
			return b.Replies, "", err
		}
		// A lease ends in the log. If a key is due by the leader's clock, it neither exists nor is missing until an entry
		// with that stamp is applied.
		if err := r.reachStamp(l, stamp, deadline); err != nil {
			return nil, "", err
		}
	}
}

// reachStamp has the log bring cluster time to stampMillis.
func (r *reader) reachStamp(l *leaderTerm, stampMillis int64, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	r.want(l, stampMillis)
	return r.stamps.wait(uint64(stampMillis), l.gone, ctx.Done())
}

// confirm is a leadership check that waits until this node serves.
func (r *reader) confirm(ctx context.Context, deadline time.Time) error {
	for r.serving.Load() == nil {
		// The node was elected, but its first entry is not applied yet, or the link is shut.
		if err := r.serves.wait(ctx); err != nil {
			return err
		}
	}
	return r.rounds.confirm(deadline)
}
