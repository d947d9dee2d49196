package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/holdfast/holdfast/server/api"
)

// clusterFrame returns the text of `holdfast cluster status`: a sentence about the cluster, and a line for each member.
func clusterFrame(c *api.Cluster) string {
	if c.Waiting != "" && c.ClusterID == "" { // the node is a member of nothing
		return printableText(c.Sentence) + "\n"
	}
	t := newTable("NAME", "ROLE", "ANSWERS", "COULD LEAD", "LAG", "MATCH", "CLIENTS", "PEERS", "VERSION", "FORMAT")
	for i := range c.Members {
		m := &c.Members[i]
		lag := ""
		if m.LagEntries != nil {
			lag = strconv.FormatInt(*m.LagEntries, 10)
		}
		could := "yes"
		if m.CannotLead != "" {
			could = "no: " + printable(m.CannotLead)
		}
		t.line(printable(m.Name), printable(m.Role), yesNo(m.Answers), could, lag, known(m.MatchIndex),
			printable(m.ClientAddress), printable(m.PeerAddress), cmp.Or(printable(m.Version), "unknown"), known(m.LogFormat))
	}
	return printableText(c.Sentence) + "\n" + heldBack(c) + troubles(c) + "\n" + t.String()
}

// heldBack returns why the cluster does not use a newer version, "" if it uses the newest that any member can.
func heldBack(c *api.Cluster) string {
	var by []string
	for i := range c.Members {
		m, why := &c.Members[i], ""
		switch {
		case m.HoldVersion > 0:
			why = fmt.Sprintf("--hold-version %d", m.HoldVersion)
		case !m.Answers:
			why = "does not answer"
		case m.LogFormat == 0: // unknown
			why = "unknown log format"
		default:
			why = fmt.Sprintf("log format %d", m.LogFormat)
		}
		if slices.Contains(c.HeldBackBy, m.Name) {
			by = append(by, fmt.Sprintf("%s (%s)", printable(m.Name), why))
		}
	}
	if len(by) == 0 {
		return ""
	}
	return fmt.Sprintf("The cluster keeps version %d for %s.\n", c.ClusterVersion, strings.Join(by, ", "))
}

// troubles lists the troubles and warnings of a cluster, a line each. The table shows silent members.
func troubles(c *api.Cluster) string {
	var b strings.Builder
	for _, trouble := range c.Troubles {
		fmt.Fprintf(&b, "Not well: %s.\n", printableText(trouble))
	}
	for _, warning := range c.Warnings {
		fmt.Fprintf(&b, "Warning: %s.\n", printableText(warning))
	}
	return b.String()
}

// printableText replaces unprintable characters of a node's text by '?'.
func printableText(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// memberTable returns the text of `holdfast cluster members`.
func memberTable(c *api.Cluster) string {
	t := newTable("NAME", "ID", "ROLE", "VOTES", "CLIENTS", "PEERS")
	for i := range c.Members {
		m := &c.Members[i]
		t.line(printable(m.Name), printable(m.ID), printable(m.Role), yesNo(m.Voter), printable(m.ClientAddress),
			printable(m.PeerAddress))
	}
	return t.String()
}

// known returns a number as text, "" for 0.
func known(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
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
	w       *tabwriter.Writer
	columns int
}

func newTable(heading ...string) *table {
	t := &table{columns: len(heading)}
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
	fmt.Fprintln(t.w, strings.Repeat("\t", t.columns-len(cells))) // tabwriter ends a column at a line without its cell
}

// String returns the text so far.
func (t *table) String() string {
	_ = t.w.Flush() // into memory
	var b strings.Builder
	for line := range strings.Lines(t.Builder.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// printable returns a name or note without characters that control a terminal.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted[1:len(quoted)-1] != text {
		return quoted
	}
	return text
}

// escaped returns a text of several lines with characters that control a terminal escaped in Go's notation. An error
// may contain a server's text.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
