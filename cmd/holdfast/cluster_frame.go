package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/holdfast/holdfast/cmd/internal/holder"
)

// clusterFrame is what `holdfast cluster status` prints of the reply to RAFT.STATUS: a sentence about the cluster, and
// a line for each member.
func clusterFrame(f fields) string {
	t := newTable("NAME", "ROLE", "ANSWERS", "LAG", "MATCH", "CLIENTS", "PEERS", "VERSION", "FORMAT")
	for _, row := range f["members"].Elems {
		m := fieldsOf(row)
		t.line(m.text("name"), m.text("role"), m.answers(), m.lag(), m.number("match-index"), m.text("client-address"),
			m.text("peer-address"), cmp.Or(m.text("version"), "unknown"), m.number("log-format"))
	}
	return clusterSentence(f) + "\n" + heldBack(f) + troubles(f) + "\n" + t.String()
}

// heldBack says why the cluster does not go over to a newer version; empty: it has the newest that a member can use.
func heldBack(f fields) string {
	holds := make(map[string]bool)
	for _, v := range f["held-back-by"].Elems {
		holds[holder.Text(v)] = true
	}
	var by []string
	for _, row := range f["members"].Elems {
		m, why := fieldsOf(row), ""
		switch {
		case m["hold-version"].Num > 0:
			why = fmt.Sprintf("--hold-version %d", m["hold-version"].Num)
		case m["silent"].Num != 0:
			why = "does not answer"
		default:
			why = fmt.Sprintf("log format %d", m["log-format"].Num)
		}
		if holds[m.text("name")] {
			by = append(by, fmt.Sprintf("%s (%s)", m.text("name"), why))
		}
	}
	if len(by) == 0 {
		return ""
	}
	return fmt.Sprintf("The cluster keeps version %d for %s.\n", f["cluster-version"].Num, strings.Join(by, ", "))
}

// troubles are what is wrong beside silent members, a line each.
func troubles(f fields) string {
	var b strings.Builder
	for _, v := range f["troubles"].Elems {
		text := strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?' // other nodes' words, on a terminal
			}
			return r
		}, holder.Text(v))
		fmt.Fprintf(&b, "Not well: %s.\n", text)
	}
	return b.String()
}

// clusterSentence says how the cluster is.
func clusterSentence(f fields) string {
	voters, live, margin := f["voters"].Num, f["live-voters"].Num, f["margin"].Num
	switch leader := f.text("leader"); {
	case f.text("waiting") != "":
		return fmt.Sprintf("%s belongs to no cluster yet: %s.", f.text("node"), f.text("waiting"))
	case leader == "":
		return fmt.Sprintf("No leader is known to %s, in term %d: %d voters, of which %d must answer.",
			f.text("node"), f["term"].Num, voters, f["quorum"].Num)
	case voters == 1:
		return fmt.Sprintf("%s leads alone, in term %d.", leader, f["term"].Num)
	default:
		return fmt.Sprintf("%s leads in term %d: %d of %d voters answer, %s.", leader, f["term"].Num, live, voters, spare(margin))
	}
}

func spare(margin int64) string {
	switch margin {
	case 0:
		return "the cluster stops when one more fails"
	case 1:
		return "1 may fail"
	}
	return fmt.Sprintf("%d may fail", margin)
}

// atRisk reports whether the cluster stands still, has no voter to spare although it has several members, or is not well.
func atRisk(f fields) bool {
	several := f["voters"].Num > 1 || len(f["members"].Elems) > 1
	return f.text("leader") == "" || several && f["margin"].Num <= 0 || len(f["troubles"].Elems) > 0
}

// memberTable is what `holdfast cluster members` prints.
func memberTable(f fields) string {
	t := newTable("NAME", "ID", "ROLE", "VOTES", "CLIENTS", "PEERS")
	for _, row := range f["members"].Elems {
		m := fieldsOf(row)
		t.line(m.text("name"), m.text("id"), m.text("role"), yesNo(m["voter"].Num != 0), m.text("client-address"), m.text("peer-address"))
	}
	return t.String()
}

func (f fields) answers() string { return yesNo(f["silent"].Num == 0) }

func (f fields) lag() string {
	if f["lag"].Num < 0 {
		return "" // not known
	}
	return f.number("lag")
}

func (f fields) number(name string) string {
	if f[name].Num == 0 && name != "lag" {
		return ""
	}
	return strconv.FormatInt(f[name].Num, 10)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// table is text in columns, with a heading.
type table struct {
	strings.Builder
	w *tabwriter.Writer
}

func newTable(heading ...string) *table {
	t := &table{}
	t.w = tabwriter.NewWriter(&t.Builder, 0, 0, 2, ' ', 0)
	t.line(heading...)
	return t
}

func (t *table) line(cells ...string) {
	for i, c := range cells {
		if c == "" {
			c = "-"
		}
		if i < len(cells)-1 {
			c += "\t"
		}
		fmt.Fprint(t.w, c)
	}
	fmt.Fprintln(t.w)
}

// String is the text so far.
func (t *table) String() string {
	_ = t.w.Flush() // into memory
	return t.Builder.String()
}
