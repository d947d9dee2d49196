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

// profile is what other goroutines may know of a connection: CLIENT LIST, log lines and other nodes show it.
type profile struct {
	id              int64
	addr, localAddr net.Addr

	mu    sync.Mutex
	shown shown // guarded by mu
}

// shown is the part of a connection that CLIENT LIST shows to other connections.
type shown struct {
	user                        *acl.User
	name, libName, libVersion   string
	noEvict, noTouch, blocked   bool
	monitoring                  bool
	ticket                      uint64 // under which the client waits, 0: none
	command                     string // the last command
	active                      time.Time
	db, resp                    int
	queued, queuedBytes         int // since MULTI; queued is -1 outside
	watched                     int
	input, inputFree            int    // bytes not parsed, room for more
	argBytes                    int    // memory for the arguments of an incomplete command
	output, replies, replyBytes int    // bytes to be written, replies behind these bytes, bytes of these replies
	subs                        [3]int // subscriptions by pubsub.Kind
	track                       trackMode
	held                        int // bytes beyond the cost of an idle connection
}

// ids are the numbers of this node's connections. They begin at another place in each incarnation of each node, so that
// CLIENT KILL and UNBLOCK reach no other client of the cluster, and rise by one. A float64 has each of them exactly.
type ids struct {
	before int64 // the first
	last   atomic.Int64
}

func (i *ids) begin(o protocol.Incarnation) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(o.Node), o.Epoch))
	i.before = int64(binary.BigEndian.Uint64(sum[:]) >> 12)
	i.last.Store(i.before)
}

func (i *ids) next() int64 { return i.last.Add(1) }

// has reports whether a connection of this node has or had the number.
func (i *ids) has(id int64) bool { return i.before < id && id <= i.last.Load() }

// kind is the kind of the client, as CLIENT KILL and CLIENT LIST know kinds.
func (s *shown) kind() string {
	if s.subs != [3]int{} {
		return pubsubClient
	}
	return normalClient
}

// setSwitch sets a flag that CLIENT LIST shows. NO-TOUCH has no other effect, as Holdfast keeps no
// time of a key's last access.
func (p *profile) setSwitch(flag *bool, word []byte) protocol.Value {
	on := strings.EqualFold(string(word), "on")
	if !on && !strings.EqualFold(string(word), "off") {
		return protocol.Err(errSyntax)
	}
	p.update(func(*shown) { *flag = on })
	return protocol.OK
}

// who are the attributes of a log line that say which client it is about.
func (p *profile) who() []any {
	return []any{"client", p.addr, "id", p.id, "name", p.view().name}
}

// breaker is the address and the name of the client, as a log entry has them.
func (p *profile) breaker() (address, name string) {
	plain := strings.NewReplacer(" ", "_", "\n", "_")
	return plain.Replace(cmp.Or(p.addr.String(), "?")), plain.Replace(p.view().name)
}

// detail may be called by any goroutine.
func (p *profile) detail(now time.Time) ClientDetail {
	s := p.view()
	name := s.name
	if len(name) > mostOfName {
		name = strings.ToValidUTF8(name[:mostOfName], "")
	}
	return ClientDetail{
		Addr: p.addr.String(), Name: name,
		IdleMillis: max(0, now.Sub(s.active).Milliseconds()),
	}
}

// redirect is the client that gets the messages of tracking, as in CLIENT GETREDIR.
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

// update changes what is shown.
func (p *profile) update(change func(s *shown)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.shown)
}

// view is what is shown now.
func (p *profile) view() shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown
}

// The kinds of clients that there are.
const (
	normalClient = "normal"
	pubsubClient = "pubsub"
)

// trackMode is what CLIENT TRACKING sets.
type trackMode struct {
	on, bcast, optin, optout, noloop bool
	// broken: the client that is to get the messages has gone.
	broken bool
	// redirect is the client that gets the messages; 0: this one.
	redirect int64
}
