package fsm

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// startRedis starts the server of HOLDFAST_REDIS_SERVER, and connects to it.
func startRedis(t testing.TB) *protocoltest.Redis {
	t.Helper()
	return protocoltest.DialRedis(t, protocoltest.StartRedis(t))
}

// unlikeRedis are commands that cannot be compared: the order of keys, the time, replies with an order, reference
// counts, and commands that a server without cluster mode refuses.
var unlikeRedis = []string{
	"randomkey", "time", "watch", "object|idletime", "object|refcount",
	"cluster|countkeysinslot", "cluster|getkeysinslot", "memory|usage",
}

// TestDifferential compares with a real Redis on random command lines, restricted to its release.
func TestDifferential(t *testing.T) {
	r := startRedis(t)
	for _, resp := range []int{protocol.RESP2, protocol.RESP3} {
		t.Run(fmt.Sprintf("RESP%d", resp), func(t *testing.T) {
			r.T = t
			r.Do("HELLO", strconv.Itoa(resp))
			for seed := range int64(seeds) {
				differential(t, r, seed, resp, func(*protocol.Command) bool { return true })
			}
		})
	}
}

// seeds is the number of command sequences.
const seeds = 30

func differential(t *testing.T, r *protocoltest.Redis, seed int64, resp int, takes func(row *protocol.Command) bool) {
	release := releaseOf(r)
	g := newGenerator(seed, release, unlikeRedis...)
	g.rows = slices.DeleteFunc(g.rows, func(row *protocol.Command) bool {
		return !takes(row) || row.Has(protocol.FlagBlocking) // Redis would wait: see the test of server/frontend
	})
	d := newDriver(t)
	g.wallMillis = time.Now().UnixMilli()
	require.Equal(t, "+OK\r\n", r.Do("SELECT", "0"))
	require.Equal(t, "+OK\r\n", r.Do("FLUSHALL"))
	require.Equal(t, "+OK\r\n", r.Do("SCRIPT", "FLUSH"))
	var history []string
	for range 500 {
		if g.rng.Intn(20) == 0 {
			differentialExec(t, r, g, d, resp)
			continue
		}
		words := g.next()
		if misread(words) || otherNumbers(release, words) {
			continue
		}
		if g.rng.Intn(100) == 0 {
			d.db = g.rng.Intn(3)
			r.Do("SELECT", strconv.Itoa(d.db))
		}
		words[0] = strings.ToLower(words[0])
		words = tame(words)
		if strings.EqualFold(words[0], "eval_ro") && len(words) > 1 {
			// In Redis, unlike here, EVAL_RO adds the script to the cache.
			r.Do("script", "load", words[1])
			d.do("script", "load", words[1])
		}
		plain := words
		words = g.scripted(words)
		history = append(history, fmt.Sprintf("%d %s", d.db, quote(words)))
		want := r.Do(words...)
		if words[0] == "dbsize" && len(words) == 1 {
			// Redis counts ended keys that no command has met since.
			head, _, _ := strings.Cut(r.Do("keys", "*"), "\r\n")
			want = ":" + head[1:] + "\r\n"
		}
		d.nowMillis = max(d.nowMillis, time.Now().UnixMilli())
		d.wallOffset = 0
		if row, _ := protocol.Find(words); row == nil || !row.CheckArity(len(words)) {
			continue // package server implements these
		}
		got := string(d.do(words...).AppendTo(nil, resp))
		same := alike(plain, want, got)
		if !same && !excused(release, plain, want, got) {
			from := max(0, len(history)-15)
			t.Fatalf("seed %d: %s\nredis:    %q\nholdfast: %q\nhistory:\n%s", seed, quote(words), want, got,
				strings.Join(history[from:], "\n"))
		}
		if plain[0] == "spop" && len(plain) > 1 {
			// The two sets have different members now.
			r.Do("del", plain[1])
			d.do("del", plain[1])
		}
		if !same && plain[0] == "sort" {
			// Only one of the two may have stored the elements.
			forget(r, d, plain)
		}
	}
}

// forget deletes the keys in SORT's words, including STORE's.
func forget(r *protocoltest.Redis, d *driver, words []string) {
	line := append([]string{"del"}, words[1:]...)
	r.Do(line...)
	d.do(line...)
}

// releaseOf returns the server's release.
func releaseOf(r *protocoltest.Redis) string {
	_, rest, _ := strings.Cut(r.Do("INFO", "server"), "redis_version:")
	release, _, ok := strings.Cut(rest, "\r\n")
	require.True(r.T, ok)
	return release
}

// misread reports whether Redis (8.6.3, tried) deviates from its documentation: a SET with a condition on the value
// followed by NX or XX, which it takes for two conditions, and one with GET and an invalid digest, which it replies to
// twice.
func misread(words []string) bool {
	if strings.EqualFold(words[0], "zrank") || strings.EqualFold(words[0], "zrevrank") {
		return len(words) > 3 // since 7.2 there is WITHSCORE
	}
	switch strings.ToLower(words[0]) {
	case "lpos", "lrem":
		return slices.Contains(words, "-9223372036854775808") // 7.0 or 8 accepts it
	case "lset":
		return len(words) > 2 && cutShort(words[2])
	}
	if !strings.EqualFold(words[0], "set") {
		return false
	}
	var condition, behind, get bool
	for _, word := range words[min(3, len(words)):] {
		switch strings.ToUpper(word) {
		case "IFEQ", "IFNE", "IFDEQ", "IFDNE":
			condition = true
		case "NX", "XX":
			behind = behind || condition
		case "GET":
			get = true
		}
	}
	return behind || condition && get
}

// cutShort reports whether an index has more than 32 bits. For short lists, Redis since 7.2 uses the low 32 bits.
func cutShort(index string) bool {
	n, ok := protocol.ParseInt(index)
	return ok && n != int64(int32(n))
}

// differentialExec compares a transaction with some watched keys, sometimes commands in between, and queued commands.
func differentialExec(t *testing.T, r *protocoltest.Redis, g *generator, d *driver, resp int) {
	d.nowMillis, d.wallOffset = max(d.nowMillis, time.Now().UnixMilli()), 0
	var history []string
	keys := []string{pick(g.rng, generatedKeys), pick(g.rng, generatedKeys)}
	r.Do(append([]string{"watch"}, keys...)...)
	watches := d.watch(keys...)
	for range g.rng.Intn(3) {
		words := g.queueable()
		history = append(history, quote(words))
		r.Do(words...)
		d.do(words...)
	}
	r.Do("multi")
	var queued [][]string
	for range g.rng.Intn(4) {
		words := g.queueable()
		history = append(history, "queued "+quote(words))
		require.Equal(t, "+QUEUED\r\n", r.Do(words...), quote(words))
		queued = append(queued, words)
	}
	want := r.Do("exec")
	got := string(d.exec(watches, queued...).AppendTo(nil, resp))
	require.Equal(t, modern(want), modern(got), "watched %q\n%s", keys, strings.Join(history, "\n"))
}

// queueable returns a command whose reply depends neither on the time nor on the order of keys.
func (g *generator) queueable() []string {
	for {
		words := g.next()
		row, _ := protocol.Find(words)
		if row == nil || !row.CheckArity(len(words)) || misread(words) || otherNumbers(g.release, words) {
			continue
		}
		switch row.Name {
		case "eval_ro", "dbsize", "swapdb", "flushall", "flushdb", "object|encoding":
			continue
		}
		if slices.Contains(slices.Concat(unordered, drawing, timely, newer), row.Name) {
			continue
		}
		return words
	}
}

// alike compares replies: those about time may differ slightly, and lists of keys in their order.
func alike(words []string, want, got string) bool {
	if want == got || modern(want) == modern(got) {
		return true
	}
	switch {
	case slices.Contains(unordered, words[0]):
		return slices.Equal(sortedWords(want), sortedWords(got))
	case slices.Contains(drawing, words[0]):
		return shape(want) == shape(got)
	}
	switch words[0] {
	case "object":
		// Redis since 8.2 stores a key together with its value, so encodings of strings depend on the lengths of both.
		return smallSet(want, got) || shortString(want, got)
	case "pttl", "pexpiretime":
		return integersWithin(want, got, 500)
	case "ttl", "expiretime":
		return integersWithin(want, got, 1)
	}
	return false
}

// modern converts a reply of Redis 7.0 to that of 7.2. In 7.2 a short list is a listpack, and a number has the fewest
// digits that distinguish it from all others.
func modern(reply string) string {
	reply = strings.ReplaceAll(reply, "$9\r\nquicklist\r\n", "$8\r\nlistpack\r\n")
	return numbers.ReplaceAllStringFunc(reply, func(number string) string {
		digits := strings.TrimSuffix(number, "\r\n")
		digits = digits[strings.LastIndexAny(digits, ",\n")+1:]
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return number
		}
		return "," + strconv.FormatFloat(f, 'g', -1, 64) + "\r\n"
	})
}

var numbers = regexp.MustCompile(`(\$\d+\r\n|,)-?[0-9.]+(e[-+]?[0-9]+)?\r\n`)

func sortedWords(reply string) []string {
	words := strings.Split(reply, "\r\n")
	slices.Sort(words)
	return words
}

func integersWithin(a, b string, distance float64) bool {
	x, err1 := strconv.ParseInt(strings.TrimSpace(a[1:]), 10, 64)
	y, err2 := strconv.ParseInt(strings.TrimSpace(b[1:]), 10, 64)
	return err1 == nil && err2 == nil && a[0] == ':' && b[0] == ':' && x >= 0 && y >= 0 &&
		math.Abs(float64(x-y)) <= distance
}

// TestDifferentialFloats adds numbers of all notations and magnitudes.
func TestDifferentialFloats(t *testing.T) {
	r := startRedis(t)
	d := newDriver(t)
	g := newGenerator(1, "")
	for range 3000 {
		value, by := g.float(), g.float()
		r.Do("set", "f", value)
		d.do("set", "f", value)
		want := r.Do("incrbyfloat", "f", by)
		require.Equal(t, want, wire(d.do("incrbyfloat", "f", by)), "%q + %q", value, by)
	}
}

// float returns a number in one of strtold's notations, or nearly one.
func (g *generator) float() string {
	digits := func(n int, alphabet string) string {
		b := make([]byte, g.rng.Intn(n))
		for i := range b {
			b[i] = alphabet[g.rng.Intn(len(alphabet))]
		}
		return string(b)
	}
	sign := pick(g.rng, []string{"", "", "", "-", "+", "--", " "})
	switch g.rng.Intn(8) {
	case 0:
		return sign + "0x" + digits(20, "0123456789abcdefABCDEF.") + pick(g.rng, []string{"", "p", "p3", "p-20", "P+7"})
	case 1:
		return sign + pick(g.rng, []string{
			"inf", "INFINITY", "nan", "infinit", "", ".", "e5", "1e", "1e+", "0x", "0x.",
			"1_0", "0b1", "0o7", "1e5x",
		})
	case 2:
		return sign + digits(20, "0123456789.") + "e" + strconv.Itoa(g.rng.Intn(10000)-5000)
	case 3:
		return sign + digits(30, "0123456789") + "e" + strconv.Itoa(g.rng.Intn(60)-40)
	case 4:
		return sign + "0." + strings.Repeat("0", g.rng.Intn(40)) + digits(10, "0123456789")
	}
	return sign + digits(25, "0123456789") + "." + digits(25, "0123456789")
}

// TestDifferentialEvents compares the keyspace events of lists and sorted sets.
func TestDifferentialEvents(t *testing.T) {
	socket := protocoltest.StartRedis(t)
	r, subscriber := protocoltest.DialRedis(t, socket), protocoltest.DialRedis(t, socket)
	require.Equal(t, "+OK\r\n", r.Do("config", "set", "notify-keyspace-events", "EA"))
	subscriber.Do("psubscribe", "*")
	release := releaseOf(r)
	seen := make(map[string]bool)
	for seed := range int64(8) {
		g := newScoredGenerator(seed)
		d := newDriver(t)
		d.m.Listen(event.InMessages)
		d.m.st.Notifies = event.AllClasses &^ (event.ClassKeyspace | event.ClassMiss | event.ClassNew)
		r.Do("flushall")
		fillScored(r, d)
		theirEvents(r, subscriber)
		for range 1000 {
			words := g.next()
			if unclear(d, words) || otherNumbers(release, words) {
				continue
			}
			r.Do(words...)
			ours := told(d.record(request(nil, 0, words...)).events)
			theirs := theirEvents(r, subscriber)
			require.Equal(t, theirs, ours, "seed %d: %s", seed, quote(words))
			for event := range strings.Lines(theirs) {
				name, _, _ := strings.Cut(event, ": ")
				seen[name] = true
			}
		}
	}
	require.Len(t, seen, 27)
}

// theirEvents returns Redis's events since the last call, in the form of told. Redis also reports misses and new keys.
func theirEvents(r, subscriber *protocoltest.Redis) string {
	r.Do("publish", "end", "")
	var b strings.Builder
	for {
		parts := strings.Split(subscriber.Reply(), "\r\n")
		channel, message := parts[6], parts[8]
		if channel == "end" {
			return b.String()
		}
		if !slices.Contains([]string{"__keyevent@0__:keymiss", "__keyevent@0__:new"}, channel) {
			b.WriteString(channel + ": " + message + "\n")
		}
	}
}
