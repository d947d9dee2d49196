package replica

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

// Pauses between attempts to reach the leader.
const (
	redialFirst = 5 * time.Millisecond
	redialMost  = 100 * time.Millisecond
	dialWithin  = 2 * time.Second
)

// link carries this node's batches to the leader, over one connection. When it
// breaks, everything that has no reply yet is sent again over the next one: the
// state machine knows what it had applied.
type link struct {
	r    *Replica
	turn chan struct{} // target changed

	mu      sync.Mutex
	target  string // whom to follow; empty: nobody
	cancel  context.CancelFunc
	session *session // while batches can be sent
}

// session is one connection to the leader.
type session struct {
	leader string
	conn   net.Conn
	wake   chan struct{}

	mu    sync.Mutex
	asks  map[uint64]chan int // WAITs
	asked uint64
	out   []byte // their messages

	// What follows is the listener's alone.
	parts     map[partOf]*strings.Builder // large replies that are not complete
	partBytes int                         // of all of them
}

// partOf names the reply that a part belongs to.
type partOf struct {
	kind   byte
	number uint64
}

func newLink(r *Replica) *link { return &link{r: r, turn: make(chan struct{}, 1)} }

// follow sets whom to follow. When it returns, no batch goes to anybody else any more.
func (l *link) follow(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if target == l.target {
		return
	}
	l.target = target
	if l.cancel != nil {
		l.cancel()
	}
	l.detach()
	notify(l.turn)
}

// detach ends the session's being where batches go.
func (l *link) detach() {
	if l.session != nil {
		l.r.writes.detach(l.session)
		l.r.reads.detach(l.session)
		l.session = nil
	}
}

func (l *link) run(ctx context.Context) error {
	pause := redialFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		attempt, cancel := context.WithCancel(ctx)
		l.mu.Lock()
		target := l.target
		l.cancel = cancel
		l.mu.Unlock()
		if target == "" {
			cancel()
			select {
			case <-l.turn:
			case <-ctx.Done():
			}
			pause = redialFirst
			continue
		}
		up, err := l.connect(attempt, target)
		cancel()
		if up {
			pause = redialFirst
			l.r.event(LinkDown{Leader: target, Err: err})
		}
		timer.Reset(pause)
		pause = min(2*pause, redialMost)
		select {
		case <-timer.C:
		case <-l.turn:
			pause = redialFirst
		case <-ctx.Done():
		}
	}
	return nil
}

// connect opens a session to target and runs it until it breaks or ctx ends. It
// reports whether there ever was one.
func (l *link) connect(ctx context.Context, target string) (up bool, err error) {
	dialing, cancel := context.WithTimeout(ctx, dialWithin)
	conn, err := l.r.config.Peers.Forward.DialContext(dialing, l.r.config.InitialCluster[target])
	cancel()
	if errors.Is(err, syscall.ECONNREFUSED) {
		l.r.node.Refused(target)
	}
	if err != nil {
		return false, err
	}
	l.r.node.Reached(target)
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	br := bufio.NewReaderSize(patient{conn}, 64<<10)
	if err := l.greet(conn, br, target); err != nil {
		return false, err
	}
	s := &session{leader: target, conn: conn, wake: make(chan struct{}, 1), asks: make(map[uint64]chan int), parts: make(map[partOf]*strings.Builder)}
	if !l.attach(s) {
		return false, nil
	}
	l.r.event(LinkUp{Leader: target})
	heard := make(chan error, 1)
	go func() {
		heard <- l.listen(s, br)
		cancel()
	}()
	err = l.send(ctx, s)
	l.mu.Lock()
	if l.session == s {
		l.detach()
	}
	l.mu.Unlock()
	_ = conn.Close()
	if e := <-heard; err == nil {
		err = e
	}
	s.hangUp()
	return true, err
}

// attach has batches sent over s, unless the leader has changed meanwhile.
func (l *link) attach(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.target != s.leader {
		return false
	}
	l.session = s
	l.r.writes.attach(s, s.wake)
	l.r.reads.attach(s, s.wake)
	return true
}

func (l *link) greet(conn net.Conn, br *bufio.Reader, target string) error {
	_ = conn.SetWriteDeadline(time.Now().Add(greetWithin))
	hello := greeting{version: linkVersion, name: l.r.config.Name, epoch: l.r.origin.Epoch, clientAddr: l.r.config.ClientAddr, features: featureParts}
	if _, err := conn.Write(wire.Seal(hello.append(make([]byte, wire.Head), kindHello))); err != nil {
		return err
	}
	welcome, err := readGreeting(br, kindWelcome)
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	switch {
	case welcome.verdict == verdictNotLeading:
		return errNotLeading
	case welcome.verdict != verdictOK:
		err := fmt.Errorf("node %s refuses the link: verdict %d, it speaks version %d, this node %d", target, welcome.verdict, welcome.version, linkVersion)
		l.r.config.Logger.Warn("link to leader", "error", err)
		return err
	case welcome.name != target:
		return fmt.Errorf("node at %s is %q, not %q", l.r.config.InitialCluster[target], welcome.name, target)
	}
	l.r.addresses.set(target, welcome.clientAddr)
	return nil
}

var errNotLeading = errors.New("that node does not lead")

// patient gives up a connection on which nothing is heard.
type patient struct{ conn net.Conn }

func (p patient) Read(b []byte) (int, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(deafAfter))
	return p.conn.Read(b)
}

// send writes what waits into frames, everything that has come meanwhile into one.
func (l *link) send(ctx context.Context, s *session) error {
	frame := make([]byte, wire.Head, 64<<10)
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
		for {
			// Connections that are ready to run put their batches in first: a frame
			// costs both nodes more than a batch does.
			runtime.Gosched()
			if frame = l.gather(s, frame[:wire.Head]); len(frame) == wire.Head {
				break
			}
			if _, err := s.conn.Write(wire.Seal(frame)); err != nil {
				return err
			}
			if cap(frame) > 4*wire.Gather {
				frame = make([]byte, wire.Head, 64<<10)
			}
		}
	}
}

func (l *link) gather(s *session, frame []byte) []byte {
	fits := func(u *Batch) bool { return len(frame) == wire.Head || len(frame)+len(u.Body) <= wire.Gather }
	l.r.writes.take(s, ^uint64(0), func(low, seq uint64, u *Batch) bool {
		if !fits(u) {
			return false
		}
		frame = binary.AppendUvarint(append(frame, kindWrite), seq)
		frame = binary.AppendUvarint(frame, low)
		frame = wire.AppendBytes(frame, u.Body)
		return true
	})
	l.r.reads.take(s, ^uint64(0), func(_, number uint64, u *Batch) bool {
		if !fits(u) {
			return false
		}
		frame = binary.AppendUvarint(append(frame, kindRead), number)
		frame = binary.AppendUvarint(frame, uint64(u.Count))
		frame = wire.AppendBytes(frame, u.Body)
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	frame = append(frame, s.out...)
	s.out = s.out[:0]
	return frame
}

// listen takes the leader's frames until the connection breaks.
func (l *link) listen(s *session, br *bufio.Reader) error {
	limit := 4*l.r.config.Limits.ReplyBytes + wire.Step
	var buf []byte
	var wrote, read []completion
	for {
		var err error
		if buf, err = wire.Read(br, buf, limit); err != nil {
			if errors.Is(err, io.EOF) {
				err = errHungUp
			}
			return err
		}
		wrote, read = wrote[:0], read[:0]
		f := wire.Fields[string]{Rest: string(buf)}
		for f.More() {
			switch kind := f.Kind(); kind {
			case kindWrote:
				wrote = append(wrote, completion{number: f.Number(), replies: values(&f)})
			case kindAnswer:
				read = append(read, completion{number: f.Number(), replies: values(&f)})
			case kindRefuse:
				number, outcome := f.Number(), protocol.Outcome(f.Number())
				read = append(read, completion{number: number, err: &protocol.Error{Prefix: f.Bytes(), Text: f.Bytes(), Outcome: outcome}})
			case kindWaited:
				number, n := f.Number(), int(f.Number())
				s.answer(number, n)
			case kindBeacon:
				l.beacon(&f)
			case kindPart:
				of, whole, err := l.part(s, &f)
				if err != nil {
					return err
				}
				switch {
				case whole == nil:
				case of.kind == kindWrote:
					wrote = append(wrote, completion{number: of.number, replies: whole})
				default:
					read = append(read, completion{number: of.number, replies: whole})
				}
			default:
				return fmt.Errorf("%w: kind %q", wire.ErrCorrupt, kind)
			}
		}
		if f.Err != nil {
			return f.Err
		}
		l.r.writes.complete(wrote)
		l.r.reads.complete(read)
		clear(wrote)
		clear(read)
		if cap(buf) > 4*wire.Gather {
			buf = nil
		}
	}
}

// part takes a part, which ends the frame, and returns the whole reply with the last.
func (l *link) part(s *session, f *wire.Fields[string]) (of partOf, whole []protocol.Value, err error) {
	if len(f.Rest) < 2 {
		return of, nil, fmt.Errorf("%w: part", wire.ErrCorrupt)
	}
	of.kind = f.Kind()
	state := f.Kind()
	of.number = f.Number()
	table := l.r.reads
	if of.kind == kindWrote {
		table = l.r.writes
	}
	got := s.parts[of]
	text := f.Rest
	f.Rest = ""
	if state == partDropped || !table.has(of.number) {
		// Whoever waited for it has been answered: of its time limit, or from this node's own log.
		s.forget(of)
		return of, nil, f.Err
	}
	if got == nil {
		got = &strings.Builder{}
		s.parts[of] = got
	}
	if s.partBytes += len(text); s.partBytes > 2*l.r.config.Limits.ReplyBytes {
		return of, nil, fmt.Errorf("%w: %d bytes of replies that are not complete", wire.ErrCorrupt, s.partBytes)
	}
	_, _ = got.WriteString(text)
	if state == partLast {
		s.forget(of)
		all := wire.Fields[string]{Rest: got.String()}
		whole = values(&all)
		if all.Err == nil && len(all.Rest) > 0 {
			all.Err = fmt.Errorf("%w: reply in parts", wire.ErrCorrupt)
		}
		f.Err = all.Err
	}
	return of, whole, f.Err
}

// forget gives up what there is of a reply.
func (s *session) forget(of partOf) {
	if got := s.parts[of]; got != nil {
		s.partBytes -= got.Len()
		delete(s.parts, of)
	}
}

var errHungUp = errors.New("the leader hung up")

func (l *link) beacon(f *wire.Fields[string]) {
	_, commit := f.Number(), f.Number() // the term is for whoever reads a dump
	for range f.Number() {
		if f.Err != nil {
			return
		}
		name, addr := f.Bytes(), f.Bytes()
		if f.Err == nil {
			l.r.addresses.set(name, addr)
		}
	}
	l.r.health.heard(commit, l.r.state.index.load())
}

// ask sends a WAIT to the leader.
func (l *link) ask(nodes int, timeout time.Duration) <-chan int {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session
	if s == nil {
		return nil
	}
	answer := make(chan int, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.asks[s.asked] = answer
	s.out = binary.AppendUvarint(append(s.out, kindWait), s.asked)
	s.out = binary.AppendUvarint(s.out, uint64(nodes))
	s.out = binary.AppendUvarint(s.out, uint64(timeout.Milliseconds()))
	notify(s.wake)
	return answer
}

func (s *session) answer(number uint64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.asks[number]; c != nil {
		delete(s.asks, number)
		c <- n
	}
}

// hangUp ends the WAITs that got no answer.
func (s *session) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, c := range s.asks {
		delete(s.asks, number)
		close(c)
	}
}
