package replica

import "context"

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
