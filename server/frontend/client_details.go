package frontend

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
)

// LOCK.INFO and LOCK.LIST name a client by its node and the number of its connection, as the log does. Only that node
// knows more of the client, so this node asks it.

// The states of a client.
const (
	clientConnected = "connected"
	clientGone      = "gone"
	clientUnknown   = "unknown"
)

// Clients answers a question about connections of this node.
func (s *Server) Clients(q ClientsQuestion) ClientsAnswer {
	if q.Command != nil {
		return s.runForOther(q)
	}
	a := ClientsAnswer{Clients: make([]ClientDetail, min(len(q.Conns), perQuestion))}
	if q.Incarnation != s.backend.Origin().Epoch {
		return a
	}
	now := time.Now()
	for i := range a.Clients {
		if c := s.client(q.Conns[i]); c != nil {
			a.Clients[i] = c.detail(now)
		}
	}
	return a
}

// runForOther runs a command for a client of another node, if this node has or had the connection that it names.
func (s *Server) runForOther(q ClientsQuestion) (a ClientsAnswer) {
	if len(q.Conns) != 1 || !s.ids.has(q.Conns[0]) || len(q.Command) < 3 {
		return a
	}
	run := s.clientUnblock
	if strings.EqualFold(string(q.Command[1]), "kill") {
		run = s.kill
	}
	a.Reply = protocol.AppendValue(nil, run(nil, q.Command))
	return a
}

// askOthers has the other nodes run CLIENT KILL or UNBLOCK for an ID that is not one of this node. If no node has
// issued the ID, no client has it. A node that does not answer may have run the command.
func (s *Server) askOthers(ctx context.Context, id int64, command [][]byte) protocol.Value {
	status := s.backend.Status()
	if s.cfg.AskClients == nil || id < 1 {
		return protocol.Integer(0)
	}
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return protocol.ErrBusy.Value()
	}
	type answer struct {
		node  string
		reply []byte
		err   error
	}
	answers, questions := make(chan answer, len(status.Members)), 0
	for _, m := range status.Members {
		if m.ID != status.ID {
			questions++
			go func() {
				a, err := s.cfg.AskClients(ctx, m.ID, ClientsQuestion{Conns: []int64{id}, Command: command})
				answers <- answer{m.Name, a.Reply, err}
			}()
		}
	}
	var silent []string
	for range questions {
		a := <-answers
		if a.err == nil && len(a.reply) == 0 {
			continue
		}
		if v, _, err := protocol.DecodeValue(string(a.reply)); a.err == nil && err == nil {
			return v
		}
		silent = append(silent, a.node)
	}
	if silent != nil {
		slices.Sort(silent)
		return (&protocol.Error{
			Prefix: protocol.ErrUncertain.Prefix,
			Text:   strings.Join(silent, ", ") + " did not answer, and may have the client",
		}).Value()
	}
	return protocol.Integer(0)
}

// clientName is the name of a client in replies, with the incarnation of its node.
type clientName struct {
	node        string
	incarnation uint64
	conn        int64
}

// details has what nodes have answered about the clients of a reply.
type details struct {
	mu sync.Mutex
	of map[clientName]ClientDetail
	// answered has the clients whose nodes have answered.
	answered map[clientName]bool
}

// silence has the nodes that did not answer.
type silence struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (s *silence) has(node string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[node])
}

func (s *silence) note(node string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = make(map[string]time.Time)
	}
	for other, until := range s.until { // unordered: forgets
		if now.After(until) {
			delete(s.until, other)
		}
	}
	s.until[node] = now.Add(silentFor)
}

// addDetails adds to a reply about locks what nodes know of the clients and the log does not.
func (c *conn) addDetails(db int, key string, v protocol.Value) protocol.Value {
	c.srv.AddPolls(db, key, v)
	return c.srv.AddClients(c.ctx, v)
}

// rowsOf returns the locks in a reply to LOCK.INFO or LOCK.LIST.
func rowsOf(v protocol.Value) []protocol.Value {
	switch {
	case v.Kind == protocol.KindMap:
		return []protocol.Value{v}
	case v.Kind == protocol.KindArray && len(v.Elems) == 2:
		return v.Elems[1].Elems
	}
	return nil
}

// AddClients adds to each holder and waiter in a reply to LOCK.INFO or LOCK.LIST the details of its client.
func (s *Server) AddClients(ctx context.Context, v protocol.Value) protocol.Value {
	var people []*protocol.Value
	rows := rowsOf(v)
	for i := range rows {
		for j := 1; j < len(rows[i].Elems); j += 2 {
			if name := rows[i].Elems[j-1].Str; name != "holders" && name != "waiters" {
				continue
			}
			each := rows[i].Elems[j].Elems
			for k := range each {
				people = append(people, &each[k])
			}
		}
	}
	if len(people) == 0 {
		return v
	}
	found := s.detailsOf(ctx, people)
	for _, p := range people {
		found.addTo(p)
	}
	return v
}

// clientIn returns the client in the map of a holder or a waiter.
func clientIn(v *protocol.Value) (name clientName, ok bool) {
	for i := 1; i < len(v.Elems); i += 2 {
		switch v.Elems[i-1].Str {
		case "client":
			node, number, cut := strings.Cut(v.Elems[i].Str, "/")
			if !cut {
				return name, false
			}
			name.node = node
			name.conn, ok = protocol.ParseInt(number)
		case "incarnation":
			name.incarnation = uint64(v.Elems[i].Num)
		}
	}
	return name, ok
}

// detailsOf asks the nodes of the clients, all at the same time.
func (s *Server) detailsOf(ctx context.Context, people []*protocol.Value) *details {
	byNode := make(map[string][]clientName)
	seen := make(map[clientName]bool)
	for _, p := range people {
		if name, ok := clientIn(p); ok && !seen[name] && len(seen) < maxDetailedClients {
			seen[name] = true
			byNode[name.node] = append(byNode[name.node], name)
		}
	}
	d := &details{of: make(map[clientName]ClientDetail), answered: make(map[clientName]bool)}
	ctx, cancel := context.WithTimeout(ctx, detailsWithin)
	defer cancel()
	var asking sync.WaitGroup
	for node, names := range byNode { // unordered: nodes are asked beside each other
		switch {
		case node == s.backend.Origin().Node:
			s.askAbout(names, d, func(q ClientsQuestion) (ClientsAnswer, error) { return s.Clients(q), nil })
		case s.cfg.AskClients != nil && !s.silent.has(node, time.Now()):
			asking.Go(func() {
				s.askAbout(names, d, func(q ClientsQuestion) (ClientsAnswer, error) { return s.cfg.AskClients(ctx, node, q) })
			})
		}
	}
	asking.Wait()
	return d
}

// askAbout asks one node about its clients, in several questions, until it does not answer.
func (s *Server) askAbout(names []clientName, d *details, ask func(ClientsQuestion) (ClientsAnswer, error)) {
	for len(names) > 0 {
		var some []clientName
		q := ClientsQuestion{Incarnation: names[0].incarnation}
		var rest []clientName
		for _, name := range names {
			if name.incarnation == q.Incarnation && len(some) < perQuestion {
				some, q.Conns = append(some, name), append(q.Conns, name.conn)
			} else {
				rest = append(rest, name)
			}
		}
		a, err := ask(q)
		if err != nil || len(a.Clients) != len(some) {
			s.silent.note(names[0].node, time.Now())
			return
		}
		d.mu.Lock()
		for i, name := range some {
			d.answered[name], d.of[name] = true, a.Clients[i]
		}
		d.mu.Unlock()
		names = rest
	}
}

// addTo adds the details of the client to the map of a holder or a waiter.
func (d *details) addTo(p *protocol.Value) {
	name, ok := clientIn(p)
	detail, state, idle := d.of[name], "", int64(-1)
	switch {
	case !ok:
	case !d.answered[name]:
		state = clientUnknown
	case detail.Addr == "":
		state = clientGone
	default:
		state, idle = clientConnected, detail.IdleMillis
	}
	p.Elems = append(p.Elems[:len(p.Elems):len(p.Elems)],
		protocol.Bulk("client-state"), protocol.Bulk(state),
		protocol.Bulk("client-addr"), protocol.Bulk(detail.Addr),
		protocol.Bulk("client-name"), protocol.Bulk(detail.Name),
		protocol.Bulk("client-idle"), protocol.Integer(idle))
}

// AddPolls adds the clients that poll for stock locks to a reply to LOCK.LIST, or to LOCK.INFO of a key.
func (s *Server) AddPolls(db int, key string, v protocol.Value) {
	rows := rowsOf(v)
	for i := range rows {
		s.addPolls(&rows[i], db, key)
	}
}

// addPolls adds the clients that poll for a stock lock to its row, a list of names and values. A row of LOCK.LIST has
// its own key and database.
func (s *Server) addPolls(row *protocol.Value, db int, key string) {
	var mode string
	var count, list *protocol.Value
	for i := 1; i < len(row.Elems); i += 2 {
		switch v := &row.Elems[i]; row.Elems[i-1].Str {
		case "key":
			key = v.Str
		case "db":
			db = int(v.Num)
		case "mode":
			mode = v.Str
		case "waiters-count":
			count = v
		case "waiters":
			list = v
		}
	}
	if mode != "stock" || count == nil || list == nil {
		return
	}
	waiters := s.backend.StockWaiters(db, key)
	*count = protocol.Integer(int64(len(waiters)))
	shown := make([]protocol.Value, 0, min(len(waiters), maxShownPolls))
	for i := range waiters[:min(len(waiters), maxShownPolls)] {
		shown = append(shown, showPoll(&waiters[i]))
	}
	*list = protocol.Array(shown...)
}

// maxShownPolls bounds the shown clients that poll for one lock.
const maxShownPolls = 100

// showPoll returns a client that polls, with the fields of a waiter.
func showPoll(w *fsm.StockWaiter) protocol.Value {
	client, incarnation := "", int64(0)
	if w.Conn != 0 {
		client, incarnation = w.Origin.Node+"/"+strconv.FormatInt(w.Conn, 10), int64(w.Origin.Epoch)
	}
	return protocol.Map(
		protocol.Bulk("owner"), protocol.Bulk(w.Owner),
		protocol.Bulk("mode"), protocol.Bulk("stock"),
		protocol.Bulk("limit"), protocol.Integer(0),
		protocol.Bulk("permits"), protocol.Integer(0),
		protocol.Bulk("keys"), protocol.Integer(1),
		protocol.Bulk("session"), protocol.Integer(0),
		protocol.Bulk("since"), protocol.Integer(w.SinceMillis),
		protocol.Bulk("wait-left"), protocol.Integer(-1),
		protocol.Bulk("absent"), protocol.Integer(0),
		protocol.Bulk("notify"), protocol.Integer(0),
		protocol.Bulk("note"), protocol.Bulk(""),
		protocol.Bulk("client"), protocol.Bulk(client),
		protocol.Bulk("incarnation"), protocol.Integer(incarnation),
		protocol.Bulk("polls"), protocol.Integer(w.Refusals))
}
