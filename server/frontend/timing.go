package frontend

import "time"

// Times of commands, as this node's clients meet them. A command of the log takes from the handing over
// of the batch until the replies are here: the journey to the leader and to the disks of a majority is part
// of the time. The commands of a batch share the batch's time in equal parts.

// timeBatch notes that the commands of the batch took d together.
func (c *conn) timeBatch(d time.Duration) {
	w := c.w
	if w.batch.Count == 0 {
		return
	}
	share := d / time.Duration(w.batch.Count)
	slow := c.srv.slow.isSlow(share)
	body := ""
	if slow {
		body = string(w.batch.Body)
	}
	for i := range w.slots {
		s := &w.slots[i]
		if s.kind == slotLocal {
			continue
		}
		s.row.stats.Took(share)
		if slow {
			body = c.noteSlowRequest(s.row, body, share)
		}
	}
}

// timeLocal notes that a command of this node took d.
func (c *conn) timeLocal(row *row, args [][]byte, d time.Duration) {
	row.stats.Took(d)
	if c.srv.slow.isSlow(d) {
		c.noteSlow(row, shorten(row, args), d)
	}
}
