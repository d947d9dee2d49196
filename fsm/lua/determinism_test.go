package lua

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// sameEverywhere is the hash of what [TestSameBitsEverywhere] computes, by the charges of entries
// before version 3. It must never change. sameSinceVersion3 is the hash by today's charges, and may change only
// with a change that replicas of different releases would disagree about.
const (
	sameEverywhere    = "eb329688e14cba5b8549b3195e550e890029aafc3dafe534834ff26511e9a596"
	sameSinceVersion3 = "093e8e6e0d9982fdcf6c20d8b25d61f32d51d01647cf1f9756a67113299848e6"
)

// mathScript shows all bits of elementary functions of random numbers.
func mathScript(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 3))
	var out strings.Builder
	out.WriteString("local o = {} local function p(x) o[#o+1] = string.format('%.17g', x) end\n")
	for _, f := range []string{
		"exp", "log", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
		"sqrt", "deg", "rad",
	} {
		fmt.Fprintf(&out, "p(math.%s(%s)) p(math.%s(0.%d)) ", f, numeral(r, 15), f, r.Int64N(1e15))
	}
	for range 10 {
		x, y := numeral(r, 3), numeral(r, 1)
		fmt.Fprintf(&out, "p(math.abs(%s)^%s) p(%s %% %s) p(math.atan2(%s, %s)) p(%s * %s + %s) ", x, y, x, y, x, y, x, y, x)
	}
	return out.String() + "return table.concat(o, ' ')"
}

// numeral is a number as text, made without floating point.
func numeral(r *rand.Rand, exponents int) string {
	sign := pick(r, 1, "", "-")
	return fmt.Sprintf("%s%de%d", sign, r.Int64N(1e15), r.IntN(2*exponents)-exponents-15)
}

// TestSameBitsEverywhere runs thousands of scripts, and compares the hash of all replies, steps and
// bytes with the hash from other machines. Run the test with GOAMD64=v3 too, where the compiler
// fuses multiplications and additions, as on ARM.
func TestSameBitsEverywhere(t *testing.T) {
	protocoltest.SkipShort(t, "builds for other processors")
	sum, sumToday := sha256.New(), sha256.New()
	r := NewRunner()
	runs := 0
	run := func(script string) {
		p, err := Compile(script, DefaultLimits())
		if err != nil {
			fmt.Fprintln(sum, err)
			return
		}
		v, err := r.Run(p, &Env{Keys: snippetKeys, Args: snippetArgs, Host: newFakeHost(), SHA: "sha", Legacy: true})
		fmt.Fprintf(sum, "%q %v %v\n", v.AppendTo(nil, 3), err, r.Used())
		if runs++; runs%4 != 0 {
			return
		}
		v, err = r.Run(p, &Env{Keys: snippetKeys, Args: snippetArgs, Host: newFakeHost(), SHA: "sha"})
		fmt.Fprintf(sumToday, "%q %v %v\n", v.AppendTo(nil, 3), err, r.Used())
	}
	for seed := range uint64(1000) {
		run(generateProgram(seed))
		run(mathScript(seed))
	}
	for _, kind := range sortedKeys(libraryGenerators) {
		for seed := range uint64(30) {
			run(libraryScript(kind, seed))
		}
	}
	for _, s := range hostileScripts {
		run(s.source)
	}
	run(`local o = {} local seen = {} local function walk(t) if seen[t] then return end seen[t] = true
for k, v in pairs(t) do o[#o+1] = tostring(k) .. '=' .. (tostring(k):find('VERSION') and '' or tostring(v)) if type(v) == 'table' then walk(v) end end end
walk(_G) walk(getmetatable('')) walk(getmetatable(_G)) return table.concat(o, ' ')`)
	require.Equal(t, sameEverywhere, hex.EncodeToString(sum.Sum(nil)))
	require.Equal(t, sameSinceVersion3, hex.EncodeToString(sumToday.Sum(nil)))
}
