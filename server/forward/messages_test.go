package forward

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/peer/wire"
)

func TestFrames(t *testing.T) {
	hello := greeting{version: 1, id: "n1", epoch: 1 << 40, about: About{
		ClientAddr: "[::1]:6379", SentinelAddr: "s",
		Release: "0.1.0",
	}}
	var stream []byte
	stream = append(stream, wire.Seal(hello.append(make([]byte, wire.Head), kindHello))...)
	big := bytes.Repeat([]byte("x"), 3*wire.Step)
	stream = append(stream, wire.Seal(append(make([]byte, wire.Head), big...))...)
	r := bufio.NewReader(bytes.NewReader(stream))
	got, err := readGreeting(r, kindHello)
	require.NoError(t, err)
	require.Equal(t, hello, got)
	frame, err := wire.Read(r, nil, len(big))
	require.NoError(t, err)
	require.Equal(t, big, frame)

	_, err = wire.Read(bufio.NewReader(bytes.NewReader(wire.Seal(append(make([]byte, wire.Head), big...)))), nil,
		len(big)-1)
	require.ErrorIs(t, err, wire.ErrCorrupt)
	_, err = readGreeting(bufio.NewReader(bytes.NewReader(stream)), kindWelcome)
	require.ErrorIs(t, err, wire.ErrCorrupt)
}

// TestMembersAreInStatusMessages: a status message has all that the leader knows of each member, and a greeting the
// versions that its node can use.
func TestMembersAreInStatusMessages(t *testing.T) {
	about := About{ClientAddr: "a", SentinelAddr: "s", Release: "0.2.0", NewestVersion: 7, HoldVersion: 6}
	require.Equal(t, uint64(6), about.usable())
	said := Status{Term: 3, Commit: 9, Members: []Member{{ID: "n1", About: about, Silent: true, LogIndex: 7}}}
	p := newPeer(&ReceiverConfig{Status: func() Status { return said }}, nil, greeting{})
	p.putStatus()
	frame, _ := p.out.take(make([]byte, wire.Head))
	f := wire.Fields[string]{Rest: string(frame[wire.Head:])}
	var heard []Status
	follower := connection{config: &ClientConfig{OnStatus: func(b Status) { heard = append(heard, b) }}}
	require.NoError(t, follower.message(&f))
	require.Equal(t, []Status{said}, heard)
	require.False(t, f.More())
}

// TestGreetingOfALaterBuild: a greeting may have further fields at its end, which are ignored. A missing field is an
// error.
func TestGreetingOfALaterBuild(t *testing.T) {
	for _, kind := range []byte{kindHello, kindWelcome} {
		g := greeting{version: linkVersion, id: "n1", about: About{ClientAddr: "a", SentinelAddr: "s", Release: "0.2.0"}}
		said := g.append(nil, kind)
		got, err := parseGreeting(append(said, 1, 200), kind)
		require.NoError(t, err)
		require.Equal(t, g, got)
		for n := range said {
			_, err := parseGreeting(said[:n], kind)
			require.ErrorIs(t, err, wire.ErrCorrupt, "%d bytes", n)
		}
	}
}

// FuzzFields reads arbitrary frames. Each read ends, without a panic.
func FuzzFields(f *testing.F) {
	f.Add(wire.AppendBytes([]byte{kindWrite, 1, 1}, "body"))
	f.Add(appendValues([]byte{kindWrote, 1}, []protocol.Value{protocol.OK, protocol.Array(protocol.Integer(1))}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		in := wire.Fields[string]{Rest: string(frame)}
		for in.More() {
			switch in.Kind() {
			case kindWrite:
				in.Number()
				in.Number()
				in.Bytes()
			case kindWrote:
				in.Number()
				values(&in)
			default:
				in.Number()
			}
		}
		_, _ = wire.Read(bufio.NewReader(bytes.NewReader(frame)), nil, 1<<20)
	})
}

// TestFramesAreFrozen: the encoding of messages does not change, since nodes of other releases use it. A later release
// adds fields at the end of a greeting, and sends new messages only to nodes whose greeting has such a field.
func TestFramesAreFrozen(t *testing.T) {
	about := About{ClientAddr: "a:1", SentinelAddr: "s:2", Release: "0.1.0", NewestVersion: 6, HoldVersion: 5}
	g := greeting{version: linkVersion, verdict: verdictStranger, id: "n1", epoch: 300, about: about}
	want := Status{Term: 3, Commit: 900, Members: []Member{{ID: "n1", About: about, Silent: true, LogIndex: 7}}}
	frames := map[string][]byte{"hello": g.append(nil, kindHello), "welcome": g.append(nil, kindWelcome)}
	p := newPeer(&ReceiverConfig{Status: func() Status { return want }}, nil, greeting{})
	p.putStatus()
	status, _ := p.out.take(make([]byte, wire.Head))
	frames["status"] = status[wire.Head:]
	c := newConnection(&ClientConfig{}, "n2", nil)
	encode := func(name string, ask func()) {
		ask()
		frames[name], c.frame, c.out = append(c.frame, c.out...), nil, nil
	}
	encode("write", func() { c.appendWrite(&Batch{Seq: 300, Low: 299, Hints: protocol.MayWait, Body: []byte("body")}) })
	encode("large", func() {
		c.appendWrite(&Batch{Seq: 300, Low: 299, Hints: protocol.MayWait, Large: true, Work: 1000, Body: []byte("body")})
	})
	encode("read", func() { c.appendRead(&Batch{Seq: 7, Count: 2, Body: []byte("body")}) })
	encode("census", func() { c.appendRead(&Batch{Seq: 7, Census: true, Body: []byte("body")}) })
	c.config.Report = func(question string) protocol.Value { return protocol.Bulk(question + "!") }
	encode("report", func() {
		c.report(9, "who")
		c.frame = c.reports[0]
	})
	encode("wait", func() { c.sendWait(2, 1500*time.Millisecond) })
	for name, answer := range map[string]func(p *Peer){
		"wrote": func(p *Peer) { p.out.put(kindWrote, 300, []protocol.Value{protocol.OK}, 9, time.Now().Add(time.Hour)) },
		"answer": func(p *Peer) {
			p.out.put(kindAnswer, 7, []protocol.Value{protocol.OK, protocol.Null}, 9, time.Now().Add(time.Hour))
		},
		"refuse": func(p *Peer) {
			p.refuse(7, &protocol.Error{Prefix: "ODD", Text: "why", Outcome: protocol.OutcomeUnknown})
		},
		"inquiry": func(p *Peer) {
			over, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := p.inquire(over, "who")
			require.ErrorIs(t, err, context.Canceled)
		},
		"waited": func(p *Peer) { p.waits = maxWaits; p.wait(t.Context(), 1, 2, time.Hour) },
		"part": func(p *Peer) {
			p.out.put(kindAnswer, 7, []protocol.Value{protocol.OK}, largeReply, time.Now().Add(time.Hour))
		},
	} {
		p := newPeer(&ReceiverConfig{ReplyBytes: 1 << 20, Quorum: func() int { return 2 }}, nil, greeting{})
		answer(p)
		frame, _ := p.out.take(make([]byte, wire.Head))
		frames[name] = frame[wire.Head:]
	}
	frames["sealed"] = wire.Seal(append(make([]byte, wire.Head), kindSubscribe, 1))
	frames["values"] = appendValues(nil, []protocol.Value{
		protocol.OK, protocol.Bulk("v"), protocol.Integer(-5),
		protocol.Array(protocol.Null), protocol.Err("no"),
	})
	got := make(map[string]string)
	for name, frame := range frames {
		got[name] = strings.Trim(fmt.Sprintf("%q", frame), `"`)
	}
	require.Equal(t, map[string]string{
		"hello":   `h\x01\x02n1\xac\x02\x03a:1\x03s:2\x050.1.0\x06\x05`,
		"welcome": `H\x01\x03\x02n1\x03a:1\x03s:2\x050.1.0`,
		"status":  `C\x03\x84\a\x01\x02n1\x03a:1\x03s:2\x01\a\x050.1.0\x06\x05`,
		"write":   `w\xac\x02\xab\x02\x02\x04body`,
		"large":   `w\xac\x02\xab\x02\x82\xa2\x1f\x04body`,
		"read":    `r\a\x02\x04body`,
		"census":  `c\a\x04body`,
		"report":  `o\t\x06\x05\x04who!`,
		"wait":    `n\x01\x02\xdc\v`,
		"wrote":   `W\xac\x02\x01\x02\x02OK`,
		"answer":  `A\a\x02\x02\x02OK\x00`,
		"refuse":  `E\a\x01\x03ODD\x03why`,
		"inquiry": `I\x01\x03who`,
		"waited":  `N\x01\x02`,
		"part":    `PAl\a\x01\x02\x02OK`,
		"sealed":  `\x00\x00\x00\x02e\x01`,
		"values":  `\x05\x02\x02OK\x05\x01v\x04\t\x06\x01\x00\x03\x06ERR no`,
	}, got)
	for _, sent := range []Batch{{Hints: protocol.MayWait, Large: true, Work: 1 << 40}, {Hints: protocol.LargeScript}} {
		var came Batch
		unpackHints(&came, packHints(&sent))
		require.Equal(t, sent, came)
		require.Equal(t, sent.Hints, protocol.Hints(packHints(&sent)), "what an earlier release reads")
	}
}

// TestGreetingOfWhoHangsUp: if the connection ends before the greeting, the error says so, and not that the greeting is
// invalid.
func TestGreetingOfWhoHangsUp(t *testing.T) {
	_, err := readGreeting(bufio.NewReader(strings.NewReader("")), kindHello)
	require.ErrorIs(t, err, io.EOF)
	_, err = parseGreeting(nil, kindHello)
	require.ErrorIs(t, err, wire.ErrCorrupt, "a frame without a word")
}

// TestValuesThatAreCutShort: no value of a truncated message is used.
func TestValuesThatAreCutShort(t *testing.T) {
	all := appendValues(nil, []protocol.Value{protocol.Bulk("first"), protocol.Array(protocol.Integer(7), protocol.Null)})
	for n := range all {
		f := wire.Fields[string]{Rest: string(all[:n])}
		require.Nil(t, values(&f), "%d bytes", n)
		require.Error(t, f.Err, "%d bytes", n)
	}
	f := wire.Fields[string]{Rest: string(all)}
	require.Len(t, values(&f), 2)
	require.NoError(t, f.Err)
	require.False(t, f.More())
}
