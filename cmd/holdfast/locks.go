package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/server/api"
)

const locksUsage = `usage: holdfast locks [flags] [PATTERN]
       holdfast locks history [flags] [PATTERN]
       holdfast locks history --audit FILE [FILE...] [--lock PATTERN] [--at TIME]
       holdfast locks break [flags] NAME --reason TEXT

Lists who holds the locks whose names match PATTERN, those held longest first, and who waits for them, in order; stock
locks too. 'history' lists how locks were lost lately, and who broke them; with --audit it reads the files of
--audit-log, of all nodes together and in any order, and lists who held locks from when until when. 'break' takes a lock
away: a stock lock only with --owner, which is its token then.
`

// locksOwn are the flags of `holdfast locks`, and of its subcommands.
type locksOwn struct {
	clientFlags
	watch, json bool
	heldFor     time.Duration
	fence       uint64
	owner       string
	reason      string
	audit, at   string
	lock        string
}

func newLocksOwn() *locksOwn {
	o := &locksOwn{clientFlags: newClientFlags()}
	o.db = -1
	return o
}

const locksHeading = "The list"

func (o *locksOwn) rows() []option {
	rows := append([]option{
		{heading: locksHeading},
		{name: "watch", value: &o.watch, help: "show it again each second, until ^C"},
		{name: "json", value: &o.json, help: "one JSON document in place of the table"},
		{
			name: "held-for", value: &o.heldFor,
			help: "only locks that are held for so long already; 0: all, and those that are waited for",
		},
		{heading: auditHeading},
		{name: "audit", value: &o.audit, help: "file of --audit-log; all words are further ones"},
		{
			name: "at", value: &o.at,
			help: "only who held locks then: 02:00 (the last, of UTC), 2026-01-31T02:00:00, or with a zone",
		},
		{name: "lock", value: &o.lock, help: "pattern of the locks' names"},
		{heading: breakHeading},
		{name: "reason", value: &o.reason, help: "why, for the holder, the log and the history"},
		{name: "fence", value: &o.fence, help: "break only the hold with this fence; 0: all holds"},
		{name: "owner", value: &o.owner, help: "break only this owner's hold; of a stock lock: its token"},
	}, o.clientFlags.rows()...)
	return append(rows, option{name: "db", value: &o.db, help: "database of the locks; -1: all, for break 0"})
}

const breakHeading, auditHeading = "The break", "The audit log"

const askLimit = 10 * time.Second

// locks lists or breaks locks.
func locks(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o := newLocksOwn()
	words, err := parseAnywhere(o.rows(), args, stdout, locksUsage)
	if err != nil {
		return err
	}
	word := ""
	if len(words) > 0 && (words[0] == "break" || words[0] == "history") {
		word, words = words[0], words[1:]
	}
	if err := o.check(word, words); err != nil {
		return err
	}
	if o.audit != "" {
		return o.readAudit(words, time.Now(), stdout)
	}
	servers, err := o.clientFlags.servers()
	if err != nil {
		return err
	}
	servers.DB, servers.Name = max(0, o.db), clientName("holdfast-locks")
	q := lockQuery{db: o.db, heldFor: o.heldFor}
	if len(words) > 0 {
		q.pattern = words[0]
	}
	if o.watch {
		return watchLocks(ctx, servers, q, stdout)
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := servers.DialAny(ctx, askLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch {
	case word == "break":
		return o.breakLock(ctx, conn, words[0], stdout)
	case word == "history":
		return o.history(ctx, conn, q, stdout)
	case o.json:
		doc, err := q.look(ctx, conn)
		if err != nil {
			return err
		}
		return writeJSON(stdout, doc)
	}
	frame, err := q.frame(ctx, conn)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, frame)
	return err
}

// check validates the combination of words and flags.
func (o *locksOwn) check(word string, words []string) error {
	switch {
	case word == "break" && len(words) == 0:
		return usageError{errors.New("break: say which lock")}
	case word == "break" && o.reason == "":
		return usageError{errors.New("break: say why: --reason TEXT")}
	case word != "break" && o.reason+o.owner != "", word != "break" && o.fence != 0:
		return usageError{errors.New("reason, fence and owner are for 'break'")}
	case word != "" && (o.watch || o.heldFor != 0):
		return usageError{errors.New("watch and held-for are for the list")}
	case o.json && (o.watch || word == "break"):
		return usageError{errors.New("json is for the list and for 'history'")}
	case o.audit == "" && o.at+o.lock != "", o.audit != "" && word != "history":
		return usageError{errors.New("audit, at and lock are for 'history --audit FILE'")}
	case len(words) > 1 && o.audit == "":
		return fmt.Errorf("%w: say one PATTERN, in quotes, with 'history' or 'break' before it, if any", unexpected(words[1]))
	}
	return nil
}

// watchLocks shows the list every watchInterval, until ctx ends.
func watchLocks(ctx context.Context, servers *operator.Servers, q lockQuery, stdout io.Writer) error {
	var conn *operator.Conn
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	return watchFrames(ctx, stdout, func() string {
		var err error
		if conn == nil {
			if conn, err = servers.DialAny(ctx, nodeTimeout); err != nil {
				conn = nil
				return "No node answers: " + printable(err.Error()) + "\n"
			}
		}
		frame, err := q.frame(ctx, conn)
		if err != nil {
			conn.Close()
			conn = nil
			return "No node answers: " + printable(err.Error()) + "\n"
		}
		return frame
	})
}

// breakLock releases a lock by force. A stock lock has no fence, so its owner must be named.
func (o *locksOwn) breakLock(ctx context.Context, conn *operator.Conn, name string, stdout io.Writer) error {
	l, there, err := lockNow(ctx, conn, name, o.db)
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
	refusal := new(operator.Refusal)
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

// lockNow returns the answer of LOCK.INFO about a lock. there is false if it has neither a holder nor a waiter.
func lockNow(ctx context.Context, conn *operator.Conn, name string, db int) (l api.Lock, there bool, err error) {
	vs, err := conn.Pipeline(ctx, []string{"TIME"}, []string{"LOCK.INFO", name})
	if err != nil || len(vs[0].Elems) != 2 || vs[1].IsError() {
		return l, false, err
	}
	return api.LockOf(vs[1], name, max(0, db), timeOf(vs[0]))
}

// present describes a lock's present holders, after the named hold was not found.
func (o *locksOwn) present(ctx context.Context, conn *operator.Conn, name string) string {
	l, there, err := lockNow(ctx, conn, name, o.db)
	switch {
	case err != nil:
		return "who holds it is not known: " + err.Error()
	case !there || len(l.Holders) == 0:
		return fmt.Sprintf("nobody holds it in database %d", max(0, o.db))
	}
	return heldBy(&l)
}

// heldBy describes who holds a lock, and for how long. Requires: it has a holder.
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

// shellWord quotes a word for a shell.
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

// history lists how locks were lost, the newest first.
func (o *locksOwn) history(ctx context.Context, conn *operator.Conn, q lockQuery, stdout io.Writer) error {
	all := api.Losses{Format: api.Format, Losses: []api.Loss{}}
	now, err := clusterNow(ctx, conn)
	if err != nil {
		return err
	}
	for cursor := "0"; cursor != ""; {
		words := []string{"LOCK.HISTORY", "COUNT", "1000", "CURSOR", cursor}
		if q.pattern != "" {
			words = append(words, "MATCH", q.pattern)
		}
		if q.db >= 0 {
			words = append(words, "DB", strconv.Itoa(q.db))
		}
		v, err := conn.Do(ctx, words...)
		if err != nil {
			return err
		}
		page, err := api.LossesOf(v)
		if err != nil {
			return err
		}
		all.Losses, cursor = append(all.Losses, page.Losses...), page.NextCursor
	}
	if o.json {
		return writeJSON(stdout, all)
	}
	_, err = io.WriteString(stdout, lossTable(all.Losses, now))
	return err
}

// lossTable returns a line for each loss, and below them the locks that were lost repeatedly, with advice.
func lossTable(losses []api.Loss, nowUnixMillis int64) string {
	if len(losses) == 0 {
		return "no lock that matches was lost, as far as the cluster remembers\n"
	}
	t := newTable("ENDED", "LOCK", "WHY", "OWNER", "FENCE", "HELD", "CLIENT", "NOTE", "BY", "REASON")
	dbs := slices.ContainsFunc(losses, func(l api.Loss) bool { return l.DB != 0 })
	for i := range losses {
		l := &losses[i]
		by, text, fence := "", "", "-"
		if l.Fence != 0 {
			fence = strconv.FormatInt(l.Fence, 10)
		}
		if l.Cause != nil {
			by, text = l.Cause.Command+" "+cmp.Or(clientOf(l.Cause.By), "?"), printable(l.Cause.Text)
		}
		t.line(utc(l.EndedUnixMillis), nameOf(l.Key, l.DB, dbs), l.Reason,
			printable(l.Owner),
			fence, duration(l.HeldMillis), clientOf(l.Client), printable(l.Note), by, text)
		if l.More > 0 {
			t.line("", "", "", fmt.Sprintf("and %d more at once", l.More))
		}
	}
	text := t.String()
	for _, g := range api.GroupLosses(losses, nowUnixMillis) {
		if g.Count > 1 {
			text += fmt.Sprintf("%s: %s ×%d, %d in the last minute, held for %s at most",
				nameOf(g.Last.Key, g.Last.DB, dbs), g.Last.Reason, g.Count, g.LastMinute, duration(g.MaxHeldMillis))
			if g.Advice != "" {
				text += ": " + printableText(g.Advice)
			}
			text += "\n"
		}
	}
	return text
}
