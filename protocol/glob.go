package protocol

import "math"

// Match reports whether s matches the glob pattern, with the meaning of Redis's patterns: * is any run
// of bytes, ? any byte, [a-c] and [^a-c] a byte in a class or outside, and \ takes the next byte
// literally. nocase ignores the case of ASCII letters.
//
// Redis's own oddities are kept, since clients see them: a class that is not closed ends with the
// pattern, a range compares signed bytes, an escape in a class heeds the case always, and the empty
// string matches the empty pattern alone. Commands on keys treat * before they match, as in Redis.
//
// The time is at most proportional to len(pattern) times len(s): only the last star is tried again. An
// earlier star need not be: bytes that it could give up, the last star can take as well.
func Match(pattern, s string, nocase bool) bool {
	steps := int64(math.MaxInt64)
	return MatchSteps(pattern, s, nocase, &steps)
}

// MatchSteps is [Match] with a budget, for many strings: each byte of the pattern that is looked at takes
// a step off *steps. Without steps left MatchSteps returns false and leaves *steps negative.
func MatchSteps(pattern, s string, nocase bool, steps *int64) bool {
	if s == "" {
		return pattern == ""
	}
	p, i := 0, 0
	star, resume := -1, 0 // the last star, and where in s its rest was tried last
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

// matchByte matches c against the element of the pattern at p, which is no star,
// and returns where the next element begins.
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

// inRange orders the ends of the range before folding the case, as Redis does.
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
