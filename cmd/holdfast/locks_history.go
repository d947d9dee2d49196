package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
	"github.com/holdfast/holdfast/server/api"
)

// history lists how locks were lost, the newest first.
func (o *locksOwn) history(ctx context.Context, conn *holder.Conn, q lockQuery, stdout io.Writer) error {
	all := api.Losses{Format: api.Format, Losses: []api.Loss{}}
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
	_, err := io.WriteString(stdout, lossTable(all.Losses))
	return err
}

// lossTable has a line for each loss.
func lossTable(losses []api.Loss) string {
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
		t.line(time.UnixMilli(l.EndedUnixMillis).UTC().Format(time.RFC3339), nameOf(l.Key, l.DB, dbs), l.Reason,
			printable(l.Owner),
			fence, duration(l.HeldMillis), clientOf(l.Client), printable(l.Note), by, text)
		if l.More > 0 {
			t.line("", "", "", fmt.Sprintf("and %d more at once", l.More))
		}
	}
	return t.String()
}
