package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, s string
		nocase     bool
		want       bool
	}{
		{pattern: "", s: "", want: true},
		{pattern: "", s: "a"},
		{pattern: "*", s: ""},
		{pattern: "**", s: ""},
		{pattern: "?", s: ""},
		{pattern: "*", s: "anything", want: true},
		{pattern: "a*", s: "a", want: true},
		{pattern: "a**", s: "a", want: true},
		{pattern: "h?llo", s: "hello", want: true},
		{pattern: "h?llo", s: "hllo"},
		{pattern: "h*llo", s: "heeeello", want: true},
		{pattern: "h[ae]llo", s: "hallo", want: true},
		{pattern: "h[ae]llo", s: "hillo"},
		{pattern: "h[^e]llo", s: "hallo", want: true},
		{pattern: "h[^e]llo", s: "hello"},
		{pattern: "h[a-c]llo", s: "hbllo", want: true},
		{pattern: "h[c-a]llo", s: "hbllo", want: true},
		{pattern: "h[a-c]llo", s: "hdllo"},
		{pattern: "lock:*:[0-9]", s: "lock:a:b:7", want: true},
		{pattern: `a\*c`, s: "a*c", want: true},
		{pattern: `a\*c`, s: "abc"},
		{pattern: `a\`, s: `a\`, want: true},
		{pattern: `[\]]`, s: "]", want: true},
		{pattern: `[\-a]`, s: "-", want: true},
		{pattern: "[abc", s: "b", want: true},
		{pattern: "[", s: "["},
		{pattern: "[^", s: "x", want: true},
		{pattern: "[a-]", s: "^", want: true}, // the range ends at the bracket
		// Bytes are signed: above 0x7f they stand before all others, and the ends of a range are swapped by that order.
		{pattern: "[\x80-a]", s: "\x90", want: true},
		{pattern: "[a-\x80]", s: "B", want: true},
		{pattern: "[a-\x80]", s: "b"},
		{pattern: "ABC", s: "abc"},
		{pattern: "ABC", s: "abc", nocase: true, want: true},
		{pattern: "[A-C]", s: "b", nocase: true, want: true},
		{pattern: `[\A]`, s: "a", nocase: true},
		{pattern: "*a*b*c*", s: "xxaxxbxxcxx", want: true},
		{pattern: "*a*b*c", s: "xxaxxbxxcxx"},
	} {
		require.Equal(t, c.want, Match(c.pattern, c.s, c.nocase),
			"Match(%q, %q, %v)", c.pattern, c.s, c.nocase)
	}
}

// A pattern of many stars made the recursive definition take for ever.
func TestMatchHostilePattern(t *testing.T) {
	t.Parallel()
	require.False(t, Match(strings.Repeat("a*", 5000)+"b", strings.Repeat("a", 10000), false))
	require.True(t, Match(strings.Repeat("*a", 5000)+"*", strings.Repeat("a", 10000), false))
}

// FuzzMatch compares with the definition that Match must agree with.
func FuzzMatch(f *testing.F) {
	f.Add("h[^a-c]*l?o", "hello", false)
	f.Add(`[\]-a]**b\`, "]]b", true)
	f.Add("[a-", "a", true)
	f.Fuzz(func(t *testing.T, pattern, s string, nocase bool) {
		// The recursion takes exponential time: a short pattern of few stars keeps it small.
		if len(pattern) > 20 || len(s) > 16 || strings.Count(pattern, "*") > 4 {
			return
		}
		want := pattern == "*" || recursiveMatch(pattern, s, nocase)
		require.Equal(t, want, Match(pattern, s, nocase), "Match(%q, %q, %v)", pattern, s, nocase)
	})
}

// recursiveMatch is the definition of Redis's patterns in the plainest form: its
// stringmatchlen without what makes that faster.
func recursiveMatch(p, s string, nocase bool) bool {
	for p != "" && s != "" {
		switch p[0] {
		case '*':
			p = strings.TrimLeft(p, "*")
			if p == "" {
				return true
			}
			for ; s != ""; s = s[1:] {
				if recursiveMatch(p, s, nocase) {
					return true
				}
			}
			return false
		case '?':
			p = p[1:]
		case '[':
			var ok bool
			if p, ok = recursiveClass(p[1:], s[0], nocase); !ok {
				return false
			}
		case '\\':
			if len(p) >= 2 {
				p = p[1:]
			}
			fallthrough
		default:
			if p[0] != s[0] && (!nocase || lower(p[0]) != lower(s[0])) {
				return false
			}
			p = p[1:]
		}
		s = s[1:]
		if s == "" {
			p = strings.TrimLeft(p, "*")
		}
	}
	return p == "" && s == ""
}

func recursiveClass(p string, c byte, nocase bool) (rest string, ok bool) {
	not := strings.HasPrefix(p, "^")
	p = strings.TrimPrefix(p, "^")
	in := false
	for {
		switch {
		case len(p) >= 2 && p[0] == '\\':
			p = p[1:]
			if p[0] == c {
				in = true
			}
		case p == "":
			return p, in != not
		case p[0] == ']':
			return p[1:], in != not
		case len(p) >= 3 && p[1] == '-':
			start, end, b := int8(p[0]), int8(p[2]), int8(c)
			if start > end {
				start, end = end, start
			}
			if nocase {
				start, end, b = int8(lower(byte(start))), int8(lower(byte(end))), int8(lower(c))
			}
			p = p[2:]
			if b >= start && b <= end {
				in = true
			}
		case p[0] == c, nocase && lower(p[0]) == lower(c):
			in = true
		}
		p = p[1:]
	}
}

func TestMatchSteps(t *testing.T) {
	t.Parallel()
	steps := int64(6)
	require.True(t, MatchSteps("[abc]x", "cx", false, &steps))
	require.Zero(t, steps)
	steps = 5
	require.False(t, MatchSteps("[abc]x", "cx", false, &steps))
	require.Negative(t, steps)
	// Every byte of s is tried against 101 bytes of the pattern.
	steps = 50_000
	require.False(t, MatchSteps("*"+strings.Repeat("a", 100)+"b", strings.Repeat("a", 10_000), false, &steps))
	require.Negative(t, steps)
}
