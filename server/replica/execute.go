package replica

import "time"

// Execute runs u and returns when u.Replies is filled, one per request, or with
// a *protocol.Error row that answers every command of the batch. It is safe for
// many goroutines, but batches of one connection must follow each other.
//
// It returns within the time limit of a command and a little. Of a batch with
// writes an error row's outcome says whether they may have been applied. Of a batch that is
// more work than there was time for, the last replies are rows as well.
func (r *Replica) Execute(u *Batch) error {
	deadline := time.Now().Add(r.config.CommandTimeout)
	switch {
	case len(u.Body) > r.config.Limits.BatchBytes:
		return errTooLarge
	case u.Write:
		leave, err := r.large.enter(u, deadline)
		if err != nil {
			return err
		}
		defer leave()
		return r.writes.run(u, deadline)
	default:
		return r.reader.read(u, deadline)
	}
}
