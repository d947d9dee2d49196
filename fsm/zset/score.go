package zset

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// parseScore reads a score as Redis does: the whole word is a number for C's strtod, without a blank in
// front, not NaN, and neither too large nor too small for a double.
func parseScore(word string) (score float64, ok bool) {
	if word == "" || isBlank(word[0]) {
		return 0, false
	}
	f, n, outside := strtod(word)
	return f, n == len(word) && !outside && !math.IsNaN(f)
}

func isBlank(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }

// strtod reads the number at the begin of s as C's strtod does. n is how many bytes the number takes, 0 if
// there is none. outside: the number is too large for a double, or too small.
func strtod(s string) (f float64, n int, outside bool) {
	at := 0
	for at < len(s) && isBlank(s[at]) {
		at++
	}
	sign := s[at:min(at+1, len(s))]
	if sign == "-" || sign == "+" {
		at++
	} else {
		sign = ""
	}
	if f, n = namedNumber(s[at:]); n == 0 {
		var number string
		if number, n = numberIn(s[at:]); n == 0 {
			return 0, 0, false
		}
		f, outside = toFloat(number)
	}
	if sign == "-" {
		f = -f
	}
	return f, at + n, outside
}

// namedNumber is inf, infinity or nan.
func namedNumber(s string) (f float64, n int) {
	begins := func(name string) bool { return len(s) >= len(name) && command.IsWord(s[:len(name)], name) }
	switch {
	case begins("INFINITY"):
		return math.Inf(1), len("INFINITY")
	case begins("INF"):
		return math.Inf(1), len("INF")
	case begins("NAN"):
		return math.NaN(), len("NAN")
	}
	return 0, 0
}

// numberIn is the decimal or hexadecimal number at the begin of s, as [strconv.ParseFloat] reads it, and how
// many bytes of s it takes.
func numberIn(s string) (number string, n int) {
	if len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' {
		if end := digitsIn(s, 2, "0123456789abcdefABCDEF"); end > 0 {
			if n = exponentIn(s, end, 'p'); n == end {
				return s[:n] + "p0", n
			}
			return s[:n], n
		}
	}
	end := digitsIn(s, 0, "0123456789")
	n = exponentIn(s, end, 'e')
	return s[:n], n
}

// digitsIn is where the digits from place at on end, with a point among them or none; 0 if there is no
// digit.
func digitsIn(s string, at int, digits string) (end int) {
	point, some := false, false
	for end = at; end < len(s); end++ {
		switch {
		case strings.IndexByte(digits, s[end]) >= 0:
			some = true
		case s[end] == '.' && !point:
			point = true
		default:
			if !some {
				return 0
			}
			return end
		}
	}
	if !some {
		return 0
	}
	return end
}

// exponentIn is where the exponent at end ends: at end if there is none.
func exponentIn(s string, end int, mark byte) int {
	if end == 0 || end >= len(s) || s[end]|0x20 != mark {
		return end
	}
	at := end + 1
	if at < len(s) && (s[at] == '+' || s[at] == '-') {
		at++
	}
	digits := at
	for at < len(s) && '0' <= s[at] && s[at] <= '9' {
		at++
	}
	if at == digits {
		return end
	}
	return at
}

// toFloat is the double next to a number.
func toFloat(number string) (f float64, outside bool) {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return f, true
	}
	if f != 0 {
		return f, false
	}
	mantissa := strings.TrimPrefix(strings.ToLower(number), "0x")
	if at := strings.IndexByte(mantissa, 'p'); at >= 0 {
		mantissa = mantissa[:at]
	} else if at := strings.IndexByte(mantissa, 'e'); at >= 0 && len(mantissa) == len(number) {
		mantissa = mantissa[:at]
	}
	return 0, strings.Trim(mantissa, "0.") != ""
}

// scoreRange is a range of scores.
type scoreRange struct {
	low, high         float64
	lowOpen, highOpen bool
}

var errNoFloatRange = protocol.Err("min or max is not a float")

func parseScoreRange(low, high string) (r scoreRange, ok bool) {
	var ok1, ok2 bool
	r.low, r.lowOpen, ok1 = parseBound(low)
	r.high, r.highOpen, ok2 = parseBound(high)
	return r, ok1 && ok2
}

// parseBound reads an end of a range of scores. Redis looks less closely there: blanks in front and too
// large numbers are taken, and nothing at all is 0.
func parseBound(word string) (f float64, open, ok bool) {
	word, _, _ = strings.Cut(word, "\x00")
	word, open = strings.CutPrefix(word, "(")
	f, n, _ := strtod(word)
	return f, open, n == len(word) && !math.IsNaN(f)
}

// reached reports whether a score is not below the range.
func (r *scoreRange) reached(_ string, score float64) bool {
	return score > r.low || score == r.low && !r.lowOpen
}

// passed reports whether a score is above the range.
func (r *scoreRange) passed(_ string, score float64) bool {
	return score > r.high || score == r.high && r.highOpen
}

// nameRange is a range of members of one score.
type nameRange struct{ low, high nameBound }

// nameBound is an end of the range: a name, or below or above all names.
type nameBound struct {
	name   string
	open   bool
	beyond int // -1: below all, 1: above all
}

var errNoNameRange = protocol.Err("min or max not valid string range item")

func parseNameRange(low, high string) (r nameRange, ok bool) {
	var ok1, ok2 bool
	r.low, ok1 = parseNameBound(low)
	r.high, ok2 = parseNameBound(high)
	return r, ok1 && ok2
}

func parseNameBound(word string) (b nameBound, ok bool) {
	switch {
	case word == "":
		return b, false
	case word[0] == '(' || word[0] == '[':
		return nameBound{name: word[1:], open: word[0] == '('}, true
	case len(word) > 1 && word[1] != 0:
		return b, false
	case word[0] == '-':
		return nameBound{beyond: -1}, true
	}
	return nameBound{beyond: 1}, word[0] == '+'
}

// compare is the order of a member and the bound.
func (b *nameBound) compare(member string) int {
	if b.beyond != 0 {
		return -b.beyond
	}
	return strings.Compare(member, b.name)
}

func (r *nameRange) reached(member string, _ float64) bool {
	n := r.low.compare(member)
	return n > 0 || n == 0 && !r.low.open
}

func (r *nameRange) passed(member string, _ float64) bool {
	n := r.high.compare(member)
	return n > 0 || n == 0 && r.high.open
}
