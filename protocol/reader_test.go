package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallLimits let tests reach every limit with a few bytes.
func smallLimits() Limits {
	return Limits{MaxArgs: 20, MaxBulkBytes: 1000, MaxInlineBytes: 40, MaxQueryBytes: 3000}
}

// parsed is what a Reader makes of some input.
type parsed struct {
	commands [][]string
	err      string // of the input's end: "" when it ends between two commands
}

// parseInPieces feeds input in pieces that end at the given offsets, moving what
// is not consumed to a new place each time, as a connection may.
func parseInPieces(l Limits, input []byte, ends ...int) parsed {
	r := NewReader(l)
	var p parsed
	var pending []byte
	start := 0
	for _, end := range append(ends, len(input)) {
		pending = append(bytes.Clone(pending), input[start:end]...)
		start = end
		for {
			words, n, err := r.Next(pending)
			pending = pending[n:]
			if errors.Is(err, ErrIncomplete) {
				break
			}
			if err != nil {
				p.err = err.Error()
				return p
			}
			var command []string
			for _, w := range words {
				command = append(command, string(w))
			}
			p.commands = append(p.commands, command)
		}
	}
	if !r.Idle() {
		p.err = ErrIncomplete.Error()
	}
	return p
}

// requireAnySplit demands that it makes no difference how the input arrives.
func requireAnySplit(t *testing.T, l Limits, input []byte, want parsed) {
	t.Helper()
	require.Equal(t, want, parseInPieces(l, input), "whole: %q", input)
	for i := range input {
		require.Equal(t, want, parseInPieces(l, input, i), "split at %d: %q", i, input)
	}
	every := make([]int, len(input))
	for i := range every {
		every[i] = i
	}
	require.Equal(t, want, parseInPieces(l, input, every...), "byte by byte: %q", input)
}

type readerCase struct {
	input    string
	commands string // words in brackets, as fmt's %q prints them
	err      string // without "ERR Protocol error: "
}

// readerCases hold for redis-server 7.0.15, but where a comment says otherwise.
var readerCases = []readerCase{
	{input: "", commands: ``},
	{input: "*1\r\n$4\r\nPING\r\n", commands: `["PING"]`},
	{input: "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", commands: `["ECHO" ""]`},
	{input: "*2\r\n$4\r\nECHO\r\n$4\r\n\r\n*1\r\n", commands: `["ECHO" "\r\n*1"]`},
	{input: "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$1\r\na\r\nPING\r\n", commands: `["PING"] ["ECHO" "a"] ["PING"]`},
	// Nothing looks at what stands where LF, or CR and LF behind a word, belong.
	{input: "*1\rX$4\rXPINGab", commands: `["PING"]`},
	// Requests without words are passed over.
	{input: "*0\r\nPING\r\n", commands: `["PING"]`},
	{input: "*-1\r\n*-5\r\n\r\n\n  \r\n \t\v\f\nPING\n", commands: `["PING"]`},

	{input: "*abc\r\n", err: "invalid multibulk length"},
	{input: "*\r\n", err: "invalid multibulk length"},
	{input: "*01\r\n", err: "invalid multibulk length"},
	{input: "*+1\r\n", err: "invalid multibulk length"},
	{input: "*1 \r\n", err: "invalid multibulk length"},
	{input: "*1\n$4\r\nPING\r\n", err: "invalid multibulk length"},
	{input: "*21\r\n", err: "invalid multibulk length"},
	{input: "*9223372036854775807\r\n", err: "invalid multibulk length"},
	{input: "*9223372036854775808\r\n", err: "invalid multibulk length"},
	{input: "*1\r\nfoo\r\n", err: "expected '$', got 'f'"},
	{input: "*1\r\n*1\r\n", err: "expected '$', got '*'"},
	{input: "*1\r\n\r\n\r\n", err: "expected '$', got ' '"},
	{input: "*1\r\n\n\r\n", err: "expected '$', got ' '"},
	{input: "*1\r\n\xff\r\n", err: "expected '$', got '\xff'"},
	// Redis waits forever, since it looks for CR with strchr.
	{input: "*1\r\n\x00\r\n", err: "expected '$', got ''"},
	{input: "*1\r\n$\r\n", err: "invalid bulk length"},
	{input: "*1\r\n$-1\r\n", err: "invalid bulk length"},
	{input: "*1\r\n$a\r\n", err: "invalid bulk length"},
	{input: "*1\r\n$1001\r\n", err: "invalid bulk length"},
	{input: "*2\r\n$4\r\nPING\r\n$9223372036854775807\r\n", err: "invalid bulk length"},
	{input: "PING\r\n*x\r\n", commands: `["PING"]`, err: "invalid multibulk length"},

	{input: "+PING\r\n%1\r\n$4\r\nPING\r\n", commands: `["+PING"] ["%1"] ["$4"] ["PING"]`},
	{input: "  set  a\tb \r\n", commands: `["set" "a" "b"]`},
	{input: "ECHO a\rb\r\n", commands: `["ECHO" "a" "b"]`},
	{input: "ECHO a\r\r\n", commands: `["ECHO" "a"]`},
	{input: "ECHO a\vb\n\vECHO a\n", commands: `["ECHO" "a\vb"] ["ECHO" "a"]`},
	{input: `ECHO "a b" 'c d' "" ''` + "\n", commands: `["ECHO" "a b" "c d" "" ""]`},
	{input: `ECHO a"b c"` + "\n", commands: `["ECHO" "ab c"]`},
	{input: `ECHO "\x41\n\r\t\b\a\q\"\\\xZZ\x4"` + "\n", commands: `["ECHO" "A\n\r\t\b\aq\"\\xZZx4"]`},
	{input: `ECHO "\x4F\x5a\x4e\x5A"` + "\n", commands: `["ECHO" "OZNZ"]`},
	{input: `ECHO 'a\'b\n\\ '` + "\n", commands: `["ECHO" "a'b\\n\\\\ "]`},
	{input: `ECHO 'a\\'` + "\n", err: "unbalanced quotes in request"},
	{input: "ECHO \"a\v\"\v\n", commands: `["ECHO" "a\v"]`},
	{input: `"PING` + "\r\n", err: "unbalanced quotes in request"},
	{input: `'PING` + "\r\n", err: "unbalanced quotes in request"},
	{input: `PING "a"b` + "\r\n", err: "unbalanced quotes in request"},
	{input: `PING 'a'"b"` + "\r\n", err: "unbalanced quotes in request"},
	{input: `PING "\` + "\r\n", err: "unbalanced quotes in request"},
	{input: `PING "a\"` + "\r\n", err: "unbalanced quotes in request"},
}

func (c readerCase) want() parsed {
	p := parsed{err: c.err}
	if c.err != "" {
		p.err = "ERR Protocol error: " + c.err
	}
	return p
}

func TestReader(t *testing.T) {
	t.Parallel()
	for _, c := range readerCases {
		whole := parseInPieces(smallLimits(), []byte(c.input))
		var shown []string
		for _, command := range whole.commands {
			shown = append(shown, fmt.Sprintf("%q", command))
		}
		require.Equal(t, c.commands, strings.Join(shown, " "), "%q", c.input)
		want := c.want()
		want.commands = whole.commands
		requireAnySplit(t, smallLimits(), []byte(c.input), want)
	}
}

func TestReaderLimits(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("1", n) }
	for _, c := range []readerCase{
		{input: "a" + long(39) + "\n", commands: "a" + long(39)},
		{input: "a" + long(40) + "\n", err: "too big inline request"},
		{input: "a" + long(50), err: "too big inline request"},
		{input: "*" + long(39) + "\r\n", err: "invalid multibulk length"},
		{input: "*" + long(40) + "\r\n", err: "too big mbulk count string"},
		{input: "*" + long(60), err: "too big mbulk count string"},
		{input: "*1\r\n$" + long(60), err: "too big bulk count string"},
		{input: "*1\r\n$1000\r\n" + long(1000) + "\r\n", commands: long(1000)},
		{input: strings.Repeat("a ", 20) + "\n", commands: strings.TrimSuffix(strings.Repeat("a,", 20), ",")},
		{input: "*3\r\n" + strings.Repeat("$988\r\n"+long(988)+"\r\n", 3), commands: long(988) + "," + long(988) + "," +
			long(988)},
		{input: "*4\r\n" + strings.Repeat("$990\r\n"+long(990)+"\r\n", 4), err: "too big request"},
	} {
		want := c.want()
		if c.commands != "" {
			want.commands = [][]string{strings.Split(c.commands, ",")}
		}
		requireAnySplit(t, smallLimits(), []byte(c.input), want)
	}
	words := strings.Repeat("a\t", 21)[:40] + "\n"
	l := smallLimits()
	l.MaxArgs = 19
	requireAnySplit(t, l, []byte(words), readerCase{err: "invalid multibulk length"}.want())
}

// TestReaderOfManyWords: a command that needs more slots than are kept loses no word between
// pieces.
func TestReaderOfManyWords(t *testing.T) {
	t.Parallel()
	const words = keepSlots + 10
	input := []byte(fmt.Sprintf("*%d\r\n", words) + strings.Repeat("$1\r\na\r\n", words))
	want := parsed{commands: [][]string{slices.Repeat([]string{"a"}, words)}}
	requireAnySplit(t, DefaultLimits(), input, want)
}

func TestReaderBeforeAuth(t *testing.T) {
	t.Parallel()
	l := DefaultLimits()
	l.Unauthenticated = true
	requireAnySplit(t, l, []byte("*11\r\n"), readerCase{err: "unauthenticated multibulk length"}.want())
	requireAnySplit(t, l, []byte("*1\r\n$16385\r\n"), readerCase{err: "unauthenticated bulk length"}.want())
	requireAnySplit(t, l, []byte("*10\r\n$16384\r\n"), parsed{err: ErrIncomplete.Error()})

	r := NewReader(l)
	words, n, err := r.Next([]byte("AUTH secret\r\n*11\r\n"))
	require.NoError(t, err)
	require.Equal(t, 13, n)
	require.Len(t, words, 2)
	r.SetLimits(DefaultLimits())
	_, _, err = r.Next([]byte("*11\r\n"))
	require.ErrorIs(t, err, ErrIncomplete)
}

func TestReaderStaysFailed(t *testing.T) {
	t.Parallel()
	r := NewReader(DefaultLimits())
	_, _, err := r.Next([]byte("*x\r\n"))
	require.EqualError(t, err, "ERR Protocol error: invalid multibulk length")
	_, n, again := r.Next([]byte("PING\r\n"))
	require.Zero(t, n)
	require.Equal(t, err, again)
	require.False(t, r.Idle())
	r.Reset(DefaultLimits())
	words, _, err := r.Next([]byte("PING\r\n"))
	require.NoError(t, err)
	require.Equal(t, "PING", string(words[0]))
}

func TestReaderSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := NewReader(DefaultLimits())
	require.True(t, r.Idle())
	buf := []byte("*2\r\n$3\r\nGET\r\n$100")
	_, n, err := r.Next(buf)
	require.ErrorIs(t, err, ErrIncomplete)
	require.Zero(t, n)
	require.Equal(t, 1, r.Missing())
	require.False(t, r.Idle())
	buf = append(buf, "0\r\nabc"...)
	_, _, err = r.Next(buf)
	require.ErrorIs(t, err, ErrIncomplete)
	require.Equal(t, 999, r.Missing())
	buf = append(buf, strings.Repeat("x", 999)...)
	words, n, err := r.Next(buf)
	require.NoError(t, err)
	require.Equal(t, len(buf), n)
	require.Len(t, words[1], 1000)
	require.True(t, r.Idle())

	// Blank lines are consumed though nothing comes of them.
	_, n, err = r.Next([]byte("\r\n*0\r\n*1\r\n"))
	require.ErrorIs(t, err, ErrIncomplete)
	require.Equal(t, 6, n)
}

// A word must not be able to grow into its neighbour.
func TestReaderWordsDoNotOverlap(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "a b\r\n", "\"a\" 'b'\r\n"} {
		words, _, err := NewReader(DefaultLimits()).Next([]byte(input))
		require.NoError(t, err)
		word := words[0]
		for range 15 { // one by one: all at once would not fit, and go elsewhere
			word = append(word, 'x')
		}
		require.Equal(t, "b", string(words[1]), input)
	}
}

func TestReaderHoldsNoMoreThanArrived(t *testing.T) {
	r := NewReader(DefaultLimits())
	for _, input := range []string{"*65536\r\n", "*65536\r\n$8388608\r\n"} {
		r.Reset(DefaultLimits())
		allocated := testing.AllocsPerRun(1, func() {
			_, _, err := r.Next([]byte(input))
			require.ErrorIs(t, err, ErrIncomplete)
		})
		require.LessOrEqual(t, allocated, 2.0) // the input, at most
		require.Zero(t, cap(r.spans))
	}
	r.Reset(DefaultLimits())
	huge := []byte("*65536\r\n" + strings.Repeat("$0\r\n\r\n", 65536))
	words, _, err := r.Next(huge)
	require.NoError(t, err)
	require.Len(t, words, 65536)
	_, _, err = r.Next(nil)
	require.ErrorIs(t, err, ErrIncomplete)
	require.Zero(t, cap(r.spans)+cap(r.words), "slots of a huge command are given back")
}

func TestReaderDoesNotAllocate(t *testing.T) {
	buf := bytes.Repeat([]byte("*5\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n$2\r\nPX\r\n$5\r\n30000\r\nGET 'a'\r\n"),
		100)
	r := NewReader(DefaultLimits())
	source := slices.Clone(buf)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		copy(buf, source)
		for off := 0; off < len(buf); {
			_, n, err := r.Next(buf[off:])
			if err != nil {
				t.Fatal(err)
			}
			off += n
		}
	}))
}

func BenchmarkReader(b *testing.B) {
	command := []byte("*5\r\n$3\r\nSET\r\n$12\r\nlock:1234567\r\n$16\r\n0123456789abcdef\r\n$2\r\nPX\r\n$5\r\n30000\r\n")
	for _, depth := range []int{1, 100} {
		b.Run(fmt.Sprintf("pipeline=%d", depth), func(b *testing.B) {
			buf := bytes.Repeat(command, depth)
			r := NewReader(DefaultLimits())
			b.ReportAllocs()
			b.SetBytes(int64(len(command)))
			for i := 0; i < b.N; {
				for off := 0; off < len(buf); i++ {
					_, n, err := r.Next(buf[off:])
					if err != nil {
						b.Fatal(err)
					}
					off += n
				}
				if _, _, err := r.Next(nil); err != ErrIncomplete {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestReaderHoldsNoBuffer: a Reader that waits for the next command, or is pooled, keeps no buffer of the last one.
func TestReaderHoldsNoBuffer(t *testing.T) {
	r := NewReader(DefaultLimits())
	for _, drop := range []func(){
		func() { _, _, _ = r.Next(nil) },
		func() { r.Reset(DefaultLimits()) },
	} {
		words, _, err := r.Next([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
		require.NoError(t, err)
		require.Len(t, words, 2)
		drop()
		require.Equal(t, make([][]byte, 2), words)
	}
}
