package frontend

import (
	"time"

	"github.com/holdfast/holdfast/server/frontend/observe"
)

// Times of commands, as this node's clients meet them. A command of the log takes from the handing over
// of the batch until the replies are here: the journey to the leader and to the disks of a majority is part
// of the time. The commands of a batch share the batch's time in equal parts.

// timeBatch notes that the next n commands of the batch took d together.
func (s *Server) timeBatch(p *profile, w *work, d time.Duration, n int) {
	if n == 0 {
		return
	}
	share := d / time.Duration(n)
	slow := s.slow.IsSlow(share)
	body := ""
	if slow {
		body = string(w.batch.Body)
	}
	for i := w.placed; n > 0; i++ {
		at := &w.slots[i]
		if at.kind == slotLocal {
			continue
		}
		n--
		at.row.stats.Took(share)
		if slow {
			var args []string
			if args, body = observe.FirstRequest(at.row.Command, body); args != nil {
				s.noteSlow(p, at.row, args, share)
			}
		}
	}
}

// timeLocal notes that a command of this node took d.
func (s *Server) timeLocal(p *profile, req *request, d time.Duration) {
	req.stats.Took(d)
	if s.slow.IsSlow(d) {
		s.noteSlow(p, req.row, observe.Shorten(req.Command, req.args), d)
	}
}

// noteSlow notes a command that took long.
func (s *Server) noteSlow(p *profile, row *row, args []string, d time.Duration) {
	s.slow.Note(row.Command, observe.Entry{
		At: time.Now(), Took: d, Args: args, Addr: p.addr.String(), Name: p.view().name,
	})
}
