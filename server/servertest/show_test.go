package servertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// As redis-cli 7.0.15 prints them.
func TestShow(t *testing.T) {
	for _, c := range []struct {
		value protocol.Value
		want  string
	}{
		{protocol.OK, "OK"},
		{protocol.Null, "(nil)"},
		{protocol.NullArray, "(nil)"},
		{protocol.Integer(-1), "(integer) -1"},
		{protocol.Bulk("a\n\"b\""), `"a\n\"b\""`},
		{protocol.Err("no"), "(error) ERR no"},
		{protocol.Bool(true), "(true)"},
		{protocol.Double(0.5), "(double) 0.5"},
		{protocol.Verbatim("one\ntwo\n"), "one\ntwo"},
		{protocol.Array(), "(empty array)"},
		{
			protocol.Array(protocol.Integer(1), protocol.Strings("a", "b"), protocol.Null),
			"1) (integer) 1\n2) 1) \"a\"\n   2) \"b\"\n3) (nil)",
		},
		{
			protocol.Strings("1", "2", "3", "4", "5", "6", "7", "8", "9", "10"),
			" 1) \"1\"\n 2) \"2\"\n 3) \"3\"\n 4) \"4\"\n 5) \"5\"\n 6) \"6\"\n 7) \"7\"\n 8) \"8\"\n 9) \"9\"\n10) \"10\"",
		},
		{protocol.Set(protocol.Bulk("a")), `1~ "a"`},
		{protocol.Map(protocol.Bulk("k"), protocol.Integer(1)), `1# "k" => (integer) 1`},
	} {
		require.Equal(t, c.want, Show(c.value))
	}
}
