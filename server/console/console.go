// Package console answers questions of people and scripts about locks and members: what the page of the port for
// monitoring shows, and its JSON endpoints.
//
// The package promises:
//   - all is read from this node's copy of the state, at the cluster time of its newest entry. So there are answers
//     while no leader is known, no other node is troubled, and an answer may be a moment behind the leader's;
//   - entries never wait long for a question: the state is read in pages, each as short as a short read of a client;
//   - however many ask, one survey of the locks runs at a time, those who ask the same meanwhile share it, and the next
//     begins no sooner than ten times as long as the last one took: surveys take a tenth of a processor at most;
//   - what a node knows of its clients is asked of it for a short time, of the clients of so many locks a survey;
//   - an answer has so many locks, holders and waiters at most; sums are of all;
//   - while nobody asks nothing is done, but for the counts of locks, which are noted once a minute.
//
// Goroutines: [Console.Run] notes the counts, until its context ends; a survey runs on its own, for [surveyWithin] at
// most.
//
// Start reading at [Console.Locks].
package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
)

// Config is what a [Console] needs of its node.
type Config struct {
	Node string
	// Machine is the node's copy of the state; nil while the node belongs to no cluster, or is in quarantine.
	Machine func() fsm.Machine
	// Status is the reply to RAFT.STATUS.
	Status func() protocol.Value
	// AddPolls adds to a reply to LOCK.LIST, or to LOCK.INFO about a key, who polls for stock locks; nil: nobody knows.
	AddPolls func(db int, key string, v protocol.Value)
	// AddClients adds to a reply to LOCK.INFO or LOCK.LIST what the nodes know of the clients in it; nil: nobody knows.
	AddClients func(ctx context.Context, v protocol.Value) protocol.Value
}

// Console answers questions. Create it with [New].
type Console struct {
	config Config
	hour   series
	turn   chan struct{} // held by the survey that runs
	// reading is held while the state is read: entries wait for one reader at most.
	reading sync.Mutex

	mu      sync.Mutex
	surveys map[filter]*survey
}

// New makes a console. Before [Console.Run] it has no counts of the last hour.
func New(c Config) *Console {
	return &Console{config: c, turn: make(chan struct{}, 1), surveys: make(map[filter]*survey)}
}

// Errors of questions.
var (
	ErrNoCluster = errors.New("this node belongs to no cluster yet")
	ErrNoLock    = errors.New("there is no such lock")
	ErrNoState   = errors.New("this node has no usable state; ask another node")
	ErrBusy      = errors.New("the node is busy with other questions; ask again")
)

// view is the node's copy of the state, at the instant of its newest entry.
type view struct {
	machine     fsm.Machine
	reading     *sync.Mutex
	now, offset int64
	sessions    map[int64]*api.Session // asked for
}

func (c *Console) open() (*view, error) {
	m := c.config.Machine()
	if m == nil {
		return nil, c.absence()
	}
	s := &view{machine: m, reading: &c.reading}
	s.now, s.offset = m.Clock()
	return s, nil
}

// absence is why there is no state to read: a member in quarantine has one that is wrong.
func (c *Console) absence() error {
	if status, err := api.ClusterOf(c.config.Status()); err == nil && status.ClusterID != "" {
		return ErrNoState
	}
	return ErrNoCluster
}

// unixMillis is cluster time as Unix time.
func (s *view) unixMillis() int64 { return s.now + s.offset }

// ask runs a command that reads, in a database. Whoever asks is told all that the command can tell.
func (s *view) ask(db int, name string, words ...string) (protocol.Value, error) {
	return s.askAs(protocol.Head{DB: db}, name, words...)
}

// askAs runs a command that reads, with the rights that the head has.
func (s *view) askAs(head protocol.Head, name string, words ...string) (protocol.Value, error) {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	body := protocol.AppendRequest(nil, head, name, args)
	s.reading.Lock()
	replies, _, _, err := s.machine.Read(string(body), 1, s.now, s.offset, fsm.ReadLong)
	s.reading.Unlock()
	switch {
	case err != nil:
		return protocol.Null, fmt.Errorf("%s: %w", name, err)
	case len(replies) != 1: // the log has come beyond now, and not all that is due by now was ended
		return protocol.Null, ErrBusy
	case strings.HasPrefix(replies[0].Str, "WRONGTYPE ") && replies[0].IsError():
		return protocol.Null, ErrNoLock
	case replies[0].IsError():
		return protocol.Null, fmt.Errorf("%s: %s", name, replies[0].Str)
	}
	return replies[0], nil
}

// addPolls adds to locks who polls for them.
func (c *Console) addPolls(db int, key string, v protocol.Value) {
	if c.config.AddPolls != nil {
		c.config.AddPolls(db, key, v)
	}
}

// addClients adds to locks what the nodes of their clients know of these, which is asked for a short time.
func (c *Console) addClients(v protocol.Value) protocol.Value {
	if c.config.AddClients == nil {
		return v
	}
	return c.config.AddClients(context.Background(), v)
}

// Members tells who the members are.
func (c *Console) Members() (api.Cluster, error) {
	doc, err := api.ClusterOf(c.config.Status())
	if machine := c.config.Machine(); machine != nil {
		for i := range doc.Members {
			doc.Members[i].Incarnation = machine.Incarnation(doc.Members[i].ID)
		}
	}
	return doc, err
}

// Lock tells all of a lock.
func (c *Console) Lock(key string, db int) (api.OneLock, error) {
	s, err := c.open()
	if err != nil {
		return api.OneLock{}, err
	}
	v, err := s.ask(db, "lock.info", key)
	if err != nil {
		return api.OneLock{}, err
	}
	c.addPolls(db, key, v)
	l, there, err := api.LockOf(c.addClients(v), key, db, s.unixMillis())
	switch {
	case err != nil:
		return api.OneLock{}, err
	case !there:
		return api.OneLock{}, ErrNoLock
	}
	if err := c.clearReleased(&l); err != nil {
		return api.OneLock{}, err
	}
	s.enliven(&l)
	if v, err = s.ask(db, "type", key); err == nil {
		l.Type = v.Str
	}
	return api.OneLock{Format: api.Format, Node: c.config.Node, NowUnixMillis: s.unixMillis(), Lock: l}, nil
}

// clearReleased reads a lock again if a holder's client is marked as gone, and clears the mark of each holder that has
// released the lock since it was read: a client that releases its lock and leaves is no trouble.
func (c *Console) clearReleased(l *api.Lock) error {
	if !slices.ContainsFunc(l.Holders, isGone) {
		return nil
	}
	later, err := c.open()
	if err != nil {
		return err
	}
	row, err := later.ask(l.DB, "lockrow", l.Key, strconv.Itoa(len(l.Holders)))
	if err != nil && !errors.Is(err, ErrNoLock) {
		return err
	}
	now, _, err := api.LockOf(row, l.Key, l.DB, later.unixMillis())
	if err != nil {
		return err
	}
	for i := range l.Holders {
		h := &l.Holders[i]
		if isGone(*h) && !slices.ContainsFunc(now.Holders, func(other api.Hold) bool {
			return other.Owner == h.Owner && other.Fence == h.Fence && other.SinceUnixMillis == h.SinceUnixMillis
		}) {
			h.Client.Gone = false
		}
	}
	return nil
}

func isGone(h api.Hold) bool { return h.Client != nil && h.Client.Gone }

// enliven adds to a lock what sessions tell of the holders' lives.
func (s *view) enliven(l *api.Lock) {
	for i := range l.Holders {
		h := &l.Holders[i]
		h.Session = s.session(h.Session)
		h.HeardMillis = lastRenewal(h)
	}
	for i := range l.Waiters {
		l.Waiters[i].Session = s.session(l.Waiters[i].Session)
	}
}

// lastRenewal is how long ago the last sign of a holder's life was.
func lastRenewal(h *api.Hold) *int64 {
	renewed := sinceRenewal(h.LeaseMillis, h.LeaseLeftMillis)
	if h.Session != nil {
		renewed = sinceRenewal(h.Session.LeaseMillis, h.Session.LeftMillis)
	}
	if h.Client == nil || h.Client.IdleMillis == nil {
		return renewed
	}
	idle := h.Client.IdleMillis
	if renewed == nil || *idle < *renewed || h.Session != nil && h.Session.Connection { // the node renews these itself
		return idle
	}
	return renewed
}

// session is all that is known of the session with an ID.
func (s *view) session(known *api.Session) *api.Session {
	if known == nil {
		return nil
	}
	if full, asked := s.sessions[known.ID]; asked {
		return full
	}
	full := known
	if v, err := s.ask(0, "session.info", fmt.Sprint(known.ID)); err == nil {
		if told := api.SessionOf(v); told != nil {
			full = told
		}
	}
	if s.sessions == nil {
		s.sessions = make(map[int64]*api.Session)
	}
	s.sessions[known.ID] = full
	return full
}

// sinceRenewal is how long ago a lease was given its length.
func sinceRenewal(lease int64, left *int64) *int64 {
	if lease <= 0 || left == nil {
		return nil
	}
	since := max(0, lease-*left)
	return &since
}
