package lua

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// libraryGenerators write expressions that call the libraries with random
// arguments.
var libraryGenerators = map[string]func(r *rand.Rand) string{
	"pattern": func(r *rand.Rand) string {
		subject, pattern := luaQuote(pick(r, 12, "a", "b", "ab", "1", " ", ".", "(", ")", "x", "\x00", "\xff", "A", "\n")),
			luaQuote(randomPattern(r))
		switch r.IntN(5) {
		case 0:
			return fmt.Sprintf("string.find(%s, %s)", subject, pattern)
		case 1:
			return fmt.Sprintf("string.match(%s, %s, %d)", subject, pattern, r.IntN(8)-3)
		case 2:
			return fmt.Sprintf("string.gsub(%s, %s, %s)", subject, pattern,
				luaQuote(pick(r, 4, "%0", "%1", "%2", "x", "%%", "")))
		case 3:
			return fmt.Sprintf("string.gsub(%s, %s, function(a, b) return a == 'a' and b or a end, %d)", subject, pattern,
				r.IntN(4))
		default:
			return fmt.Sprintf("(function() local t = {} for a, b in string.gmatch(%s, %s) do t[#t+1] = tostring(a) .. "+
				"tostring(b) end return table.concat(t, '|') end)()", subject, pattern)
		}
	},
	"format": func(r *rand.Rand) string {
		spec := "%" + pick(r, 3, "-", "+", " ", "#", "0")
		if r.IntN(2) == 0 {
			spec += strconv.Itoa(r.IntN(30))
		}
		if r.IntN(2) == 0 {
			spec += "." + pick(r, 1, "0", "1", "3", "10", "20")
		}
		return fmt.Sprintf("string.format(%s, %s)", luaQuote("<"+spec+pick(r, 1, "d", "i", "u", "x", "X", "o", "e", "E", "f",
			"g", "G", "c", "s", "q")+">"), randomNumber(r))
	},
	"number": func(r *rand.Rand) string {
		switch n := randomNumber(r); r.IntN(4) {
		case 0:
			return "tostring(" + n + ")"
		case 1:
			return "tonumber(" + luaQuote(pick(r, 6, "1", "0", "9", ".", "e", "E", "+", "-", "0x", "f", " ", "p", "inf",
				"nan")) + ")"
		case 2:
			return fmt.Sprintf("tonumber(%s, %d)", luaQuote(pick(r, 5, "1", "0", "z", "F", "-", " ", "7", "0x")), r.IntN(40))
		default:
			return fmt.Sprintf("(%s) %s (%s)", n, pick(r, 1, "+", "-", "*", "/", "%"), randomNumber(r))
		}
	},
	"string": func(r *rand.Rand) string {
		s := luaQuote(pick(r, 8, "a", "B", "\x00", "\xe9", "1"))
		f := pick(r, 1, "sub(%s, %d, %d)", "byte(%s, %d, %d)", "rep(%s, %d, %d)", "find(%s, 'a', %d, %d)", "upper(%s)",
			"lower(%s)", "reverse(%s)", "len(%s)")
		if strings.Count(f, "%d") == 2 {
			return fmt.Sprintf("string."+f, s, r.IntN(12)-5, r.IntN(12)-5)
		}
		return fmt.Sprintf("string."+f, s)
	},
	"bit": func(r *rand.Rand) string {
		f := pick(r, 1, "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "tobit", "tohex", "bnot", "bswap")
		return fmt.Sprintf("bit.%s(%s, %s)", f, bitOperand(r), bitOperand(r))
	},
	"pack": func(r *rand.Rand) string {
		format := luaQuote(pick(r, 5, "b", "B", "h", "H", "i", "I3", "l", "L", "<", ">", "!", "!4", "f", "d", "x", " ", "i7"))
		n := randomNumber(r)
		return fmt.Sprintf("(struct.pack(%s, %s, 1, -1, 300, 2.5)):gsub('.', function(c) return c:byte() .. ',' end)",
			format, n)
	},
	"unpack": func(r *rand.Rand) string {
		return fmt.Sprintf("struct.unpack(%s, %s, %d)", luaQuote(pick(r, 4, "b", "B", "h", "H", "i", "I3", "l", "<", ">",
			"!", "s", "c2", "c0", "x", "d")),
			luaQuote(pick(r, 24, "\x00", "\x01", "\xff", "\x80", "a")), r.IntN(4)+1)
	},
	"msgpack": func(r *rand.Rand) string {
		if r.IntN(2) == 0 {
			return fmt.Sprintf("(cmsgpack.pack(%s, %s)):gsub('.', function(c) return c:byte() .. ',' end)", randomNumber(r),
				randomTable(r, 3))
		}
		return fmt.Sprintf("show(cmsgpack.unpack(%s))", luaQuote(pick(r, 10, "\x01", "\x92", "\x81", "\xa1", "a", "\xc0",
			"\xc3", "\xd0", "\xcd", "\xca", "\xdc", "\x00", "\xff", "\xdf")))
	},
	"json": func(r *rand.Rand) string {
		if r.IntN(2) == 0 {
			return fmt.Sprintf("cjson.encode(%s)", randomTable(r, 3))
		}
		return fmt.Sprintf("show(cjson.decode(%s))", luaQuote(pick(r, 12, "[", "]", "{", "}", ",", ":", "1", "\"a\"",
			"\"\\n\"", "null", "true", "-2e3", " ", "\"k\":", "0x1", "nan")))
	},
	"table":  randomTableScript,
	"sort":   randomSort,
	"concat": func(r *rand.Rand) string { return fmt.Sprintf("show(%s)", randomTable(r, 3)) },
}

// pick joins up to n random choices; for 1, exactly one.
func pick(r *rand.Rand, n int, choices ...string) string {
	if n == 1 {
		return choices[r.IntN(len(choices))]
	}
	var out strings.Builder
	for range r.IntN(n + 1) {
		out.WriteString(choices[r.IntN(len(choices))])
	}
	return out.String()
}

func luaQuote(s string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&out, `\%03d`, c)
	}
	return "'" + out.String() + "'"
}

func randomPattern(r *rand.Rand) string {
	var out strings.Builder
	if r.IntN(5) == 0 {
		out.WriteString("^")
	}
	for range r.IntN(6) {
		out.WriteString(pick(r, 1, "a", "b", ".", "%a", "%d", "%s", "%w", "%W", "[ab]", "[^a]", "[%d%s]", "[a-z]", "(", ")",
			"()", "%1", "%b()", "%f[%w]", "x", "%.", "%z", "[", "%", "]"))
		out.WriteString(pick(r, 1, "", "", "", "*", "+", "-", "?"))
	}
	if r.IntN(5) == 0 {
		out.WriteString("$")
	}
	return out.String()
}

func randomNumber(r *rand.Rand) string {
	switch r.IntN(7) {
	case 0:
		return strconv.Itoa(r.IntN(2000) - 1000)
	case 1:
		return numeral(r, 20)
	case 2:
		return strconv.FormatFloat(math.Float64frombits(r.Uint64()&^(1<<62)), 'g', -1, 64)
	case 3:
		return "2^" + strconv.Itoa(r.IntN(70))
	case 4:
		return "-2^" + strconv.Itoa(r.IntN(70))
	case 5:
		return strconv.FormatFloat(float64(r.IntN(1000))/8, 'f', -1, 64)
	default:
		return pick(r, 1, "0", "-0", "1/0", "-1/0", "0/0", "0.1", "1e15", "123456789012345678")
	}
}

// bitOperand is a number for which the BitOp library defines a result.
func bitOperand(r *rand.Rand) string {
	return pick(r, 1, strconv.FormatInt(r.Int64N(1<<32), 10), strconv.FormatInt(-r.Int64N(1<<31), 10),
		strconv.FormatInt(r.Int64N(1<<40), 10), strconv.Itoa(r.IntN(40)), "1.5", "-2.5")
}

func randomTable(r *rand.Rand, depth int) string {
	var out strings.Builder
	out.WriteString("{")
	for range r.IntN(6) {
		v := pick(r, 1, "1", "'x'", "true", "2.5", "cjson.null", "'a/\\0\"'", "1e20")
		if depth > 0 && r.IntN(3) == 0 {
			v = randomTable(r, depth-1)
		}
		out.WriteString(pick(r, 1, "", "", "k = ", "[3] = ", "['z z'] = ", "[1] = ", "[9] = ", "[-1] = ", "n = ") + v + ", ")
	}
	return out.String() + "}"
}

// randomTableScript fills and empties a table, and shows its length and order.
func randomTableScript(r *rand.Rand) string {
	var out strings.Builder
	out.WriteString("(function() local t = {" + strings.Repeat("1, ", r.IntN(9)) + "} ")
	for range r.IntN(40) {
		key := pick(r, 1, strconv.Itoa(r.IntN(20)), strconv.Itoa(r.IntN(6)), "'k"+strconv.Itoa(r.IntN(12))+"'", "#t",
			"#t + 1", "2^"+strconv.Itoa(r.IntN(40)), strconv.Itoa(r.IntN(10))+".5", "true", "false",
			luaQuote(strings.Repeat("x", r.IntN(80))))
		switch r.IntN(9) {
		case 0, 1:
			out.WriteString("t[" + key + "] = nil ")
		case 2:
			out.WriteString("pcall(table.insert, t, " + strconv.Itoa(r.IntN(8)) + ", 'i') ")
		case 3:
			out.WriteString("table.remove(t, " + strconv.Itoa(r.IntN(8)) + ") ")
		default:
			out.WriteString("t[" + key + "] = " + strconv.Itoa(r.IntN(100)) + " ")
		}
	}
	return out.String() + "return #t .. ' ' .. show(t) end)()"
}

func randomSort(r *rand.Rand) string {
	var out strings.Builder
	out.WriteString("(function() local t = {")
	for range r.IntN(30) {
		out.WriteString(strconv.Itoa(r.IntN(15)) + ", ")
	}
	less := pick(r, 1, "", ", function(a, b) return a > b end", ", function(a, b) return a % 5 < b % 5 end",
		", function(a, b) return a <= b end", ", function(a, b) return (a * 7) % 3 == 1 end")
	return out.String() + "} table.sort(t" + less + ") return table.concat(t, ',') end)()"
}

// libraryScript calls a generator's expressions, protected, and returns all results as text.
func libraryScript(kind string, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 7))
	var out strings.Builder
	out.WriteString(`local function show(v) if type(v) ~= 'table' then return tostring(v) end
local s = '{' for k, x in pairs(v) do s = s .. (type(k) == 'table' and 'table' or tostring(k)) .. '=' .. show(x) .. ' ' end return s .. '}' end
local out = {} local function p(...) for i = 1, select('#', ...) do out[#out+1] = show((select(i, ...))) end out[#out+1] = ';;' end
`)
	for range 20 {
		out.WriteString("p(pcall(function() return " + libraryGenerators[kind](r) + " end))\n")
	}
	return out.String() + "return table.concat(out, ' ')"
}

// TestDifferentialLibraries compares calls of the libraries with random arguments.
func TestDifferentialLibraries(t *testing.T) {
	redis := startRedis(t)
	for _, kind := range sortedKeys(libraryGenerators) {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(libraryScripts) {
				script := libraryScript(kind, seed)
				want, got := redis.eval(script), runSnippet(script)
				if got != want {
					reportDifference(t, script, got, want)
					return
				}
			}
		})
	}
}

const libraryScripts = 100

// reportDifference shows the call whose result differs.
func reportDifference(t *testing.T, script, got, want string) {
	gots, wants := strings.Split(got, ";;"), strings.Split(want, ";;")
	calls := strings.Split(script, "\n")[3:]
	for i := range min(len(gots), len(wants), len(calls)) {
		_, g, _ := strings.Cut(gots[i], "|") // behind the length, in the first
		_, w, _ := strings.Cut(wants[i], "|")
		if i > 0 && gots[i] != wants[i] || i == 0 && g != w {
			t.Errorf("%s\n got %s\nwant %s", calls[i], gots[i], wants[i])
			return
		}
	}
	t.Errorf("%s\n got %s\nwant %s", script, got, want)
}
