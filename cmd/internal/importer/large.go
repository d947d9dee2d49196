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

// tempSuffix and random letters follow a large key's name in the name under which the key grows: a user who may write
// keys of a prefix may write that, too. It ends tempLife after the last part was written.
const (
	tempSuffix = ":holdfast-import:"
	tempLife   = "600000"
)

// A large key is begun anew when it has changed while it was read, or when a part of its copy was lost.
const (
	maxTries  = 5  // after changes
	maxLosses = 20 // after lost parts
)

// errChanged: the key has changed while it was read, or its copy has not grown as it should.
var errChanged = errors.New("it could not be copied at one instant")

// errLost: it is not known what became of a part.
var errLost = errors.New("a part may not have arrived")

// copyLarge copies a key in parts, under another name, and gives it its name when it is whole, unless there is such a
// key.
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

// tryLarge copies a key if it stays as it is meanwhile.
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

// part is how many elements a part has.
func (s *shape) part() int64 {
	return max(1, min(partElements, partBytes/max(1, s.bytes/max(1, s.elements))))
}

// large is a large key under way.
type large struct {
	*work
	r        *reader
	shape    shape
	size     int64
	compares bool   // the key is there: it is compared, and nothing written
	temp     string // where it grows
}

// parts reads all parts, and writes or compares them. A scan may name elements twice, but not without end.
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
		for len(words) > 0 { // a scan may give more than it was asked for
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

// wordsOf is how many words elements have.
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

// ask asks the source; WRONGTYPE and its like mean that the key has changed.
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

// unchanged is the key's life at an instant until which it has not changed.
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

// compared ends a comparison: the counts must be alike, too, and the life no shorter.
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

// publish gives the whole copy its name and its life.
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
		return 0, errChanged // somebody has made the key: it is compared
	}
	return written, nil
}

// drop removes what has grown. What stays ends by itself.
func (l *large) drop(ctx context.Context) {
	if l.temp != "" && ctx.Err() == nil {
		_, _ = l.target.do(ctx, "DEL", l.temp)
	}
}

// once runs a transaction in one exchange: to push to a list twice would be wrong. If it is not known what became of
// it, the key is begun anew.
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

// refusedOne is the first error among the replies of a transaction.
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
