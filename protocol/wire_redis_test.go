package protocol_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// The tests of this file ask a real redis-server, see redis_test.go.

// raw is a connection that has not said HELLO.
func (s *redisServer) raw(t *testing.T) *redisConn {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	t.Cleanup(func() { _ = conn.Close() })
	return &redisConn{Conn: conn, in: bufio.NewReader(conn)}
}

// transcript sends input as all there will be, and returns all replies.
func (c *redisConn) transcript(t *testing.T, input string) (replies []string) {
	t.Helper()
	_, err := c.Write([]byte(input))
	require.NoError(t, err)
	require.NoError(t, c.Conn.(*net.UnixConn).CloseWrite())
	for {
		v, err := protocol.ReadValue(c.in)
		if err != nil {
			require.Equal(t, io.EOF, err, "%q", input)
			return replies
		}
		replies = append(replies, string(v.AppendTo(nil, protocol.RESP2)))
	}
}

// pongs is what a server that knows PING and ECHO replies to input.
func pongs(input string) (replies []string) {
	r := protocol.NewReader(protocol.DefaultLimits())
	buf := []byte(input)
	for {
		words, n, err := r.Next(buf)
		if errors.Is(err, protocol.ErrIncomplete) {
			return replies
		}
		reply := protocol.Simple("PONG")
		var refused, wrong *protocol.Error
		if errors.As(err, &refused) {
			return append(replies, string(refused.Value().AppendTo(nil, protocol.RESP2)))
		}
		if len(words) == 2 {
			reply = protocol.Bulk(string(words[1]))
		}
		if _, wrong = resolve(words); wrong != nil {
			reply = wrong.Value()
		}
		replies = append(replies, string(reply.AppendTo(nil, protocol.RESP2)))
		buf = buf[n:]
	}
}

// Random bytes of the kind that make a difference to a reader.
func TestDifferentialReader(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	pieces := []string{
		"*1\r\n", "*2\r\n", "*0\r\n", "*-1\r\n", "*x\r\n", "*01\r\n", "*\r\n", "$4\r\n", "$4\r\nPING\r\n", "$4\r\nECHO\r\n",
		"$1\r\na\r\n", "$0\r\n\r\n",
		"$-1\r\n", "$x\r\n", "$999999999\r\n", "PING\r\n", "ECHO ", "ECHO a\n", `"`, `'`, `\`, `\x41`, `\n`, " ", "\t", "\v",
		"\r", "\r\n", "\n", "a", "foo ", "\xff", "%1\r\n",
		"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n", "*2147483648\r\n",
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var input strings.Builder
		for range 1 + random.IntN(8) {
			input.WriteString(pieces[random.IntN(len(pieces))])
		}
		// Finish whatever is open, so that the reply to what is sent last is the last.
		text := input.String() + "\r\n\r\n\r\n"
		conn := redis.raw(t)
		theirs := conn.transcript(t, text)
		require.Equal(t, pongs(text), theirs, "%q", text)
		_ = conn.Close()
	}
}

func TestDifferentialErrors(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	for input, want := range map[string]*protocol.Error{
		"SET a b FOO\r\n":                        protocol.ErrSyntax,
		"SELECT a\r\n":                           protocol.ErrNotInteger,
		"SELECT 99\r\n":                          protocol.ErrDBIndex,
		"SCAN x\r\n":                             protocol.ErrInvalidCursor,
		"RENAME missing a\r\n":                   protocol.ErrNoSuchKey,
		"SETRANGE a 999999999 x\r\n":             protocol.ErrStringTooBig,
		"SET a b EX 0\r\n":                       protocol.InvalidExpire("set"),
		"GET\r\n":                                protocol.WrongArity("get"),
		"CLIENT NO-EVICT\r\n":                    protocol.WrongArity("client|no-evict"),
		"EXEC\r\n":                               protocol.ErrExecNoMulti,
		"DISCARD\r\n":                            protocol.ErrDiscardNoMulti,
		"HELLO 4\r\n":                            protocol.ErrNoProto,
		"HELLO x\r\n":                            protocol.ErrProtoVersion,
		"AUTH x\r\n":                             protocol.ErrPasswordNotSet,
		"AUTH user x\r\n":                        protocol.ErrWrongPass,
		"SCRIPT KILL\r\n":                        protocol.ErrNotBusy,
		"EVALSHA abc 0\r\n":                      protocol.ErrNoScript,
		"DEL l\nLPUSH l 1\nGET l\r\n":            protocol.ErrWrongType,
		"SET s x\nINCRBYFLOAT s 1\r\n":           protocol.ErrNotFloat,
		"SET s 9223372036854775807\nINCR s\r\n":  protocol.ErrOverflow,
		"SET s 1e308\nINCRBYFLOAT s 1.7e308\r\n": nil, // long double: finite
		"SET s 1\nINCRBYFLOAT s inf\r\n":         protocol.ErrNotFinite,
		"MULTI\nMULTI\r\n":                       protocol.ErrNestedMulti,
		"MULTI\nWATCH a\r\n":                     protocol.ErrWatchInMulti,
		"MULTI\nEXEC x\r\n":                      protocol.ExecAbortedBy(protocol.WrongArity("exec")),
		"MULTI\nfoo\nEXEC\r\n":                   protocol.ErrExecAbort,
		"EVAL \"return redis.pcall('subscribe')\" 0\r\n":      nil, // wrong arity comes first
		"EVAL \"return redis.pcall('multi')\" 0\r\n":          protocol.ErrNotInScript,
		"EVAL_RO \"return redis.pcall('set','a','b')\" 0\r\n": protocol.ErrReadOnlyScript,
	} {
		replies := redis.raw(t).transcript(t, input)
		require.NotEmpty(t, replies, "%q", input)
		if want != nil {
			require.Equal(t, "-"+want.Error()+"\r\n", replies[len(replies)-1], "%q", input)
		}
	}
	conn := redis.raw(t)
	require.Equal(t, []string{"+OK\r\n"}, conn.transcript(t, "CONFIG SET requirepass secret\r\n"))
	guest := redis.raw(t)
	require.Equal(t, []string{"-" + protocol.ErrNoAuth.Error() + "\r\n"}, guest.transcriptUntil(t, "GET a\r\n", 1))
	require.Equal(t, []string{"-" + protocol.ErrHelloNoAuth.Error() + "\r\n"}, guest.transcriptUntil(t, "HELLO 3\r\n", 1))
	require.Equal(t, []string{"-" + protocol.ErrWrongPass.Error() + "\r\n"}, guest.transcriptUntil(t, "AUTH wrong\r\n", 1))
	require.Equal(t, []string{"-ERR Protocol error: unauthenticated multibulk length\r\n"},
		redis.raw(t).transcriptUntil(t, "*11\r\n", 1))
	require.Equal(t, []string{"-ERR Protocol error: unauthenticated bulk length\r\n"}, redis.raw(t).transcriptUntil(t,
		"*1\r\n$16385\r\n", 1))
}

// transcriptUntil reads n replies.
func (c *redisConn) transcriptUntil(t *testing.T, input string, n int) (replies []string) {
	t.Helper()
	_, err := c.Write([]byte(input))
	require.NoError(t, err)
	for range n {
		v, err := protocol.ReadValue(c.in)
		require.NoError(t, err)
		replies = append(replies, string(v.AppendTo(nil, protocol.RESP2)))
	}
	return replies
}

// Scripts can make a real server send every kind but pushes.
func TestDifferentialValues(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	type example struct {
		lua   string
		value protocol.Value
	}
	examples := []example{
		{"return false", protocol.Null},
		{"return redis.call('get', 'missing')", protocol.Null},
		{"return 'text'", protocol.Bulk("text")},
		{"return ''", protocol.Bulk("")},
		{"return -7", protocol.Integer(-7)},
		{"return {ok='fine'}", protocol.Simple("fine")},
		{"return redis.error_reply('MY own')", protocol.ErrValue("MY own")},
		{"return {}", protocol.Array()},
		{"return {1, 'a', {false}}", protocol.Array(protocol.Integer(1), protocol.Bulk("a"), protocol.Array(protocol.Null))},
		{"redis.setresp(3) return true", protocol.Bool(true)},
		{"redis.setresp(3) return {map={a=1}}", protocol.Map(protocol.Bulk("a"), protocol.Integer(1))},
		{"redis.setresp(3) return {set={a=true}}", protocol.Set(protocol.Bulk("a"))},
		{"redis.setresp(3) return {big_number='123456789012345678901'}", protocol.BigNumber("123456789012345678901")},
		{"redis.setresp(3) return {verbatim_string={format='txt', string='hi'}}", protocol.Verbatim("hi")},
	}
	random := rand.New(rand.NewPCG(3, 4))
	floats := []float64{
		0, math.Copysign(0, -1), 1, 0.1, 1e15, 1e16, 1e17, 1e21, 123456.789, 5e-324, math.MaxFloat64,
		math.Inf(1), math.Inf(-1),
	}
	for range 500 {
		floats = append(floats, math.Float64frombits(random.Uint64()), random.NormFloat64(),
			math.Trunc(random.NormFloat64()*1e6))
	}
	for _, f := range floats {
		source := fmt.Sprintf("%.17g", f)
		switch {
		case math.IsNaN(f):
			continue
		case math.IsInf(f, 0):
			source = strings.TrimPrefix(fmt.Sprintf("%+d*math.huge", int(math.Copysign(1, f))), "+")
		}
		examples = append(examples, example{"return {double=" + source + "}", protocol.Double(f)})
	}
	for _, resp := range []int{protocol.RESP2, protocol.RESP3} {
		conn := redis.raw(t)
		conn.transcriptUntil(t, fmt.Sprintf("HELLO %d\r\n", resp), 1)
		for _, e := range examples {
			want := e.value.AppendTo(nil, resp)
			_, err := conn.Write(protocol.Strings("EVAL", e.lua, "0").AppendTo(nil, protocol.RESP2))
			require.NoError(t, err)
			if e.value.Kind == protocol.KindDouble {
				// Before 7.2 Redis wrote 17 digits.
				got, err := protocol.ReadValue(conn.in)
				require.NoError(t, err)
				if got.Kind == protocol.KindBulk {
					f, err := strconv.ParseFloat(got.Str, 64)
					require.NoError(t, err)
					got = protocol.Double(f)
				}
				require.Equal(t, e.value, got, e.lua)
				continue
			}
			got := make([]byte, len(want))
			_, err = io.ReadFull(conn.in, got)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got), e.lua)
			require.Zero(t, conn.in.Buffered(), e.lua)
		}
	}
}
