package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/protocol"
)

// listLocks prints a line for each hold and each waiter, in line.
func listLocks(ctx context.Context, conn *holder.Conn, pattern []string, stdout io.Writer) error {
	now, err := conn.Do(ctx, "TIME")
	if err != nil {
		return err
	}
	l := &lockList{table: newTable("LOCK", "STATE", "OWNER", "FENCE", "MODE", "FOR", "LEFT", "NOTE")}
	if len(now.Elems) == 2 {
		seconds, _ := strconv.ParseInt(now.Elems[0].Str, 10, 64)
		micros, _ := strconv.ParseInt(now.Elems[1].Str, 10, 64)
		l.now = seconds*1000 + micros/1000
	}
	for cursor := ""; cursor != "0"; {
		words := []string{"LOCK.LIST", "COUNT", "1000"}
		if len(pattern) > 0 {
			words = append(words, "MATCH", pattern[0])
		}
		if cursor != "" {
			words = append(words, "CURSOR", cursor)
		}
		v, err := conn.Do(ctx, words...)
		if err != nil {
			return err
		}
		if len(v.Elems) != 2 {
			return fmt.Errorf("LOCK.LIST answered %v", v)
		}
		for _, row := range v.Elems[1].Elems {
			l.lock(fieldsOf(row))
		}
		cursor = holder.Text(v.Elems[0])
	}
	_, err = io.WriteString(stdout, l.String())
	return err
}

// lockList is the table.
type lockList struct {
	*table
	now int64 // cluster time in milliseconds
}

// fields are a map that a node answered.
type fields map[string]protocol.Value

func fieldsOf(v protocol.Value) fields {
	f := make(fields)
	for i := 0; i+1 < len(v.Elems); i += 2 {
		f[v.Elems[i].Str] = v.Elems[i+1]
	}
	return f
}

func (f fields) text(name string) string { return printable(holder.Text(f[name])) }

func (l *lockList) lock(f fields) {
	name := f.text("key")
	for _, row := range f["holders"].Elems {
		h := fieldsOf(row)
		left := "its session, " + h.text("session")
		if h["session"].Num == 0 {
			left = duration(h["lease-left"].Num)
		}
		l.line(name, "held", h.text("owner"), h.text("fence"), h.mode(), l.since(h), left, h.text("note"))
	}
	l.more(name, "held", f["holders-count"].Num, f["holders"])
	for _, row := range f["waiters"].Elems {
		w := fieldsOf(row)
		state := "waits"
		if w["absent"].Num != 0 {
			state = "away" // the place is kept for a while
		}
		l.line(name, state, w.text("owner"), "", w.mode(), l.since(w), duration(w["wait-left"].Num), w.text("note"))
	}
	l.more(name, "waits", f["waiters-count"].Num, f["waiters"])
}

// more says how many rows the node left out.
func (l *lockList) more(name, state string, count int64, shown protocol.Value) {
	if n := count - int64(len(shown.Elems)); n > 0 {
		l.line(name, state, fmt.Sprintf("and %d more", n))
	}
}

func (f fields) mode() string {
	if permits := f["permits"].Num; permits > 0 {
		return fmt.Sprintf("permits %d", permits)
	}
	return f.text("mode")
}

func (l *lockList) since(f fields) string { return duration(max(0, l.now-f["since"].Num)) }

// duration is "" for what has no end.
func duration(millis int64) string {
	if millis < 0 {
		return ""
	}
	d := time.Duration(millis) * time.Millisecond
	if d > time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}

// printable is text for a terminal: names and notes are other people's.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted[1:len(quoted)-1] != text {
		return quoted
	}
	return text
}
