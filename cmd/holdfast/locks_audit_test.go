package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAuditAt: the program says who held a lock, that nobody did, or that the files do not say, which is another exit
// status. It reads the older files beside each.
func TestAuditAt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n1.log")
	write := func(path string, lines ...string) {
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600)) // the last line has no end
	}
	line := func(minute, index int, what, owner string, more string) string {
		return fmt.Sprintf(`{"time":"2026-01-01T02:%02d:00Z","cluster":"c","index":%d,"event":%q,"kind":"native","key":"k",`+
			`"owner":%q%s}`, minute, index, what, owner, more)
	}
	write(path+".2", line(1, 1, "granted", "a", ""))
	write(path+".1", line(5, 2, "released", "a", `,"heldMillis":240000`), `{"event":"started","run":1,"node":"n1"}`)
	write(path, line(10, 3, "granted", "b", ""), line(20, 4, "granted", "c", ""),
		line(22, 5, "renewed", "c", `,"note":"job 7"`), line(22, 6, "wait-ended", "d", `,"reason":"timeout"`))
	history := func(at string, more ...string) (int, string) {
		var out bytes.Buffer
		words := append([]string{"locks", "history", "--lock", "k", "--audit", path, "--at", "2026-01-01T" + at}, more...)
		return run(t.Context(), words, &out, io.Discard), out.String()
	}
	for _, c := range []struct {
		at     string
		status int
		want   []string
		not    string
	}{
		{"01:59", 3, []string{"the files do not cover this time", "02:01:00.000Z", "02:22:00.000Z"}, "nobody"},
		{"02:03", 0, []string{" a ", "released", " started "}, "not known"},
		{"02:07", 0, []string{"nobody held a lock that matches", "began before their first line"}, "not known"},
		{"02:15", 3, []string{"of a hold the files have not all", " b ", "end not in the files"}, "nobody"},
		{"02:21:00", 0, []string{" c ", " job 7 "}, " d "},
		{"02:25", 3, []string{"the files do not cover this time", " c ", "lines are missing since"}, "nobody"},
	} {
		status, text := history(c.at)
		require.Equal(t, c.status, status, "%s: %s", c.at, text)
		for _, want := range c.want {
			require.Contains(t, text, want, c.at)
		}
		require.NotContains(t, text, c.not, c.at)
	}
	_, text := history("02:03", "--json", path+".1") // which goes with the first
	var a auditAnswer
	require.NoError(t, json.Unmarshal([]byte(text), &a))
	require.Len(t, a.Covered, 1)
	require.Len(t, a.Holds, 1)

	_, text = history("02:03", "--db", "1")
	require.Contains(t, text, "nobody held a lock that matches")
	require.NotContains(t, text, "left out")
	write(path, line(10, 3, "swapped", "", `,"toDb":1`), line(11, 4, "granted", "b", `,"db":1`),
		line(12, 5, "released", "b", `,"db":1,"heldMillis":60000`))
	_, text = history("02:11", "--db", "1")
	require.Contains(t, text, " b ")

	// Lines of some locks say nothing of others, with an instant or without.
	some := filepath.Join(t.TempDir(), "some.log")
	write(some, `{"event":"started","run":1,"node":"n1","text":"--audit-locks jobs:* k? *x*"}`,
		line(10, 3, "granted", "b", `,"key":"jobs:1"`), line(20, 4, "released", "b", `,"key":"jobs:1","heldMillis":600000`))
	for lock, known := range map[string]bool{
		"k": false, "k1": true, "jobs:2": true, "jobs:*": true, "jobs:n*?": true, "j*": false, "k*": false, "k?": true,
		"[j]obs:2": false, "[xy]": false, "": true,
	} {
		for _, at := range []string{"02:15", ""} {
			var out bytes.Buffer
			words := []string{"locks", "history", "--lock", lock, "--audit", some}
			if at != "" {
				words = append(words, "--at", "2026-01-01T"+at)
			}
			status := run(t.Context(), words, &out, io.Discard)
			require.Equal(t, map[bool]int{true: 0, false: statusUnknown}[known], status, "%s %s: %s", lock, at, &out)
			require.Contains(t, out.String(), " jobs:* k? *x*\n", "the locks of which the file has lines")
			require.Equal(t, lock == "", strings.Contains(out.String(), "did not name are left out: see LOCKS"), lock)
			if !known {
				require.Contains(t, out.String(), "the files have only locks that --audit-locks names: see LOCKS")
				require.NotContains(t, out.String(), "nobody")
			}
		}
	}

	write(some, line(1, 1, "granted", "a", ""), line(5, 2, "released", "a", `,"heldMillis":240000`),
		`{"event":"started","run":1,"text":"--audit-locks jobs:*"}`, line(10, 3, "granted", "b", `,"key":"jobs:1"`),
		line(20, 4, "released", "b", `,"key":"jobs:1","heldMillis":600000`))
	for at, want := range map[string]int{"02:03": 0, "02:15": statusUnknown} {
		words := []string{"locks", "history", "--lock", "k", "--audit", some, "--at", "2026-01-01T" + at}
		require.Equal(t, want, run(t.Context(), words, io.Discard, io.Discard), at)
	}

	for what, lines := range map[string][]string{
		"an empty file": nil, "not of an audit log": {"hello"}, "no lock yet": {`{"event":"started","run":1,"node":"n1"}`},
	} {
		write(some, lines...)
		var out bytes.Buffer
		words := []string{"locks", "history", "--audit", some}
		require.Equal(t, statusUnknown, run(t.Context(), words, &out, io.Discard), what)
		require.Contains(t, out.String(), "not known: the files cover no time", what)
		require.NotContains(t, out.String(), "nobody", what)
	}

	require.NoError(t, os.Remove(path+".1"))
	status, text := history("02:07")
	require.Equal(t, 3, status, "one of the older files is missing: %s", text)
}
