package frontend

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/acl"
)

// profile is what other goroutines may read of a connection, for CLIENT LIST, for logs and for other nodes.
type profile struct {
	id              int64
	addr, localAddr net.Addr

	mu    sync.Mutex
	shown shown // guarded by mu
}

// shown is the state of a connection that CLIENT LIST shows.
type shown struct {
	user                        *acl.User
	name, libName, libVersion   string
	noEvict, noTouch, blocked   bool
	monitoring                  bool
	ticket                      uint64 // of the client's wait, or 0
	command                     string // the last command
	active                      time.Time
	db, resp                    int
	queued, queuedBytes         int // since MULTI; queued is -1 outside of MULTI
	watched                     int
	input, inputFree            int    // bytes that are not parsed, and free space for more
	argBytes                    int    // memory for the arguments of an incomplete command
	output, replies, replyBytes int    // bytes to write, replies that are not encoded, and the bytes of these
	subs                        [3]int // subscriptions by pubsub.Kind
	track                       trackMode
	held                        int // bytes beyond those of an idle connection
}

// ids issues the numbers of this node's connections. Each incarnation of a node begins at a random number, so that
// CLIENT KILL and UNBLOCK reach no other client of the cluster. Each number is exact in a float64.
type ids struct {
	before int64 // the number before the first
	last   atomic.Int64
}

func (i *ids) begin(o protocol.Incarnation) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(o.Node), o.Epoch))
	i.before = int64(binary.BigEndian.Uint64(sum[:]) >> 12)
	i.last.Store(i.before)
}

func (i *ids) next() int64 { return i.last.Add(1) }

// has reports whether a connection of this node has had the number.
func (i *ids) has(id int64) bool { return i.before < id && id <= i.last.Load() }

// kind returns the kind of the client in CLIENT KILL and CLIENT LIST.
func (s *shown) kind() string {
	if s.subs != [3]int{} {
		return pubsubClient
	}
	return normalClient
}

// setSwitch sets a flag of CLIENT LIST. NO-TOUCH has no other effect, since Holdfast records no access times.
func (p *profile) setSwitch(flag *bool, word []byte) protocol.Value {
	on := strings.EqualFold(string(word), "on")
	if !on && !strings.EqualFold(string(word), "off") {
		return protocol.Err(errSyntax)
	}
	p.update(func(*shown) { *flag = on })
	return protocol.OK
}

// who returns the log attributes that identify the client.
func (p *profile) who() []any {
	return []any{"client", p.addr, "id", p.id, "name", p.view().name}
}

// breaker returns the address and the name of the client for a log entry.
func (p *profile) breaker() (address, name string) {
	plain := strings.NewReplacer(" ", "_", "\n", "_")
	return plain.Replace(cmp.Or(p.addr.String(), "?")), plain.Replace(p.view().name)
}

// detail describes the connection. Any goroutine may call it.
func (p *profile) detail(now time.Time) ClientDetail {
	s := p.view()
	name := s.name
	if len(name) > maxNameBytes {
		name = strings.ToValidUTF8(name[:maxNameBytes], "")
	}
	return ClientDetail{
		Addr: p.addr.String(), Name: name,
		IdleMillis: max(0, now.Sub(s.active).Milliseconds()),
	}
}

// redirect returns the client that gets the messages of tracking, as in CLIENT GETREDIR.
func (s *shown) redirect() int64 {
	if !s.track.on {
		return -1
	}
	return s.track.redirect
}

func (s *shown) flags() string {
	var flags strings.Builder
	for _, f := range []struct {
		on   bool
		mark byte
	}{
		{s.monitoring, 'O'},
		{s.kind() == pubsubClient, 'P'},
		{s.queued >= 0, 'x'},
		{s.blocked, 'b'},
		{s.track.on, 't'},
		{s.track.broken, 'R'},
		{s.track.bcast, 'B'},
		{s.noEvict, 'e'},
		{s.noTouch, 'T'},
	} {
		if f.on {
			flags.WriteByte(f.mark)
		}
	}
	if flags.Len() == 0 {
		return "N"
	}
	return flags.String()
}

// update changes the shown state.
func (p *profile) update(change func(s *shown)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.shown)
}

// view returns the shown state.
func (p *profile) view() shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown
}

// The kinds of clients.
const (
	normalClient = "normal"
	pubsubClient = "pubsub"
)

// trackMode is the setting of CLIENT TRACKING.
type trackMode struct {
	on, bcast, optin, optout, noloop bool
	// broken is set if the client that gets the messages has disconnected.
	broken bool
	// redirect is the client that gets the messages, or 0 for this one.
	redirect int64
}
