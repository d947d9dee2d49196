package importer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/protocol"
)

// Bounds of the memory for keys.
const (
	groupKeys  = 100     // read in one exchange
	groupBytes = 4 << 20 // about
	// A collection with more elements or bytes is large, and read in parts of these sizes.
	partElements = 512
	partBytes    = 1 << 20
	// maxString bounds a copied string, as Holdfast by default accepts no longer argument.
	maxString = 8 << 20
	// maxNumber is the length of -2^63.
	maxNumber = 20
	// firstCursor is the cursor that begins a scan, and that is returned at its end.
	firstCursor = "0"
)

// counts has, by kind, the command that counts a key's elements, and reads the one that reads them all.
var (
	counts = map[string]string{"string": "STRLEN", "hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD"}
	reads  = map[string][]string{
		"string": {"GET"}, "hash": {"HGETALL"}, "list": {"LRANGE", "0", "-1"}, "set": {"SMEMBERS"}, "zset": {
			"ZRANGE", "0",
			"-1", "WITHSCORES",
		},
	}
	scans = map[string]string{"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}
	adds  = map[string]string{"hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD"}
)

// shape is the kind and size of a key, before it is read.
type shape struct {
	key, kind string
	elements  int64 // or bytes of a string
	bytes     int64
}

func (s *shape) large() bool {
	return s.kind != "string" && (s.elements > partElements || s.bytes > partBytes)
}

// item is a key as it was at one instant.
type item struct {
	shape
	words []string // the value, as the arguments after the key in the command that writes it
	// leftMillis is the time to live at an instant before answered, or noEnd.
	leftMillis int64
	answered   time.Time
}

// PTTL's replies instead of a time to live. In Redis before 6 a key can expire within a transaction, and before 6.0.9
// under WATCH.
const (
	noEnd = -1
	ended = -2
)

// life returns the copy's time to live in milliseconds, if it is written now or later, so that it does not expire
// before the key at the source: 0 for no end, negative if it has expired. PTTL may be a millisecond short. The result
// is no time.Duration, which holds 292 years at most.
func (it *item) life(now time.Time) int64 {
	if it.leftMillis == noEnd {
		return 0
	}
	left := it.leftMillis - now.Sub(it.answered).Milliseconds()
	if left < 0 {
		return -1
	}
	return min(left, math.MaxInt64-1) + 1
}

// scan returns a page of keys, and the cursor of the next one.
func (r *reader) scan(ctx context.Context, cursor, pattern string) (next string, keys []string, err error) {
	words := []string{"SCAN", cursor, "COUNT", "1000"}
	if pattern != "" {
		words = append(words, "MATCH", pattern)
	}
	v, err := r.conn.Do(ctx, words...)
	if err != nil {
		return "", nil, err
	}
	if !isPage(v, cursor) {
		return "", nil, errors.New("the reply to SCAN is none, or its cursor stands still")
	}
	return v.Elems[0].Str, texts(v.Elems[1].Elems), nil
}

// isPage reports whether a reply to SCAN or a similar command is a page, with another cursor or the end of the scan.
func isPage(v protocol.Value, cursor string) bool {
	return len(v.Elems) == 2 && (v.Elems[0].Str != cursor || cursor == firstCursor)
}

func texts(vs []protocol.Value) []string {
	words := make([]string, len(vs))
	for i, v := range vs {
		words[i] = v.Str
	}
	return words
}

// look returns the shapes of keys. The kind of a missing key is "none".
func (r *reader) look(ctx context.Context, keys []string) ([]shape, error) {
	shapes := make([]shape, len(keys))
	var commands [][]string
	for _, key := range keys {
		commands = append(commands, []string{"TYPE", key})
	}
	vs, err := r.conn.Pipeline(ctx, commands...)
	if err != nil {
		return nil, err
	}
	commands = commands[:0]
	var of []*shape
	for i, v := range vs {
		s := &shapes[i]
		if s.key = keys[i]; v.IsError() {
			return nil, fmt.Errorf("TYPE: %s", v.Str)
		}
		if s.kind = v.Str; counts[s.kind] == "" {
			continue
		}
		commands, of = append(commands, []string{counts[s.kind], s.key}), append(of, s)
		if r.sized && s.kind != "string" {
			commands = append(commands, []string{"MEMORY", "USAGE", s.key})
		}
	}
	if vs, err = r.conn.Pipeline(ctx, commands...); err != nil {
		return nil, err
	}
	for _, s := range of {
		s.elements, vs = vs[0].Num, vs[1:] // 0 after an error, which reading the key reports
		s.bytes = s.elements
		if s.kind != "string" {
			s.bytes = s.elements * 64
			if r.sized {
				s.bytes, vs = vs[0].Num, vs[1:]
			}
		}
	}
	return shapes, nil
}

// readAll reads keys, each at one instant. The item of a missing key has no words. If the kind of a key has changed
// since its shape was read, the item has the new kind. refused has the reasons why keys cannot be read, by index.
func (r *reader) readAll(ctx context.Context, shapes []shape) (items []item, refused map[int]string, err error) {
	var commands [][]string
	for _, s := range shapes {
		read := reads[s.kind]
		commands = append(commands, []string{"MULTI"}, append([]string{read[0], s.key}, read[1:]...),
			[]string{"PTTL", s.key}, []string{"EXEC"})
	}
	vs, err := r.conn.Pipeline(ctx, commands...)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	refused = map[int]string{}
	items = make([]item, len(shapes))
	for i, s := range shapes {
		it := &items[i]
		it.shape, it.answered = s, now
		done := vs[4*i+3]
		for _, v := range append(vs[4*i:4*i+4:4*i+4], done.Elems...) {
			if v.IsError() {
				refused[i] = v.Str
				break // the first error suffices
			}
		}
		if refused[i] == "" && len(done.Elems) == 2 && done.Elems[1].Num != ended {
			it.words, it.leftMillis = valueWords(s.kind, done.Elems[0]), done.Elems[1].Num
		}
	}
	if r.fieldTimes {
		err = r.fieldLives(ctx, items, refused)
	}
	return items, refused, err
}

// valueWords returns the arguments that write a value, none if the key is missing.
func valueWords(kind string, v protocol.Value) []string {
	if kind == "string" {
		if v.IsNull() {
			return nil
		}
		return []string{v.Str}
	}
	words := texts(v.Elems)
	if kind == "zset" { // ZADD has the score first
		for i := 0; i+1 < len(words); i += 2 {
			words[i], words[i+1] = words[i+1], words[i]
		}
	}
	return words
}

// errFieldLives is the reason why a hash with expiring fields is not copied.
const errFieldLives = "a hash with fields that have a time to live: Holdfast has none of these"

// fieldLives refuses hashes with expiring fields.
func (r *reader) fieldLives(ctx context.Context, items []item, refused map[int]string) error {
	var commands [][]string
	var of []int
	for i := range items {
		if it := &items[i]; it.kind == "hash" && len(it.words) > 0 {
			commands, of = append(commands, fieldLifeWords(it.key, it.words)), append(of, i)
		}
	}
	vs, err := r.conn.Pipeline(ctx, commands...)
	for i, v := range vs {
		if endsByFields(v) {
			refused[of[i]] = errFieldLives
		}
	}
	return err
}

// fieldLifeWords returns the command for the times to live of a hash's fields.
func fieldLifeWords(key string, pairs []string) []string {
	words := []string{"HPTTL", key, "FIELDS", strconv.Itoa(len(pairs) / 2)}
	for i := 0; i+1 < len(pairs); i += 2 {
		words = append(words, pairs[i])
	}
	return words
}

func endsByFields(v protocol.Value) bool {
	for _, e := range v.Elems {
		if e.Num >= 0 {
			return true
		}
	}
	return v.IsError()
}
