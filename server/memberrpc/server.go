package memberrpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/peer/wire"
)

const (
	// messageWithin is how long a message may take on its way.
	messageWithin = 5 * time.Second
	// maxRequests bounds the requests that are handled at a time, and maxOfNode those of a node.
	maxRequests = 64
	maxOfNode   = 16
)

// Caller is the node that asks, as its connection proves.
type Caller struct {
	ID   string
	Addr string // where the connection comes from
}

// handler answers requests of one kind.
type handler struct {
	answer func(ctx context.Context, from Caller, body []byte) (any, error)
	// stream replaces answer for requests whose answer is followed by a stream.
	stream func(ctx context.Context, from Caller, body []byte) (any, io.ReadCloser, error)
	// any: nodes that do not know the cluster may ask.
	any bool
}

// Server answers other nodes.
type Server struct {
	listener net.Listener
	logger   *slog.Logger
	handlers map[string]handler

	mu   sync.Mutex
	busy map[string]int // requests under way, by node
	all  int            // of all nodes
	// streams is how many requests under way may have a stream behind the answer.
	streams int
}

// NewServer makes a server of the connections that l takes. Its handlers are given before Run.
func NewServer(l net.Listener, logger *slog.Logger) *Server {
	return &Server{listener: l, logger: logger, handlers: make(map[string]handler), busy: make(map[string]int)}
}

// Handle has h answer what nodes of the cluster ask by op. h may be called by many goroutines.
func Handle[Q, R any](s *Server, op string, h func(ctx context.Context, from Caller, q Q) (R, error)) {
	s.handlers[op] = handler{answer: typed(h)}
}

// HandleAny is [Handle], also of nodes that do not know the cluster.
func HandleAny[Q, R any](s *Server, op string, h func(ctx context.Context, from Caller, q Q) (R, error)) {
	s.handlers[op] = handler{answer: typed(h), any: true}
}

// typed reads the question for h.
func typed[Q, R any](h func(ctx context.Context, from Caller, q Q) (R, error)) func(context.Context, Caller,
	[]byte) (any, error) {
	return func(ctx context.Context, from Caller, body []byte) (any, error) {
		q, err := decode[Q](body)
		if err != nil {
			return nil, err
		}
		return h(ctx, from, q)
	}
}

// decode reads the question of a request.
func decode[Q any](body []byte) (q Q, err error) {
	if err = json.Unmarshal(body, &q); err != nil {
		err = fmt.Errorf("malformed request: %w", err)
	}
	return q, err
}

// Run answers until ctx ends.
func (s *Server) Run(ctx context.Context) error { return wire.Accept(ctx, s.listener, s.serve) }

// serve answers the only request of a connection.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	from := Caller{Addr: conn.RemoteAddr().String()}
	if peer, ok := conn.(interface{ PeerName() string }); ok {
		from.ID = peer.PeerName()
	}
	var q request
	r := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(messageWithin))
	if err := read(r, &q); err != nil {
		s.logger.Warn("refused a request about members", "from", from.ID, "remote", from.Addr, "error", line(err.Error()))
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	go func() { // ends with the connection, which serve's caller closes
		defer gone()
		_, _ = r.ReadByte()
	}()
	h, refused := s.find(conn, q)
	if refused == nil && !s.begin(from.ID, h.stream != nil) {
		refused = &reply{Error: "too many requests about members at a time"}
	}
	if refused != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(messageWithin))
		_ = write(conn, refused)
		return
	}
	defer s.end(from.ID, h.stream != nil)
	said, stream := h.handle(ctx, from, q.Body)
	_ = conn.SetWriteDeadline(time.Now().Add(messageWithin))
	err := write(conn, said)
	if errors.Is(err, errTooLong) {
		_ = write(conn, reply{Error: "the answer is too long"})
	}
	if stream == nil {
		return
	}
	if err != nil || said.Error != "" {
		_ = stream.Close()
	} else if err := send(ctx, conn, stream); err != nil && ctx.Err() == nil {
		s.logger.Warn("cannot send an answer to its end", "request", line(q.Op), "to", from.ID, "error", line(err.Error()))
	}
}

// find finds who handles a request, or why nobody does.
func (s *Server) find(conn net.Conn, q request) (h handler, refused *reply) {
	h, known := s.handlers[q.Op]
	foreign, ok := conn.(interface{ KnowsCluster() bool })
	switch {
	case !known:
		return h, &reply{Error: fmt.Sprintf("this node does not know the request %q: run the same release everywhere",
			line(q.Op)), Unknown: true}
	case !h.any && ok && !foreign.KnowsCluster():
		return h, &reply{Error: "only nodes of the cluster may ask that"}
	}
	return h, nil
}

// handle has a request handled.
func (h handler) handle(ctx context.Context, from Caller, q []byte) (reply, io.ReadCloser) {
	var answer any
	var stream io.ReadCloser
	var err error
	if h.stream != nil {
		answer, stream, err = h.stream(ctx, from, q)
	} else {
		answer, err = h.answer(ctx, from, q)
	}
	if err != nil {
		return reply{Error: line(err.Error())}, nil
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return reply{Error: line(err.Error())}, stream
	}
	return reply{Body: body}, stream
}

// begin counts a request, if there is room for it.
func (s *Server) begin(id string, stream bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxRequests || s.busy[id] >= maxOfNode || stream && s.streams >= maxStreams {
		return false
	}
	s.all++
	s.busy[id]++
	if stream {
		s.streams++
	}
	return true
}

func (s *Server) end(id string, stream bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if stream {
		s.streams--
	}
	if s.busy[id]--; s.busy[id] == 0 {
		delete(s.busy, id)
	}
}
