package fsm

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/fsm/locks"
)

// The bounds of the history. All nodes must have the same bounds.
const (
	// keptLosses and keptLossBytes bound the rows and the bytes of a list of losses.
	keptLosses, keptLossBytes = 500, 512 << 10
	// keptCauses and keptCauseBytes bound the causes and the bytes of the causes of one kind of locks.
	keptCauses, keptCauseBytes = 500, 256 << 10
	// lossBytes and causeBytes are the estimated memory of a loss and of a cause, without their texts.
	lossBytes, causeBytes = 240, 160
	// maxSimilarLosses limits the rows for similar losses: see isSimilar. The list counts further similar losses.
	maxSimilarLosses = 10
	// maxLostKeyBytes bounds a key, and maxOriginBytes a client's address and its name. Longer texts are cut.
	maxLostKeyBytes, maxOriginBytes = 1 << 10, 256
)

// lockHistory has the last losses of locks. A copy of the struct is a snapshot: its lists only grow at the end and
// shrink at the front.
type lockHistory struct {
	kinds   [lockKinds]kindHistory
	lossIDs uint64 // the last id that was issued to a loss
}

// kindHistory has the losses of native locks or those of stock locks. Expired holds have a list of their own, so that
// many of them do not displace a broken lock. The two kinds are separate, since many clients let the lease of a stock
// lock end instead of releasing the lock.
type kindHistory struct {
	byTime, byForce lossList
	causes          []*lossCause // by id
	causeBytes      int64
	causeIDs        uint64 // the last id that was issued to a cause
}

// lossList has the last losses, the oldest first.
type lossList struct {
	rows  []*lockLoss
	bytes int64
	left  uint64 // the number of losses after the last row that were similar to that row and have no row
}

// lockLoss describes the loss of a hold. A loss in a list is immutable.
type lockLoss struct {
	id          uint64
	left        uint64 // the value of lossList.left when this row was added
	causeID     uint64 // the id of the cause, or 0
	atMillis    int64  // cluster time of the loss
	sinceMillis int64  // cluster time of the grant
	wallOffset  int64  // the milliseconds from cluster time to Unix time, as of the loss
	kind        int
	db          int
	key, owner  string
	note        string
	fence       uint64 // 0 for a stock lock
	session     uint64
	client      locks.Client
	reason      locks.Reason
}

// lossCause describes a command that ended holds of others.
type lossCause struct {
	id      uint64
	command string
	client  locks.Client // its connection is 0 if the log entry does not contain it
	address string       // of the client
	name    string       // of the client
	text    string       // the text of REASON
}

func (l *lockLoss) bytes() int64 { return int64(lossBytes + len(l.key) + len(l.owner) + len(l.note)) }

func (l *lossCause) bytes() int64 {
	return int64(causeBytes + len(l.command) + len(l.address) + len(l.name) + len(l.text))
}

// by returns the name and address of the command's sender, or else the node and the connection.
func (l *lossCause) by() string {
	if l.address == "" {
		return showOrigin(l.client)
	}
	return strings.TrimPrefix(l.name+" "+l.address, " ")
}

// showOrigin returns showClient(cl), or just the node if the connection is unknown.
func showOrigin(cl locks.Client) string { return cmp.Or(showClient(cl), cl.Origin.Node) }

func (h *lockHistory) usedBytes() (n int64) {
	for i := range h.kinds {
		n += h.kinds[i].byTime.bytes + h.kinds[i].byForce.bytes + h.kinds[i].causeBytes
	}
	return n
}

// isSimilar reports whether two losses have one common cause: a command, the end of a session, or the end of leases at
// the same time.
func (l *lockLoss) isSimilar(o *lockLoss) bool {
	return l.atMillis == o.atMillis && l.reason == o.reason && l.causeID == o.causeID && l.session == o.session
}

// list returns the list of the losses for a reason.
func (k *kindHistory) list(r locks.Reason) *lossList {
	if r == locks.Broken || r == locks.Flushed {
		return &k.byForce
	}
	return &k.byTime
}

// leavesOut reports whether a loss is similar to the last maxSimilarLosses rows of its list. It counts such a loss in
// the list, and the caller adds any other loss. So a million holds that end together take ten rows.
func (h *lockHistory) leavesOut(l *lockLoss) bool {
	list := h.kinds[l.kind].list(l.reason)
	n := len(list.rows)
	if n < maxSimilarLosses || !list.rows[n-maxSimilarLosses].isSimilar(l) || !list.rows[n-1].isSimilar(l) {
		return false
	}
	list.left++
	return true
}

// add adds a loss to its list.
func (h *lockHistory) add(loss lockLoss) {
	list := h.kinds[loss.kind].list(loss.reason)
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

// more returns the number of losses after the i-th row that were similar to the row and have no row.
func (s *lossList) more(i int) uint64 {
	if i+1 < len(s.rows) {
		return s.rows[i+1].left
	}
	return s.left
}

// before returns the number of rows whose id is below an id, or the number of all rows if the id is 0.
func (s *lossList) before(id uint64) int {
	if id == 0 {
		return len(s.rows)
	}
	i, _ := slices.BinarySearchFunc(s.rows, id, func(l *lockLoss, id uint64) int { return cmp.Compare(l.id, id) })
	return i
}

// descend calls f with each loss whose id is below below, the newest first, until f returns false. If below is 0, it
// calls f with all losses. more is the number of similar losses without a row.
func (h *lockHistory) descend(below uint64, f func(l *lockLoss, more uint64) bool) {
	var lists [2 * lockKinds]*lossList
	var left [2 * lockKinds]int // the rows of each list that are not passed to f yet
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

// addCause records a command that ends holds of others, and returns the id of the cause. The caller must then call
// trimCauses, or dropCause if the command has ended no hold.
func (k *kindHistory) addCause(cause lossCause) uint64 {
	k.causeIDs++
	cause.id = k.causeIDs
	k.causes = append(k.causes, &cause)
	k.causeBytes += cause.bytes()
	return cause.id
}

// trimCauses removes the oldest causes beyond the bounds.
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

// cause returns the cause with an id, or nil if the history has no such cause, or no longer has it.
func (k *kindHistory) cause(id uint64) *lossCause {
	i, ok := slices.BinarySearchFunc(k.causes, id, func(l *lossCause, id uint64) int { return cmp.Compare(l.id, id) })
	if !ok {
		return nil
	}
	return k.causes[i]
}

// shortText returns the first maxBytes bytes of a text.
func shortText(text string, maxBytes int) string {
	if len(text) > maxBytes {
		return strings.Clone(text[:maxBytes])
	}
	return text
}

// losses returns the history of a kind of locks, for a change. A script or a transaction can undo the change.
func (c *call) losses(kind int) *kindHistory {
	c.keepHistory()
	return &c.st.history.kinds[kind]
}

// recordCause records the current command as a cause of losses, with the text of REASON, and returns its id.
func (c *call) recordCause(kind int, text string) uint64 {
	return c.losses(kind).addCause(c.requester(text))
}

// requester returns the current command and its sender as a cause, with the text of REASON.
func (c *call) requester(text string) lossCause {
	client := c.from.client
	if client.Conn == 0 {
		client = locks.Client{Origin: c.keptOrigin(), Conn: int64(c.conn)}
	}
	return lossCause{
		command: strings.ToLower(strings.Clone(c.Args[0])), client: client, text: strings.Clone(text),
		address: strings.Clone(shortText(c.from.address, maxOriginBytes)), name: strings.Clone(shortText(c.from.name,
			maxOriginBytes)),
	}
}

// recordLoss adds the loss of a native hold to the history. It ignores other events.
func (c *call) recordLoss(e *locks.Event) {
	if e.Kind != locks.Lost {
		return
	}
	if e.Reason == locks.Broken && c.breaking && c.OwnSeq != 0 && len(c.broken) < maxSimilarLosses {
		c.broken = append(c.broken, event.BrokenHold{
			Key: e.Key, Owner: e.Owner, Note: e.Note, Fence: int64(e.Fence), SinceMillis: c.ToWall(e.SinceMillis),
			Client: showClient(e.Client),
		})
	}
	loss := lockLoss{
		causeID: e.CauseID, atMillis: e.SinceMillis + e.HeldMillis, sinceMillis: e.SinceMillis,
		wallOffset: c.WallOffsetMillis, db: e.DB, owner: e.Owner, note: e.Note, fence: e.Fence,
		session: e.Session, client: e.Client, reason: e.Reason,
	}
	if c.keepHistory(); !c.st.history.leavesOut(&loss) {
		loss.key = shortText(e.Key, maxLostKeyBytes)
		c.st.history.add(loss)
	}
}

// whyLost returns the REASON and the sender of the LOCK.BREAK that ended a hold, for the holder. Both are empty if no
// command ended the hold, or if the history no longer has the command.
func (c *call) whyLost(e *locks.Event) (text, by string) {
	if e.CauseID == 0 {
		return "", ""
	}
	if cause := c.st.history.kinds[nativeLocks].cause(e.CauseID); cause != nil {
		return cause.text, cause.by()
	}
	return "", ""
}

// byFence returns the losses of native locks, by the fences of the holds.
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

// wall converts cluster time to Unix time, with the offset as of the loss.
func (l *lockLoss) wall(millis int64) int64 { return command.SaturatingAdd(millis, l.wallOffset) }
