package frontend

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server/acl"
	"github.com/holdfast/holdfast/server/frontend/discovery"
	"github.com/holdfast/holdfast/server/reconfig"
	"github.com/holdfast/holdfast/server/replica"
)

// TestTranscripts plays testdata/*.txt. Each transcript runs in virtual time, with a state machine of its own. A line
// is one of
//
//	# comment
//	server password=… debug …      starts a new server with options; without this line, one without options. With the
//	                               option sentinel, clients connect to the port for Sentinel's clients
//	users FILE                     loads another file of users (after the option acl=FILE); an error is added below
//	quotas FILE                    loads another file of quotas (after the option quota=FILE); an error is added below
//	a> SET k v                     client a sends a command; the replies are added below
//	a>> SET k v                    the same, but the command is sent together with the next line of a
//	a! "*1\r\n"                    client a sends bytes
//	advance 5s                     time advances
//	leader no                      this node follows, or knows no leader (none), or leads (yes)
//	fail UNCERTAIN no quorum       the cluster replies to every batch with this error; without text, no longer
//	leave a                        client a disconnects
//	closed                         (a reply) the server has closed the connection
func TestTranscripts(t *testing.T) {
	protocoltest.Transcripts(t, "testdata/*.txt", func(t *testing.T, script []byte) (got []byte) {
		synctest.Test(t, func(t *testing.T) { got = play(t, script) })
		return got
	})
}

// player is the state of a transcript.
type player struct {
	t       *testing.T
	server  *testServer
	clients map[string]*testClient
	// unsent has the bytes that are sent with the client's next line.
	unsent map[string][]byte
	// sentinel is set if clients connect to the port for Sentinel's clients.
	sentinel bool
	users    *fileUsers // of the server
	out      bytes.Buffer
}

// play runs a transcript, and returns it with the server's replies.
func play(t *testing.T, script []byte) []byte {
	p := &player{t: t, clients: map[string]*testClient{}, unsent: map[string][]byte{}}
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "    ") {
			continue
		}
		p.out.WriteString(line + "\n")
		p.line(line)
	}
	p.server.stop()
	return p.out.Bytes()
}

func (p *player) line(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	if verb == "" || verb[0] == '#' {
		return
	}
	if verb == "server" || p.server == nil {
		p.serve(verb, rest)
		if verb == "server" {
			return
		}
	}
	switch {
	case verb == "advance":
		d, err := time.ParseDuration(rest)
		require.NoError(p.t, err)
		time.Sleep(d)
		p.server.cluster.tick()
	case verb == "leave":
		p.clients[rest].nc.Close()
		delete(p.clients, rest)
	case verb == "users", verb == "quotas":
		if p.users.file = "testdata/" + rest; verb == "quotas" {
			p.users.file, p.users.quotas = "testdata/users.acl", "testdata/"+rest
		}
		if err := p.users.Load(""); err != nil {
			p.out.WriteString("    " + strings.ReplaceAll(err.Error(), "\n", "\n    ") + "\n")
		}
	case verb == "leader":
		p.lead(rest)
	case verb == "fail":
		p.server.cluster.set(func() { p.server.cluster.fail = errorRow(rest) })
	case strings.HasSuffix(verb, "!"):
		raw, err := strconv.Unquote(rest)
		require.NoError(p.t, err, line)
		p.send(strings.TrimSuffix(verb, "!"), []byte(raw))
	case strings.HasSuffix(verb, ">>"):
		name := strings.TrimSuffix(verb, ">>")
		p.unsent[name] = append(p.unsent[name], command(protocoltest.Words(p.t, rest)...)...)
	case strings.HasSuffix(verb, ">"):
		p.send(strings.TrimSuffix(verb, ">"), command(protocoltest.Words(p.t, rest)...))
	default:
		require.Fail(p.t, "what does this line mean?", line)
	}
	p.collect()
}

func (p *player) serve(verb, options string) {
	if p.server != nil {
		p.server.stop()
	}
	cfg := Config{}
	p.sentinel = false
	if verb == "server" {
		for option := range strings.FieldsSeq(options) {
			name, value, _ := strings.Cut(option, "=")
			n, _ := strconv.Atoi(value)
			switch name {
			case "password":
				cfg.Users = asks(value)
			case "acl":
				p.users = &fileUsers{file: "testdata/" + value}
				require.NoError(p.t, p.users.Load(""))
				cfg.Users = p.users
			case "quota":
				p.users.quotas = "testdata/" + value
				require.NoError(p.t, p.users.Load(""))
			case "debug":
				cfg.Options.Debug = true
			case "faults":
				cfg.Options.Faults = func(words []string) (protocol.Value, bool) {
					return protocol.Strings(words...), strings.EqualFold(words[0], "disk")
				}
			case "sentinel":
				p.sentinel = true
			case "cluster":
				cfg.Options.ClusterMode = true
			case "unwell":
				cfg.Node.Troubles = func() []string { return []string{"n1 is not ready: " + value} }
				cfg.Node.Warnings = func() []string { return []string{"n2: the disk is slow"} }
			case "everynode":
				cfg.Options.EveryNodeMaster = true
			case "clients":
				cfg.MaxClients = n
			case "key":
				cfg.MaxKeyBytes = n
			case "value":
				cfg.MaxValueBytes = n
			case "query":
				cfg.MaxQueryBytes = n
			case "grace":
				cfg.LockQueueGrace = time.Duration(n) * time.Millisecond
			case "idle":
				cfg.IdleTimeout = time.Duration(n) * time.Second
			default:
				require.Fail(p.t, "unknown option", option)
			}
		}
	}
	clear(p.clients)
	cfg.Backups = &twoParts{}
	cfg.Administration = echoAdministration{}
	cfg.Sentinel = discovery.Sentinel{Name: "mymaster", DownAfter: time.Second, FailoverTimeout: 2 * time.Second}
	p.server = start(p.t, cfg, newCluster())
	if p.sentinel {
		p.server.serveSentinel()
	}
}

// fileUsers is a Users that loads its users and their quotas from files.
type fileUsers struct {
	file    string
	quotas  string
	held    atomic.Pointer[acl.Users]
	changed func()
}

func (f *fileUsers) Current() *acl.Users  { return f.held.Load() }
func (f *fileUsers) Held() *acl.Users     { return f.held.Load() }
func (f *fileUsers) Watch(changed func()) { f.changed = changed }

func (f *fileUsers) Load(string) error {
	text, err := os.ReadFile(f.file)
	if err != nil {
		return err
	}
	users, err := acl.Parse(f.file, string(text))
	if err != nil {
		return err
	}
	if f.quotas != "" {
		if text, err = os.ReadFile(f.quotas); err != nil {
			return err
		}
		if err := users.Limit(f.quotas, string(text)); err != nil {
			return err
		}
	}
	f.held.Store(users)
	if f.changed != nil {
		f.changed()
	}
	return nil
}

// echoAdministration returns the request as the only step of its reply. The name of the member selects the outcome.
type echoAdministration struct{}

func (echoAdministration) Ask(ctx context.Context, q reconfig.Request) (reconfig.Reply, error) {
	said := reconfig.Reply{Steps: []string{fmt.Sprintf("%s %q by %q force %v, asked of %s by %s at %s named %q", q.Op,
		q.Member, q.By, q.Force, q.Asker.Node, q.Asker.User, q.Asker.Addr, q.Asker.Name)}}
	switch q.Member {
	case "refused":
		return reconfig.Reply{}, &reconfig.Refusal{Text: "no member is called \"refused\""}
	case "half":
		return said, &reconfig.Refusal{Text: "no more of that"}
	case "leaderless":
		return reconfig.Reply{}, reconfig.ErrNoLeader
	case "slow":
		<-ctx.Done()
		return said, reconfig.ErrUncertain
	}
	return said, nil
}

func (p *player) lead(word string) {
	cl := p.server.cluster
	cl.set(func() {
		cl.status.Leading = word == "yes"
		if !cl.status.Leading {
			cl.status.Followers = nil
		}
		switch word {
		case "yes":
			cl.status.Leader, cl.status.Followers = cl.status.Members[0], twoFollowers()
		case "no":
			cl.status.Leader = cl.status.Members[1]
		default:
			cl.status.Leader = replica.Member{}
		}
	})
	cl.elect(cl.status.Leader)
}

func errorRow(line string) error {
	prefix, text, _ := strings.Cut(line, " ")
	if prefix == "" {
		return nil
	}
	return &protocol.Error{Prefix: prefix, Text: text}
}

func (p *player) send(name string, b []byte) {
	c := p.clients[name]
	if c == nil {
		c = p.server.dial()
		p.clients[name] = c
	}
	b = append(p.unsent[name], b...)
	delete(p.unsent, name)
	c.send(b)
}

// collect records what the clients have received once the server is idle.
func (p *player) collect() {
	// The server waits for the rest of an incomplete command for readMoreTime.
	time.Sleep(2 * readMoreTime)
	synctest.Wait()
	// A pooled buffer may be larger than a new one.
	pooled := regexp.MustCompile(`(qbuf-free|argv-mem|tot-mem)=\d+`)
	// A line of MONITOR begins with the time of the command.
	instant := regexp.MustCompile(`\+\d+\.\d{6} \[`)
	for _, name := range []string{"a", "b", "c", "d", "m"} {
		c := p.clients[name]
		if c == nil {
			continue
		}
		got, closed := c.take()
		lines := show(got)
		if closed {
			lines = append(lines, "closed")
		}
		for _, line := range lines {
			line = instant.ReplaceAllString(pooled.ReplaceAllString(line, "$1=*"), "+* [")
			if len(p.clients) > 1 {
				line = name + ": " + line
			}
			p.out.WriteString("    " + line + "\n")
		}
		if closed {
			delete(p.clients, name)
		}
	}
}

// show returns replies in a readable form, one a line, which differs for each type of RESP:
//
//	+OK  -ERR no  :1  "bulk"  nil ($-1)  nil* (*-1)  null (_)  [1 2]  %{k v}  ~{a b}  >[a]  #t  ,3.14  (123  ="txt:…"
func show(replies string) (lines []string) {
	for rest := replies; rest != ""; {
		var line string
		line, rest = showOne(rest)
		lines = append(lines, line)
	}
	return lines
}

func showOne(s string) (shown, rest string) {
	head, rest, ok := strings.Cut(s, "\r\n")
	if !ok || head == "" {
		return fmt.Sprintf("broken %q", s), ""
	}
	n, _ := strconv.Atoi(head[1:])
	switch head[0] {
	case '+', '-', ':', '#', ',', '(':
		return head, rest
	case '_':
		return "null", rest
	case '$', '=':
		if n < 0 {
			return "nil", rest
		}
		if len(rest) < n+2 {
			return fmt.Sprintf("broken %q", s), ""
		}
		return strings.TrimPrefix(head[:1], "$") + strconv.Quote(rest[:n]), rest[n+2:]
	case '*', '~', '>':
		return showAll(head[0], n, rest)
	case '%':
		return showAll(head[0], 2*n, rest)
	}
	return fmt.Sprintf("broken %q", s), ""
}

func showAll(mark byte, n int, rest string) (string, string) {
	if n < 0 {
		return "nil*", rest
	}
	elems := make([]string, n)
	for i := range elems {
		if rest == "" {
			elems[i] = "missing"
			continue
		}
		elems[i], rest = showOne(rest)
	}
	all := strings.Join(elems, " ")
	switch mark {
	case '*':
		return "[" + all + "]", rest
	case '>':
		return ">[" + all + "]", rest
	}
	return string(mark) + "{" + all + "}", rest
}
