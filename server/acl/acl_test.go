package acl

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestFilesAreBounded: neither users nor rules without bound.
func TestFilesAreBounded(t *testing.T) {
	var many strings.Builder
	for i := range maxUsers + 1 {
		fmt.Fprintf(&many, "user u%d on\n", i)
	}
	for text, want := range map[string]string{
		many.String(): "has more than 10000 users",
		"user a ~" + strings.Repeat("x", maxRuleBytes):           "longer than 16384 bytes",
		"user a " + strings.Repeat("(+get ~a) ", maxSelectors+1): "more than 32 selectors",
	} {
		_, err := Parse("f", text)
		require.ErrorContains(t, err, want)
	}
	_, err := Parse("f", strings.Repeat("nonsense\n", 100))
	require.Equal(t, 10, strings.Count(err.Error(), "f:"))
}

// TestErrorsTellNoPassword: a line that is wrong is named, and not shown.
func TestErrorsTellNoPassword(t *testing.T) {
	for _, line := range []string{
		"user a on >secret nonsense", "user a <secret", "user a #secret", "user a on secret",
		"user a >secret (+get",
	} {
		_, err := Parse("f", line)
		require.ErrorContains(t, err, "f:1: ")
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestPasswords(t *testing.T) {
	sum := "#" + fmt.Sprintf("%x", PasswordOf("hashed"))
	us, err := Parse("f", "user a on >one >two "+sum+
		" <two\nuser off off >one\nuser any on nopass\nuser none on\nuser again on nopass resetpass >x\n"+
		"user reset on >one ~* reset\n# note\n\n", PasswordOf("open"), PasswordOf("sesame"))
	require.NoError(t, err)
	for user, passwords := range map[string]map[string]bool{
		"a":         {"one": true, "one1": false, "on": false, "two": false, "hashed": true, "": false, sum: false},
		"off":       {"one": false},
		"any":       {"x": true, "": true},
		"none":      {"": false},
		"again":     {"x": true, "y": false},
		"reset":     {"one": false},
		DefaultUser: {"open": true, "sesame": true, "": false, "one": false},
		"nobody":    {"one": false, "": false, nobodys: false},
	} {
		for password, want := range passwords {
			require.Equal(t, want, us.Authenticate(user, password) != nil, "%s %q", user, password)
		}
	}
	_, err = Parse("f", "user default on", PasswordOf("x"))
	require.ErrorContains(t, err, "leave out that flag, or this line")
	us, err = Parse("f", "user a on")
	require.NoError(t, err)
	require.Nil(t, us.Authenticate(DefaultUser, ""), "a file without a line for the default user opens no port")
	require.False(t, us.Default().Open())
	require.True(t, Only().Default().Open())
	require.Nil(t, Only().Default().Rights(), "who may do everything is asked nothing")
}

// TestKeeps: who may go on with a connection when the file is read again.
func TestKeeps(t *testing.T) {
	user := func(rules string) *User {
		us, err := Parse("f", "user a "+rules)
		require.NoError(t, err)
		return us.Find("a")
	}
	before := user("on >x ~a +get")
	require.True(t, before.Keeps(user("on >y ~a +get")))
	for _, rules := range []string{
		"off >x ~a +get", "on >x ~b +get", "on >x ~a +set", "on >x ~a &c +get",
		"on >x %R~a +get", "on >x ~a +get (+set ~b)",
	} {
		require.False(t, before.Keeps(user(rules)), rules)
	}
	require.False(t, before.Keeps(nil))
}

// TestLog: what is alike is counted together for a minute, and the log is bounded.
func TestLog(t *testing.T) {
	var l Log
	now := time.Unix(1000, 0)
	r := Refusal{Reason: "key", Context: "toplevel", Object: "k", User: "u", Client: "c1"}
	entries := func(args ...string) []protocol.Value {
		var words [][]byte
		for _, arg := range args {
			words = append(words, []byte(arg))
		}
		return l.Reply(words, now).Elems
	}
	l.Add(r, now)
	r.Client = "c2"
	l.Add(r, now.Add(time.Minute))
	got := entries()
	require.Len(t, got, 1)
	require.Equal(t, int64(2), got[0].Elems[1].Num)
	require.Equal(t, "c2", got[0].Elems[13].Str)
	l.Add(r, now.Add(3*time.Minute))
	for _, change := range []func(*Refusal){
		func(r *Refusal) { r.Reason = "command" }, func(r *Refusal) { r.Context = "multi" }, func(r *Refusal) {
			r.Object = "l"
		}, func(r *Refusal) { r.User = "v" },
	} {
		other := r
		change(&other)
		l.Add(other, now.Add(3*time.Minute))
	}
	require.Len(t, entries(), 6)
	require.Len(t, entries("2"), 2)
	require.Empty(t, entries("-1"))
	for i := range 500 {
		r.Object = fmt.Sprint(i, strings.Repeat("x", 1<<20))
		l.Add(r, now)
	}
	got = entries("1000")
	require.Len(t, got, maxEntries)
	require.True(t, strings.HasPrefix(got[0].Elems[7].Str, "499x"))
	require.Len(t, got[0].Elems[7].Str, maxTextBytes)
	require.Equal(t, protocol.OK, l.Reply([][]byte{[]byte("Reset")}, now))
	require.Empty(t, entries())
}

// FuzzParse: no file does more than fail, and a line of ACL LIST is the user again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"user a on >p ~a +@all -@dangerous\nuser b off nopass (~a +get) &x", "user default on nopass ~* &* +@all",
		"# note\r\nuser a #x",
		"user a reset sanitize-payload skip-sanitize-payload resetpass clearselectors",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		us, err := Parse("f", text)
		if err != nil {
			return
		}
		var lines []string
		for _, line := range us.List().Elems {
			lines = append(lines, line.Str)
		}
		again, err := Parse("f", strings.Join(lines, "\n"))
		require.NoError(t, err, lines)
		require.Equal(t, us.List(), again.List())
	})
}
