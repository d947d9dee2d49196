package importer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
)

// The temporary name of a large copy is the key's name, tempSuffix and random letters, so that a user with rights to a
// prefix may write it. It expires tempLife after the last part was written.
const (
	tempSuffix = ":holdfast-import:"
	tempLife   = "600000"
)

// A large copy is restarted if the key has changed while it was read, or if a part was lost.
const (
	maxTries  = 5  // after changes
	maxLosses = 20 // after lost parts
)

// errChanged is the error of a key that has changed while it was read, or whose copy has an unexpected size.
var errChanged = errors.New("it could not be copied at one instant")

// errLost is the error of a part with an unknown outcome.
var errLost = errors.New("a part may not have arrived")

// copyLarge copies a key in parts under a temporary name, and renames the complete copy, unless the key exists.
func (w *work) copyLarge(ctx context.Context, r *reader, s shape) (reply int64, err error) {
	for changes, losses := 0, 0; changes < maxTries; {
		reply, err = w.tryLarge(ctx, r, s)
		switch lost := errors.Is(err, errLost); {
		case lost && losses < maxLosses:
			losses++
		case errors.Is(err, errChanged):
			changes++
		default:
			return reply, err
		}
	}
	return 0, skip(err.Error())
}

// tryLarge copies a key, and fails if the key changes meanwhile.
func (w *work) tryLarge(ctx context.Context, r *reader, s shape) (reply int64, err error) {
	there, err := w.target.do(ctx, "TYPE", s.key)
	switch {
	case err != nil:
		return 0, err
	case there.IsError():
		return 0, skip(there.Str)
	case there.Str != "none" && there.Str != s.kind:
		return other, nil
	case there.Str == "none" && w.DryRun:
		return written, nil
	}
	vs, err := r.conn.Pipeline(ctx, []string{"WATCH", s.key}, []string{counts[s.kind], s.key})
	if err != nil {
		return 0, sourceError{err}
	}
	if vs[1].IsError() {
		return 0, skip(vs[1].Str)
	}
	s.elements = vs[1].Num
	l := &large{work: w, r: r, shape: s, size: s.part(), compares: there.Str != "none"}
	if !l.compares {
		l.temp = s.key + tempSuffix + rand.Text()
	}
	alike, err := l.parts(ctx)
	if err != nil || !alike {
		_, _ = r.conn.Do(ctx, "UNWATCH")
		l.drop(ctx)
		return other, err
	}
	it, err := l.unchanged(ctx)
	if err != nil {
		l.drop(ctx)
		return 0, err
	}
	if l.compares {
		return l.compared(ctx, it)
	}
	return l.publish(ctx, it)
}

// part returns the number of elements of a part.
func (s *shape) part() int64 {
	return max(1, min(partElements, partBytes/max(1, s.bytes/max(1, s.elements))))
}

// large is the copy of a large key.
type large struct {
	*work
	r        *reader
	shape    shape
	size     int64
	compares bool   // the key exists, and is compared instead of written
	temp     string // the temporary name
}

// parts reads all parts, and writes or compares them. A scan may name elements twice, a bounded number of times.
func (l *large) parts(ctx context.Context) (alike bool, err error) {
	cursor, most := firstCursor, 2*l.wordsOf(l.shape.elements+partElements)
	for offset := int64(0); ; {
		var next string
		var words []string
		if l.shape.kind == "list" {
			next, words, err = l.listPart(ctx, offset)
		} else {
			next, words, err = l.scanPart(ctx, cursor)
		}
		if err == nil && offset+int64(len(words)) > most {
			err = errChanged
		}
		if err != nil {
			return false, err
		}
		for len(words) > 0 { // a page of a scan may be larger than requested
			n := min(len(words), 2*partElements)
			if alike, err = l.part(ctx, words[:n], int(offset)); err != nil || !alike {
				return alike, err
			}
			words, offset = words[n:], offset+int64(n)
		}
		if cursor = next; cursor == firstCursor {
			return true, nil
		}
	}
}

// wordsOf returns the number of words of that many elements.
func (l *large) wordsOf(elements int64) int64 {
	if l.shape.kind == "hash" || l.shape.kind == "zset" {
		return 2 * elements
	}
	return elements
}

func (l *large) listPart(ctx context.Context, offset int64) (next string, words []string, err error) {
	v, err := l.ask(ctx, "LRANGE", l.shape.key, strconv.FormatInt(offset, 10), strconv.FormatInt(offset+l.size-1, 10))
	next = "more"
	if offset+l.size >= l.shape.elements {
		next = firstCursor
	}
	return next, texts(v.Elems), err
}

func (l *large) scanPart(ctx context.Context, cursor string) (next string, words []string, err error) {
	v, err := l.ask(ctx, scans[l.shape.kind], l.shape.key, cursor, "COUNT", strconv.FormatInt(l.size, 10))
	if err != nil {
		return "", nil, err
	}
	if !isPage(v, cursor) {
		return "", nil, errChanged
	}
	words = valueWords(l.shape.kind, v.Elems[1])
	for pairs := words; l.r.fieldTimes && l.shape.kind == "hash" && len(pairs) > 0; {
		n := min(len(pairs), 2*partElements)
		lives, err := l.ask(ctx, fieldLifeWords(l.shape.key, pairs[:n])...)
		switch {
		case err != nil:
			return "", nil, err
		case endsByFields(lives):
			return "", nil, skip(errFieldLives)
		}
		pairs = pairs[n:]
	}
	return v.Elems[0].Str, words, nil
}

// ask sends a command to the source. An error such as WRONGTYPE means that the key has changed.
func (l *large) ask(ctx context.Context, words ...string) (protocol.Value, error) {
	v, err := l.r.conn.Do(ctx, words...)
	switch {
	case v.IsError() && strings.HasPrefix(v.Str, "WRONGTYPE"):
		return v, errChanged
	case err != nil:
		return v, sourceError{err}
	}
	return v, nil
}

// part writes a part, or compares it.
func (l *large) part(ctx context.Context, words []string, offset int) (alike bool, err error) {
	if l.compares {
		c := l.target.call(&item{shape: l.shape, leftMillis: noEnd}, l.shape.kind, modePart, offset, words)
		if err := l.target.run(ctx, c); err != nil {
			return false, err
		}
		if c.reply.IsError() {
			return false, refusal(c.reply)
		}
		return c.reply.Num == same, nil
	}
	commands := []*command{
		fixed("MULTI"), fixed(append([]string{adds[l.shape.kind], l.temp}, words...)...), fixed("PEXPIRE", l.temp, tempLife),
		fixed("EXEC"),
	}
	if err := l.target.once(ctx, commands); err != nil {
		return false, err
	}
	return true, refusedOne(commands)
}

// unchanged returns the key's time to live at an instant, and an error if the key has changed before.
func (l *large) unchanged(ctx context.Context) (*item, error) {
	vs, err := l.r.conn.Pipeline(ctx, []string{"MULTI"}, []string{"PTTL", l.shape.key}, []string{"EXEC"})
	if err != nil {
		return nil, sourceError{err}
	}
	it := &item{shape: l.shape, answered: time.Now()}
	if done := vs[2]; len(done.Elems) == 1 {
		it.leftMillis = done.Elems[0].Num
		return it, nil
	}
	return nil, errChanged
}

// compared ends a comparison. The counts must be equal, too, and the time to live not shorter.
func (l *large) compared(ctx context.Context, it *item) (reply int64, err error) {
	count, err := l.target.do(ctx, counts[l.shape.kind], l.shape.key)
	if err != nil {
		return 0, err
	}
	if count.Num != l.shape.elements {
		return other, nil
	}
	if l.DryRun {
		return same, nil
	}
	c := l.target.call(it, l.shape.kind, modeLife, 0, nil)
	if err := l.target.run(ctx, c); err != nil {
		return 0, err
	}
	return c.reply.Num, refusal(c.reply)
}

// publish renames the complete copy, and sets its time to live.
func (l *large) publish(ctx context.Context, it *item) (reply int64, err error) {
	defer l.drop(ctx)
	count, err := l.target.do(ctx, counts[l.shape.kind], l.temp)
	if err != nil {
		return 0, err
	}
	if count.Num != l.shape.elements {
		return 0, errChanged
	}
	life := it.life(time.Now())
	if life < 0 {
		return 0, skipEnded
	}
	lives := fixed("PERSIST", l.temp)
	if life > 0 {
		lives = fixed("PEXPIRE", l.temp, strconv.FormatInt(life, 10))
	}
	commands := []*command{fixed("MULTI"), lives, fixed("RENAMENX", l.temp, l.shape.key), fixed("EXEC")}
	if err := l.target.once(ctx, commands); err != nil {
		return 0, err
	}
	if err := refusedOne(commands); err != nil {
		return 0, err
	}
	if done := commands[3].reply; len(done.Elems) != 2 || done.Elems[1].Num == 0 {
		return 0, errChanged // another client has created the key; the next attempt compares it
	}
	return written, nil
}

// drop deletes the incomplete copy. If that fails, it expires.
func (l *large) drop(ctx context.Context) {
	if l.temp != "" && ctx.Err() == nil {
		_, _ = l.target.do(ctx, "DEL", l.temp)
	}
}

// once runs a transaction in a single attempt, as it must not push to a list twice. If its outcome is unknown, the copy
// is restarted.
func (t *target) once(ctx context.Context, commands []*command) error {
	err := t.try(ctx, commands)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, new(*operator.Refusal)):
		return err
	}
	t.close() // with the transaction
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// refusedOne returns the first error among the replies of a transaction.
func refusedOne(commands []*command) error {
	for _, c := range commands {
		for _, v := range append([]protocol.Value{c.reply}, c.reply.Elems...) {
			if err := refusal(v); err != nil {
				return err
			}
		}
	}
	return nil
}
