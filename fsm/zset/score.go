package zset

import (
	"math"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/protocol"
)

// parseScore parses a score as Redis does. C's strtod must accept the whole word, which must have no blank in front,
// and whose number must not be NaN, overflow or underflow.
func parseScore(word string) (score float64, ok bool) {
	if word == "" || isBlank(word[0]) {
		return 0, false
	}
	f, n, outOfRange := strtod(word)
	return f, n == len(word) && !outOfRange && !math.IsNaN(f)
}

func isBlank(b byte) bool { return b == ' ' || '\t' <= b && b <= '\r' }

// strtod parses the number at the start of s as C's strtod does. n is the length of the number in bytes, or 0 if there
// is none. outOfRange reports an overflow or underflow.
func strtod(s string) (f float64, n int, outOfRange bool) {
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
		f, outOfRange = toFloat(number)
	}
	if sign == "-" {
		f = -f
	}
	return f, at + n, outOfRange
}

// namedNumber parses inf, infinity or nan at the start of s.
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

// numberIn returns the decimal or hexadecimal number at the start of s in the syntax of [strconv.ParseFloat], and its
// length in s.
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

// digitsIn returns the end of the digits at index at, which may have a point among them. It returns 0 if there is no
// digit.
func digitsIn(s string, at int, digits string) (end int) {
	hasPoint, hasDigit := false, false
	for end = at; end < len(s); end++ {
		isDigit := strings.IndexByte(digits, s[end]) >= 0
		if !isDigit && (s[end] != '.' || hasPoint) {
			break
		}
		hasDigit, hasPoint = hasDigit || isDigit, hasPoint || !isDigit
	}
	if !hasDigit {
		return 0
	}
	return end
}

// exponentIn returns the end of the exponent at index end, or end if there is none.
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

// toFloat returns the double nearest to a number. outOfRange reports an overflow or underflow.
func toFloat(number string) (f float64, outOfRange bool) {
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

// parseBound parses a bound of a range of scores. Unlike parseScore, it accepts blanks in front and numbers out of
// range, and an empty word is 0, as in Redis.
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

// nameRange is a range of names, for members that have one score.
type nameRange struct{ low, high nameBound }

// nameBound is a bound of a range of names.
type nameBound struct {
	name   string
	open   bool
	beyond int // -1 if the bound is below all names, 1 if it is above them
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

// compare returns -1, 0 or 1 if a member is less than, equal to or greater than the bound.
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
