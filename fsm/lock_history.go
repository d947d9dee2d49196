package fsm

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// The bounds of the history. All nodes must have the same.
const (
	// keptLosses and keptLossBytes bound a list of losses, keptCauses and keptCauseBytes the causes.
	keptLosses, keptLossBytes   = 500, 512 << 10
	keptCauses, keptCauseBytes  = 500, 256 << 10
	lossBytes, causeBytes       = 240, 160
	mostAlike                   = 10 // losses in a row that are alike; the others are counted
	mostOfLostKey, mostOfOrigin = 1 << 10, 256
)

// lockHistory has the last losses of locks. A copy of the struct is a snapshot, since lists grow at the end, and shrink
// in front, only.
type lockHistory struct {
	kinds   [lockKinds]kindHistory
	lossIDs uint64 // given out
}

// kindHistory has the losses of native or of stock locks. Losses by time and by force have lists of their own, so that
// many expired leases do not displace a broken lock. So have native and stock locks, since many clients leave the end
// of a stock lock to its lease.
type kindHistory struct {
	byTime, byForce lossList
	causes          []*lossCause // by id
	causeBytes      int64
	causeIDs        uint64
}

// lossList has the last losses, the oldest first.
type lossList struct {
	rows  []*lockLoss
	bytes int64
	// left counts the losses after the last row that were like that row, and were left out.
	left uint64
}

// lockLoss is a hold that was lost. A loss in a list is immutable.
type lockLoss struct {
	id, left    uint64 // left: as lossList.left, of the row before
	cause       uint64 // 0: none
	atMillis    int64  // cluster time, as sinceMillis
	sinceMillis int64
	wallOffset  int64 // as of the loss
	kind        int
	db          int
	key, owner  string
	note        string
	fence       uint64 // 0: a stock lock has none
	session     uint64
	client      locks.Client
	reason      locks.Reason
}

// lossCause is a command that ended others' holds.
type lossCause struct {
	id      uint64
	command string
	client  locks.Client // whose connection is 0 where the log does not say it
	address string
	name    string // of the client
	text    string // REASON
}

func (l *lockLoss) bytes() int64 { return int64(lossBytes + len(l.key) + len(l.owner) + len(l.note)) }

func (l *lossCause) bytes() int64 {
	return int64(causeBytes + len(l.command) + len(l.address) + len(l.name) + len(l.text))
}

// by names the sender of the command: by name and address, or by node and connection.
func (l *lossCause) by() string {
	if l.address == "" {
		return showOrigin(l.client)
	}
	return strings.TrimPrefix(l.name+" "+l.address, " ")
}

// showOrigin is showClient, or the node alone where the log does not say the connection.
func showOrigin(cl locks.Client) string { return cmp.Or(showClient(cl), cl.Origin.Node) }

func (h *lockHistory) usedBytes() (n int64) {
	for i := range h.kinds {
		n += h.kinds[i].byTime.bytes + h.kinds[i].byForce.bytes + h.kinds[i].causeBytes
	}
	return n
}

// isAlike reports whether two losses are of one event: a command, or the end of a session or of leases at one instant.
func (l *lockLoss) isAlike(o *lockLoss) bool {
	return l.atMillis == o.atMillis && l.reason == o.reason && l.cause == o.cause && l.session == o.session
}

// list returns the list for a reason.
func (k *kindHistory) list(r locks.Reason) *lossList {
	if r == locks.Broken || r == locks.Flushed {
		return &k.byForce
	}
	return &k.byTime
}

// add records a loss. A million holds that end together take ten rows.
func (h *lockHistory) add(loss lockLoss) {
	list := h.kinds[loss.kind].list(loss.reason)
	if n := len(list.rows); n >= mostAlike && list.rows[n-mostAlike].isAlike(&loss) && list.rows[n-1].isAlike(&loss) {
		list.left++
		return
	}
	h.lossIDs++
	loss.id, loss.left, list.left = h.lossIDs, list.left, 0
	list.put(&loss)
}

func (s *lossList) put(l *lockLoss) {
	s.rows = append(s.rows, l)
	s.bytes += l.bytes()
	for len(s.rows) > keptLosses || s.bytes > keptLossBytes {
		s.bytes -= s.rows[0].bytes()
		s.rows = s.rows[1:]
	}
}

// more counts the losses after a row that were like it, and were left out.
func (s *lossList) more(i int) uint64 {
	if i+1 < len(s.rows) {
		return s.rows[i+1].left
	}
	return s.left
}

// before counts the rows with an id below another; 0: all.
func (s *lossList) before(id uint64) int {
	if id == 0 {
		return len(s.rows)
	}
	i, _ := slices.BinarySearchFunc(s.rows, id, func(l *lockLoss, id uint64) int { return cmp.Compare(l.id, id) })
	return i
}

// descend calls f with the losses whose ids are below another, the newest first, until f returns false.
func (h *lockHistory) descend(below uint64, f func(l *lockLoss, more uint64) bool) {
	var lists [2 * lockKinds]*lossList
	var left [2 * lockKinds]int // rows of each that are to come
	for i := range h.kinds {
		lists[2*i], lists[2*i+1] = &h.kinds[i].byTime, &h.kinds[i].byForce
	}
	for i, list := range lists {
		left[i] = list.before(below)
	}
	for {
		next := -1
		for i, list := range lists {
			if left[i] > 0 && (next < 0 || list.rows[left[i]-1].id > lists[next].rows[left[next]-1].id) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		left[next]--
		if list := lists[next]; !f(list.rows[left[next]], list.more(left[next])) {
			return
		}
	}
}

// addCause records a command that ends others' holds, and returns its number. The caller calls trimCauses afterwards,
// or dropCause if no hold ended.
func (k *kindHistory) addCause(cause lossCause) uint64 {
	k.causeIDs++
	cause.id = k.causeIDs
	k.causes = append(k.causes, &cause)
	k.causeBytes += cause.bytes()
	return cause.id
}

func (k *kindHistory) trimCauses() {
	for len(k.causes) > keptCauses || k.causeBytes > keptCauseBytes {
		k.causeBytes -= k.causes[0].bytes()
		k.causes = k.causes[1:]
	}
}

// dropCause removes the last cause.
func (k *kindHistory) dropCause() {
	last := len(k.causes) - 1
	k.causeBytes -= k.causes[last].bytes()
	k.causes, k.causeIDs = k.causes[:last], k.causeIDs-1
}

// cause returns the command with a number, or nil if it is unknown or forgotten.
func (k *kindHistory) cause(id uint64) *lossCause {
	i, ok := slices.BinarySearchFunc(k.causes, id, func(l *lossCause, id uint64) int { return cmp.Compare(l.id, id) })
	if !ok {
		return nil
	}
	return k.causes[i]
}

// shortText returns at most so many bytes of a text.
func shortText(text string, most int) string {
	if len(text) > most {
		return strings.Clone(text[:most])
	}
	return text
}

// losses returns the mutable history of a kind. A script or a transaction can undo its changes.
func (c *call) losses(kind int) *kindHistory {
	c.keepHistory()
	return &c.st.history.kinds[kind]
}

// causeOf records the present command as the cause of losses.
func (c *call) causeOf(kind int, text string) uint64 {
	return c.losses(kind).addCause(c.requester(text))
}

// requester returns the command under way, with its sender and a REASON.
func (c *call) requester(text string) lossCause {
	client := c.from.client
	if client.Conn == 0 {
		origin := protocol.Incarnation{Node: c.st.sessions.nameOf(c.origin.Node), Epoch: c.origin.Epoch}
		client = locks.Client{Origin: origin, Conn: int64(c.conn)}
	}
	return lossCause{
		command: strings.ToLower(strings.Clone(c.Args[0])), client: client, text: strings.Clone(text),
		address: strings.Clone(shortText(c.from.address, mostOfOrigin)), name: strings.Clone(shortText(c.from.name,
			mostOfOrigin)),
	}
}

// recordLoss adds the loss of a native hold to the history.
func (c *call) recordLoss(e *locks.Event) {
	if e.Kind != locks.Lost {
		return
	}
	if e.Reason == locks.Broken && c.breaking && c.OwnSeq != 0 && len(c.broken) < mostAlike {
		c.broken = append(c.broken, event.BrokenHold{
			Key: e.Key, Owner: e.Owner, Note: e.Note, Fence: int64(e.Fence), SinceMillis: c.ToWall(e.SinceMillis),
			Client: showClient(e.Client),
		})
	}
	c.keepHistory()
	c.st.history.add(lockLoss{
		cause: e.Cause, atMillis: e.SinceMillis + e.HeldMillis, sinceMillis: e.SinceMillis, wallOffset: c.WallOffsetMillis,
		db: e.DB, key: shortText(e.Key, mostOfLostKey), owner: e.Owner, note: e.Note,
		fence: e.Fence, session: e.Session, client: e.Client, reason: e.Reason,
	})
}

// whyLost returns what the holder hears beside the reason: the text of LOCK.BREAK, and its sender. Both are empty if no
// command ended the hold, or the command is unknown.
func (c *call) whyLost(e *locks.Event) (text, by string) {
	if e.Cause == 0 {
		return "", ""
	}
	if cause := c.st.history.kinds[nativeLocks].cause(e.Cause); cause != nil {
		return cause.text, cause.by()
	}
	return "", ""
}

// byFence indexes the native losses of the history by the fences of the holds.
func (h *lockHistory) byFence() map[uint64]*lockLoss {
	all := make(map[uint64]*lockLoss)
	h.descend(0, func(l *lockLoss, _ uint64) bool {
		if l.kind == nativeLocks {
			all[l.fence] = l
		}
		return true
	})
	return all
}

// wall returns the Unix time of an instant of cluster time, by the offset at the loss.
func (l *lockLoss) wall(millis int64) int64 { return command.SaturatingAdd(millis, l.wallOffset) }
