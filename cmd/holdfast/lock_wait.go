package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/server/api"
)

// present is what the cluster says of the lock now.
func (o *lockOwn) present(ctx context.Context, c *holder.Conn) (l api.Lock, there bool) {
	vs, err := c.Pipeline(ctx, []string{"TIME"}, []string{"LOCK.INFO", o.lock.Name})
	if err != nil || len(vs[0].Elems) != 2 || vs[1].IsError() {
		return l, false
	}
	l, there, err = api.LockOf(vs[1], o.lock.Name, o.db, timeOf(vs[0]))
	return l, there && err == nil
}

// printHolder prints who holds the lock, and the place in line.
func (o *lockOwn) printHolder(ctx context.Context, c *holder.Conn, stderr io.Writer) {
	l, there := o.present(ctx, c)
	if !there {
		return
	}
	if text := inLine(&l, o.lock.Owner); text != "" {
		fmt.Fprintf(stderr, "holdfast lock: waiting for %s: %s\n", printable(o.lock.Name), text)
	}
}

// inLine is the place of an owner in line, and who holds the lock; empty: the owner does not wait.
func inLine(l *api.Lock, owner string) string {
	place := 1 + slices.IndexFunc(l.Waiters, func(w api.Wait) bool { return w.Owner == owner })
	if place == 0 {
		return ""
	}
	return ordinal(place) + " in line" + behind(l)
}

// behind says what a lock waits for.
func behind(l *api.Lock) string {
	switch {
	case len(l.Holders) > 0:
		return ", " + heldBy(l)
	case l.DelayLeftMillis > 0:
		return ", nobody gets it for " + duration(l.DelayLeftMillis) + " after a loss"
	}
	return ""
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		suffix = cmp.Or(map[int]string{1: "st", 2: "nd", 3: "rd"}[n%10], suffix)
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// answerWithin is how long the cluster may take to say who has a lock that was not granted.
const answerWithin = time.Second

// whyNot adds to an error who has the lock. The status is -E's only if the cluster itself did not grant the lock.
func (o *lockOwn) whyNot(ctx context.Context, h *holder.Holder, err error) error {
	if cause := errors.Unwrap(err); cause != holder.ErrNotGranted {
		return err
	}
	text := err.Error()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if c := h.Conn(); c != nil {
		if l, there := o.present(ctx, c); there {
			text += behind(&l)
		}
	}
	return exitStatus{o.notGranted, text}
}
