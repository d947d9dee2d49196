package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
)

const locksUsage = `usage: holdfast locks [flags] [PATTERN]
       holdfast locks history [flags] [PATTERN]
       holdfast locks break [flags] NAME --reason TEXT

Lists who holds the locks whose names match PATTERN, those held longest first, and who waits for them, in order; stock
locks too. 'history' lists how locks were lost lately, and who broke them. 'break' takes a lock away: a stock lock only
with --owner, which is its token then.
`

// locksOwn are the flags of `holdfast locks`, and of its subcommands.
type locksOwn struct {
	clientFlags
	watch, json bool
	heldFor     time.Duration
	fence       uint64
	owner       string
	reason      string
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
		{heading: breakHeading},
		{name: "reason", value: &o.reason, help: "why, for the holder, the log and the history"},
		{name: "fence", value: &o.fence, help: "break only the hold with this fence; 0: all holds"},
		{name: "owner", value: &o.owner, help: "break only this owner's hold; of a stock lock: its token"},
	}, o.clientFlags.rows()...)
	return append(rows, option{name: "db", value: &o.db, help: "database of the locks; -1: all, for break 0"})
}

const breakHeading = "The break"

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

// check looks at what the words and the flags mean together.
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
	case len(words) > 1:
		return unexpected(words[1])
	}
	return nil
}

// watchLocks shows the list again and again, until ctx ends.
func watchLocks(ctx context.Context, servers *holder.Servers, q lockQuery, stdout io.Writer) error {
	var conn *holder.Conn
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	return watchFrames(ctx, stdout, func() string {
		var err error
		if conn == nil {
			if conn, err = servers.DialAny(ctx, nodePatience); err != nil {
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
