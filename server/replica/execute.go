package replica

import "time"

// Execute runs u and returns when u.Replies is filled, one per request, or with
// a *protocol.Error row that answers every command of the unit. It is safe for
// many goroutines, but units of one connection must follow each other.
//
// It returns within the time limit of a command and a little. Of a unit with
// writes an error row's outcome says whether they may have been applied. Of a unit that is
// more work than there was time for, the last replies are rows as well.
func (r *Replica) Execute(u *Unit) error {
	deadline := time.Now().Add(r.config.Timing.Command)
	switch {
	case len(u.Body) > r.config.Limits.UnitBytes:
		return errTooLarge
	case u.Write:
		leave, err := r.large.enter(u, deadline)
		if err != nil {
			return err
		}
		defer leave()
		return r.writes.run(u, deadline)
	default:
		return r.read(u, deadline)
	}
}
