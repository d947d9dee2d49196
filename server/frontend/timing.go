package frontend

import (
	"time"

	"github.com/holdfast/holdfast/server/frontend/observe"
)

// Times of commands, as this node's clients meet them. A command of the log takes from the handing over
// of the batch until the replies are here: the journey to the leader and to the disks of a majority is part
// of the time. The commands of a batch share the batch's time in equal parts.

// timeBatch notes that the next n commands of the batch took d together.
func (c *conn) timeBatch(d time.Duration, n int) {
	w := c.w
	if n == 0 {
		return
	}
	share := d / time.Duration(n)
	slow := c.srv.slow.IsSlow(share)
	body := ""
	if slow {
		body = string(w.batch.Body)
	}
	for i := w.placed; n > 0; i++ {
		s := &w.slots[i]
		if s.kind == slotLocal {
			continue
		}
		n--
		s.row.stats.Took(share)
		if slow {
			var args []string
			if args, body = observe.FirstRequest(s.row.Command, body); args != nil {
				c.noteSlow(s.row, args, share)
			}
		}
	}
}

// timeLocal notes that a command of this node took d.
func (c *conn) timeLocal(req *request, d time.Duration) {
	req.stats.Took(d)
	if c.srv.slow.IsSlow(d) {
		c.noteSlow(req.row, observe.Shorten(req.Command, req.args), d)
	}
}

// noteSlow notes a command that took long.
func (c *conn) noteSlow(row *row, args []string, d time.Duration) {
	c.srv.slow.Note(row.Command, observe.Entry{
		At: time.Now(), Took: d, Args: args, Addr: c.nc.RemoteAddr().String(), Name: c.name(),
	})
}
