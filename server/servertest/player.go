package servertest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
	"github.com/holdfast/holdfast/server"
)

// Play plays a transcript and returns the transcript with the answers that were given. Play must be
// called in a separate synctest bubble.
func Play(t *testing.T, script []byte) []byte {
	p := &player{t: t, clients: make(map[string]*Client), awaited: make(map[string]*awaited)}
	for line := range strings.Lines(string(script)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, indent) {
			continue // what was answered when the transcript was written
		}
		p.out.WriteString(line + "\n")
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		for _, answer := range p.line(line) {
			p.out.WriteString(indent + answer + "\n")
		}
	}
	for name := range p.awaited {
		require.Fail(t, "the transcript ends before a reply was awaited", "client %s", name)
	}
	if p.cluster != nil {
		p.cluster.Stop()
	}
	return p.out.Bytes()
}

const indent = "    "

// player is where a transcript is.
type player struct {
	t       *testing.T
	cluster *Cluster
	clients map[string]*Client
	awaited map[string]*awaited
	entries uint64 // of the log at the last look
	usage   string // of the word that is being run
	out     bytes.Buffer
}

// awaited is a command whose reply is asked for later.
type awaited struct {
	done chan struct{} // closed when lines and took are set
	sent time.Time
	took time.Duration
	show []string
}

// word is what a line does that begins with the word, given the words behind. The function returns
// the lines to print.
type word struct {
	usage string
	run   func(p *player, args []string) []string
}

// words are the words that act on the cluster or the clients: doc.go explains them.
var words = map[string]word{
	"cluster":    {"cluster 3 [option=value …]", (*player).startCluster},
	"advance":    {"advance 5s", (*player).advance},
	"leader":     {"leader [n1]", (*player).leader},
	"lead":       {"lead n1", (*player).lead},
	"transfer":   {"transfer", (*player).transfer},
	"partition":  {"partition n1 n2", (*player).partition},
	"one-way":    {"one-way n1 n2", (*player).oneWay},
	"heal":       {"heal", (*player).heal},
	"crash":      {"crash n1 n2", (*player).crash},
	"restart":    {"restart n1 n2", (*player).restart},
	"stop":       {"stop n1", (*player).stop},
	"snapshot":   {"snapshot n1", (*player).snapshot},
	"installed":  {"installed n1", (*player).installed},
	"wall-clock": {"wall-clock n1 +1h", (*player).wallClock},
	"disk":       {"disk n1 hang|error|ok", (*player).disk},
	"deaths":     {"deaths n1", (*player).deaths},
	"state":      {"state [n1 n2]", (*player).state},
	"log":        {"log", (*player).log},
	"async":      {"async a@n1 INCR k", (*player).async},
	"await":      {"await a [2s..3s]", (*player).await},
	"hang-up":    {"hang-up a", (*player).hangUp},
	"pipeline":   {"pipeline a@n1 { SET k v ; GET k }", (*player).pipeline},
	"hear":       {"hear a", (*player).receive},
	"raw":        {"raw a@n1 GET k", (*player).raw},
}

func (p *player) line(line string) []string {
	p.t.Helper()
	all := protocoltest.Words(p.t, line)
	verb, args := all[0], all[1:]
	w, isWord := words[verb]
	switch {
	case isWord && verb != "cluster" && p.cluster == nil:
		require.Fail(p.t, "a transcript begins with a cluster", line)
		return nil
	case isWord:
		// The effects of a word come to rest before the next line, as far as possible without time
		// passing.
		defer synctest.Wait()
		p.usage = w.usage
		return w.run(p, args)
	case strings.Contains(verb, "@"):
		return p.command(verb, args)
	}
	require.Fail(p.t, "what does this line mean?", line)
	return nil
}

// need requires that a word has enough arguments.
func (p *player) need(ok bool) {
	p.t.Helper()
	require.True(p.t, ok, "use: %s", p.usage)
}

// nodes are the named nodes, or all for "all".
func (p *player) nodes(names []string) []*Node {
	if slices.Equal(names, []string{"all"}) {
		return p.cluster.Nodes()
	}
	var nodes []*Node
	for _, name := range names {
		nodes = append(nodes, p.node(name))
	}
	return nodes
}

// node is the node of that name; "leader" is the node that leads at present.
func (p *player) node(name string) *Node {
	if name == "leader" {
		return p.cluster.Leader()
	}
	return p.cluster.Node(name)
}

// startCluster is the word cluster. Whatever the election did, n1 leads in the end, a whole minute
// of virtual time after the start.
func (p *player) startCluster(args []string) []string {
	p.need(len(args) > 0)
	n, err := strconv.Atoi(args[0])
	require.NoError(p.t, err)
	if p.cluster != nil {
		p.cluster.Stop()
		clear(p.clients)
	}
	begun := time.Now()
	p.cluster = New(p.t, Options{Nodes: n, NoRefusalDelay: true, Tune: p.tuning(args[1:])})
	p.cluster.Lead(p.cluster.Node("n1"))
	time.Sleep(time.Until(begun.Add(time.Minute)))
	p.entries = p.cluster.Entries()
	return []string{"n1 leads"}
}

func (p *player) tuning(options []string) func(*server.Config) {
	return func(c *server.Config) {
		for _, option := range options {
			name, value, _ := strings.Cut(option, "=")
			switch name {
			case "mode":
				c.ClusterMode = value == "cluster"
			case "command":
				c.CommandTimeout = p.duration(value)
			case "trailing":
				c.TrailingLogs = uint64(p.integer(value))
			case "max-memory", "max-memory." + c.Name:
				c.MaxMemory = value
			default:
				if strings.HasPrefix(name, "max-memory.") {
					continue // another node's
				}
				require.Fail(p.t, "unknown option", option)
			}
		}
	}
}

func (p *player) duration(s string) time.Duration {
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	require.NoError(p.t, err)
	return d
}

func (p *player) integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(p.t, err)
	return n
}

// client finds the client "a@n1", or "a@n1!3" for a client that speaks RESP3, or "a@sentinel:n1" for a client
// of the port for Sentinel's clients. A client that was at
// another node hangs up there and connects here.
func (p *player) client(verb string) *Client {
	name, at, _ := strings.Cut(verb, "@")
	at, sentinel := strings.CutPrefix(at, "sentinel:")
	at, version, _ := strings.Cut(at, "!")
	resp := protocol.RESP2
	if version != "" {
		resp = int(p.integer(version))
	}
	require.Nil(p.t, p.awaited[name], "client %s still waits for a reply", name)
	n := p.node(at)
	c := p.clients[name]
	if c == nil || c.Node != n || c.RESP != resp || c.Sentinel != sentinel {
		if c != nil {
			c.Close()
		}
		c = p.cluster.Client(n, resp)
		c.Sentinel = sentinel
		p.clients[name] = c
	}
	return c
}

// command sends a command and prints the reply. "~ 10..20" at the end has a number in that range
// printed as the range, for numbers that depend on how long an election takes.
func (p *player) command(verb string, args []string) []string {
	c := p.client(verb)
	if n := len(args); n > 2 && args[n-2] == "~" {
		return p.between(args[n-1], c, args[:n-2])
	}
	return answered(c.Do(args...))
}

func (p *player) between(span string, c *Client, args []string) []string {
	low, high, ok := strings.Cut(span, "..")
	require.True(p.t, ok, "a range is low..high, not %q", span)
	v, err := c.Do(args...)
	number, isNumber := v.Num, v.Kind == protocol.KindInteger
	if v.Kind == protocol.KindBulk {
		number, isNumber = protocol.ParseInt(v.Str)
	}
	if err != nil || !isNumber || number < p.integer(low) || number > p.integer(high) {
		return answered(v, err)
	}
	return []string{"(" + span + ")"}
}

// answered prints a reply, or why there is none.
func answered(v protocol.Value, err error) []string {
	if err != nil {
		return []string{"(" + err.Error() + ")"}
	}
	return show(v)
}

func (p *player) pipeline(args []string) []string {
	p.need(len(args) > 3 && args[1] == "{" && args[len(args)-1] == "}")
	c := p.client(args[0])
	var commands [][]string
	for rest := args[2:]; len(rest) > 0; {
		end := slices.IndexFunc(rest, func(s string) bool { return s == ";" || s == "}" })
		commands = append(commands, rest[:end])
		rest = rest[end+1:]
	}
	replies, err := c.Pipeline(commands...)
	var lines []string
	for _, v := range replies {
		lines = append(lines, show(v)...)
	}
	if err != nil {
		lines = append(lines, answered(protocol.Value{}, err)...)
	}
	return lines
}

// raw prints the bytes of a reply.
func (p *player) raw(args []string) []string {
	p.need(len(args) > 1)
	c := p.client(args[0])
	v, err := c.Do(args[1:]...)
	if err != nil {
		return answered(v, err)
	}
	return []string{strconv.Quote(string(v.AppendTo(nil, c.RESP)))}
}

// receive prints what a client has got beyond the replies.
func (p *player) receive(args []string) (lines []string) {
	p.need(len(args) == 1)
	c := p.clients[args[0]]
	require.NotNil(p.t, c, "no client %s", args[0])
	synctest.Wait()
	values, lost := c.Heard()
	for _, v := range values {
		lines = append(lines, show(v)...)
	}
	switch {
	case lost:
		lines = append(lines, "(connection lost)")
	case len(lines) == 0:
		lines = []string{"(nothing)"}
	}
	return lines
}

// async sends a command and does not wait for the reply.
func (p *player) async(args []string) []string {
	p.need(len(args) > 1)
	c := p.client(args[0])
	name, _, _ := strings.Cut(args[0], "@")
	a := &awaited{done: make(chan struct{}), sent: time.Now()}
	p.awaited[name] = a
	go func() {
		defer close(a.done)
		a.show = answered(c.Do(args[1:]...))
		a.took = time.Since(a.sent)
	}()
	return nil
}

// hangUp ends a client, also one that waits for a reply.
func (p *player) hangUp(args []string) []string {
	p.need(len(args) == 1)
	c := p.clients[args[0]]
	require.NotNil(p.t, c, "no client %s", args[0])
	synctest.Wait()
	c.HangUp()
	if a := p.awaited[args[0]]; a != nil {
		<-a.done
		delete(p.awaited, args[0])
	}
	delete(p.clients, args[0])
	return nil
}

// await waits for the reply to a command sent by async. A span is the time between command and
// reply; "await a 0s" only looks whether the reply is there.
func (p *player) await(args []string) []string {
	p.need(len(args) == 1 || len(args) == 2)
	a := p.awaited[args[0]]
	require.NotNil(p.t, a, "client %s waits for nothing", args[0])
	if len(args) == 2 && args[1] == "0s" {
		select {
		case <-a.done:
		default:
			return []string{"(no reply yet)"}
		}
	}
	<-a.done
	delete(p.awaited, args[0])
	if len(args) == 2 && args[1] != "0s" {
		low, high, _ := strings.Cut(args[1], "..")
		if a.took < p.duration(low) || a.took > p.duration(high) {
			return append(a.show, fmt.Sprintf("after %v", a.took))
		}
	}
	return a.show
}

// Show prints a reply as redis-cli does on a terminal.
func Show(v protocol.Value) string { return strings.Join(show(v), "\n") }

// show returns the lines of a reply.
func show(v protocol.Value) []string {
	switch v.Kind {
	case protocol.KindNull, protocol.KindNullArray:
		return []string{"(nil)"}
	case protocol.KindError:
		return []string{"(error) " + v.Str}
	case protocol.KindInteger:
		return []string{"(integer) " + strconv.FormatInt(v.Num, 10)}
	case protocol.KindBulk:
		return []string{strconv.Quote(v.Str)}
	case protocol.KindBool:
		return []string{fmt.Sprintf("(%t)", v.Num != 0)}
	case protocol.KindDouble:
		return []string{"(double) " + protocol.FormatDouble(v.Float())}
	case protocol.KindArray, protocol.KindPush:
		return showAll(v.Elems, "array", ") ")
	case protocol.KindPairs:
		return showPairs(v.Elems)
	case protocol.KindSet:
		return showAll(v.Elems, "set", "~ ")
	case protocol.KindMap:
		return showMap(v.Elems)
	default:
		return strings.Split(strings.TrimSuffix(v.Str, "\n"), "\n")
	}
}

func showAll(elems []protocol.Value, kind, mark string) []string {
	if len(elems) == 0 {
		return []string{"(empty " + kind + ")"}
	}
	var lines []string
	for i, e := range elems {
		lines = append(lines, behind(number(i, len(elems))+mark, show(e))...)
	}
	return lines
}

func showPairs(elems []protocol.Value) []string {
	pairs := make([]protocol.Value, 0, len(elems)/2)
	for i := 0; i+1 < len(elems); i += 2 {
		pairs = append(pairs, protocol.Array(elems[i], elems[i+1]))
	}
	return showAll(pairs, "array", ") ")
}

func showMap(elems []protocol.Value) []string {
	if len(elems) == 0 {
		return []string{"(empty hash)"}
	}
	var lines []string
	for i := 0; i+1 < len(elems); i += 2 {
		key := strings.Join(show(elems[i]), " ")
		lines = append(lines, behind(number(i/2, len(elems)/2)+"# "+key+" => ", show(elems[i+1]))...)
	}
	return lines
}

// number is i counted from 1, as wide as the greatest of n.
func number(i, n int) string { return fmt.Sprintf("%*d", int(math.Log10(float64(n)))+1, i+1) }

// behind puts head before the first line and blanks before the others.
func behind(head string, lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		if i > 0 {
			head = strings.Repeat(" ", len(head))
		}
		all[i] = head + line
	}
	return all
}
