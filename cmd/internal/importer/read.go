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

// Bounds of what is in memory at a time.
const (
	groupKeys  = 100     // read in one exchange
	groupBytes = 4 << 20 // about
	// A collection with more elements or bytes is large: it is read in parts of these sizes.
	partElements = 512
	partBytes    = 1 << 20
	// maxString is the longest string that is copied: Holdfast takes no longer word by default.
	maxString = 8 << 20
	// longestNumber is the length of -2^63.
	longestNumber = 20
	// firstCursor begins a scan; as the next cursor it ends the scan.
	firstCursor = "0"
)

// counts are the words that count what a key of a kind has, and reads those that read all of it.
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

// shape is what a key is before it is read.
type shape struct {
	key, kind string
	elements  int64 // of a string: bytes
	bytes     int64
}

func (s *shape) large() bool {
	return s.kind != "string" && (s.elements > partElements || s.bytes > partBytes)
}

// item is a key as it was at one instant.
type item struct {
	shape
	words []string // of the value, as the command that writes it has them behind the key
	// leftMillis is the time to live, or noEnd, at an instant before answered.
	leftMillis int64
	answered   time.Time
}

// What PTTL replies in place of a time to live. Redis before 6 lets a key end within a transaction, and before 6.0.9
// under WATCH.
const (
	noEnd = -1
	ended = -2
)

// life is the time to live in milliseconds that lets the copy end no sooner than the key at the source, if it is
// written from now on; 0: no end; negative: it is over. PTTL may be a millisecond short. It counts in milliseconds,
// since a time.Duration holds 292 years at most.
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

// scan is a page of keys, and the cursor of the next.
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

// isPage reports whether a reply to SCAN and its like is a page, and the scan goes on from cursor or ends.
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

// look asks what keys are. The kind of a key that is gone is "none".
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
		s.elements, vs = vs[0].Num, vs[1:] // of an error: 0; to read the key tells more
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

// readAll reads keys, each at one instant. An item of a key that is gone has no words; one whose kind has changed
// meanwhile has another kind. refused is why a key cannot be read, by its number.
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
				break // the first says why
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

// valueWords are the words by which a value is written. None: the key is gone.
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

// errFieldLives is why a hash is not copied whose fields end by themselves.
const errFieldLives = "a hash with fields that have a time to live: Holdfast has none of these"

// fieldLives refuses hashes that have fields with lives of their own.
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

// fieldLifeWords asks for the lives of the fields in the words of a hash.
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
