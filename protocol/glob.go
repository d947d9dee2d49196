package protocol

import "math"

// Match reports whether s matches the glob pattern, as in Redis: * is any run of bytes, ? any byte, [a-c] and [^a-c] a
// byte in or outside of a class, and \ takes the next byte literally. nocase ignores the case of ASCII letters.
//
// It has Redis's oddities, since clients can see them: an unclosed class ends with the pattern, a range compares signed
// bytes, an escape in a class always respects the case, and the empty string matches only the empty pattern. As in
// Redis, commands on keys handle * before they match.
//
// The time is at most proportional to len(pattern) times len(s): only the last star is tried again. The last star can
// take any bytes that an earlier one could give up.
func Match(pattern, s string, nocase bool) bool {
	steps := int64(math.MaxInt64)
	return MatchSteps(pattern, s, nocase, &steps)
}

// MatchSteps is [Match] with a budget, for many strings: each byte of the pattern that it reads subtracts a step from
// *steps. Without steps left it returns false and leaves *steps negative.
func MatchSteps(pattern, s string, nocase bool, steps *int64) bool {
	if s == "" {
		return pattern == ""
	}
	p, i := 0, 0
	star, resume := -1, 0 // the last star, and the position in s at which its rest was last tried
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, i
			p++
			continue
		}
		if p < len(pattern) {
			next, ok := matchByte(pattern, p, s[i], nocase)
			if *steps -= int64(next - p); *steps < 0 {
				return false
			}
			if ok {
				p = next
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, i = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchByte matches c against the element of the pattern at p, which is no star, and returns the position after it.
func matchByte(pattern string, p int, c byte, nocase bool) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '[':
		return matchClass(pattern, p+1, c, nocase)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return p + 1, sameByte(pattern[p], c, nocase)
}

// matchClass matches c against the class whose inside begins at p.
func matchClass(pattern string, p int, c byte, nocase bool) (next int, ok bool) {
	inverted := p < len(pattern) && pattern[p] == '^'
	if inverted {
		p++
	}
	in := false
	for p < len(pattern) && pattern[p] != ']' {
		rest := pattern[p:]
		switch {
		case rest[0] == '\\' && len(rest) >= 2:
			in = in || rest[1] == c
			p += 2
		case len(rest) >= 3 && rest[1] == '-':
			in = in || inRange(rest[0], rest[2], c, nocase)
			p += 3
		default:
			in = in || sameByte(rest[0], c, nocase)
			p++
		}
	}
	return min(p+1, len(pattern)), in != inverted
}

// inRange orders the ends of the range before it folds the case, as Redis does.
func inRange(from, to, c byte, nocase bool) bool {
	if int8(from) > int8(to) {
		from, to = to, from
	}
	if nocase {
		from, to, c = lower(from), lower(to), lower(c)
	}
	return int8(from) <= int8(c) && int8(c) <= int8(to)
}

func sameByte(a, b byte, nocase bool) bool { return a == b || nocase && lower(a) == lower(b) }

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
