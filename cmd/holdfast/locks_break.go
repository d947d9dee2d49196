package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/server/api"
)

// breakLock takes a lock away. A stock lock has no fence, so only the owner that is named can be meant.
func (o *locksOwn) breakLock(ctx context.Context, conn *holder.Conn, name string, stdout io.Writer) error {
	l, there, err := o.lockNow(ctx, conn, name)
	switch stock := there && l.Mode == stockMode && len(l.Holders) > 0; {
	case err != nil:
		return fmt.Errorf("break %s: %w", name, err)
	case stock && o.fence != 0:
		return fmt.Errorf("break %s: it is a stock lock, which has no fence: use --owner TOKEN", name)
	case stock && o.owner == "":
		return fmt.Errorf("break %s: it is a stock lock, %s; break it with --owner %s", name, heldBy(&l),
			shellWord(l.Holders[0].Owner))
	}
	words := []string{"LOCK.BREAK", name}
	if o.owner != "" {
		words = append(words, "OWNER", o.owner)
	}
	if o.fence != 0 {
		words = append(words, "FENCE", strconv.FormatUint(o.fence, 10))
	}
	v, err := conn.Do(ctx, append(words, "REASON", o.reason)...)
	refusal := new(holder.Refusal)
	switch {
	case errors.As(err, &refusal) && strings.HasPrefix(refusal.Text, "WRONGTYPE"):
		return fmt.Errorf("break %s: the key holds a value that is no lock", name)
	case err != nil:
		return fmt.Errorf("break %s: %w", name, err)
	case v.Num == 0:
		return fmt.Errorf("break %s: there is no such hold: %s", name, o.present(ctx, conn, name))
	}
	note := ""
	if l.Mode == stockMode {
		note = ": a stock lock, whose holder is not told"
	}
	fmt.Fprintf(stdout, "broke %d of %s%s\n", v.Num, name, note)
	return nil
}

// lockNow is what LOCK.INFO says of a lock. there is false if nobody holds it or waits for it.
func (o *locksOwn) lockNow(ctx context.Context, conn *holder.Conn, name string) (l api.Lock, there bool, err error) {
	vs, err := conn.Pipeline(ctx, []string{"TIME"}, []string{"LOCK.INFO", name})
	if err != nil || len(vs[0].Elems) != 2 || vs[1].IsError() {
		return l, false, err
	}
	return api.LockOf(vs[1], name, max(0, o.db), timeOf(vs[0]))
}

// present says who holds a lock now, for whom another hold was meant.
func (o *locksOwn) present(ctx context.Context, conn *holder.Conn, name string) string {
	l, there, err := o.lockNow(ctx, conn, name)
	switch {
	case err != nil:
		return "who holds it is not known: " + err.Error()
	case !there || len(l.Holders) == 0:
		return fmt.Sprintf("nobody holds it in database %d", max(0, o.db))
	}
	return heldBy(&l)
}

// heldBy says who holds a lock, and for how long. Requires: somebody does.
func heldBy(l *api.Lock) string {
	h := &l.Holders[0]
	text := "held " + duration(h.HeldMillis) + " by " + printable(h.Owner)
	if client := clientOf(h.Client); client != "" {
		if h.Client.Gone {
			client += ", which is gone"
		}
		text += " (" + client + ")"
	}
	if h.Fence != 0 {
		text += ", fence " + strconv.FormatInt(h.Fence, 10)
	}
	if h.Note != "" {
		text += ", " + printable(h.Note)
	}
	if l.HoldersCount > 1 {
		text += fmt.Sprintf(", and %d more", l.HoldersCount-1)
	}
	return text
}

// shellWord is a word that a shell takes as it is.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_.:/@%+,=", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !plain(r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
