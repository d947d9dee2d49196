package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/protocol"
)

// columns of the list: a heading, and the field of the reply.
var columns = []struct{ heading, field string }{
	{"LOCK", "key"},
	{"STATE", "state"},
	{"OWNER", "owner"},
	{"FENCE", "fence"},
	{"MODE", "mode"},
	{"FOR", "age"},
	{"LEFT", "left"},
	{"NOTE", "note"},
}

// listLocks prints a line for each hold and each waiter.
func listLocks(ctx context.Context, conn *holder.Conn, pattern []string, stdout io.Writer) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t", c.heading)
	}
	fmt.Fprintln(w)
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
			printLock(w, row)
		}
		cursor = holder.Text(v.Elems[0])
	}
	return w.Flush()
}

func printLock(w io.Writer, row protocol.Value) {
	fields := make(map[string]string)
	for i := 0; i+1 < len(row.Elems); i += 2 {
		fields[row.Elems[i].Str] = holder.Text(row.Elems[i+1])
	}
	if fields["session"] != "" && fields["session"] != "0" && fields["state"] == "held" {
		fields["left"] = "session " + fields["session"]
	}
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t", printable(c.field, fields[c.field]))
	}
	fmt.Fprintln(w)
}

// printable is text for a terminal: names and notes are other people's.
func printable(field, text string) string {
	switch field {
	case "age", "left":
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
			return (time.Duration(ms) * time.Millisecond).String()
		}
	}
	if text == "" || text == "-1" {
		return "-"
	}
	quoted := strconv.Quote(text)
	if plain := quoted[1 : len(quoted)-1]; plain == text {
		return text
	}
	return quoted
}
