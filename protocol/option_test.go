package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newerRow is a row with options of later versions, in each form that options have.
func newerRow() Command {
	return Command{Name: "do"}.fromLog(1).taking(
		integer("numkeys"), key("key").many(), text("value"), oneOf("expiry", integer("seconds").after("EX"),
			integer("milliseconds").after("PX").fromLog(2)).opt(),
		token("OLD").opt(), text("note").after("NOTE").opt(), token("NEW").opt().fromLog(2),
		block("page", integer("offset"), integer("count")).after("LIMIT").opt(),
		oneOf("mode", token("A"), block("b", token("B"), text("why").after("WHY").opt())).opt().fromLog(3),
	)
}

// TestLaterOption: an option is found wherever it stands, and no value is taken for one.
func TestLaterOption(t *testing.T) {
	row := newerRow()
	require.EqualValues(t, 3, row.NewestVersion())
	for _, other := range []Command{Command{}.fromLog(2), Command{}.taking(token("X").fromLog(2))} {
		require.EqualValues(t, 2, other.NewestVersion())
	}
	for line, want := range map[string]string{
		"1 k v":                            "",
		"1 k v new":                        "3 NEW 2",
		"2 NEW NEW NEW NEW":                "4 NEW 2",
		"1 NEW NEW":                        "",
		"1 k NEW OLD":                      "",
		"1 k v OLD NEW":                    "4 NEW 2",
		"1 k v NOTE NEW":                   "",
		"1 k v NOTE NEW Px 5":              "5 PX 2",
		"1 k v EX PX":                      "",
		"1 k v LIMIT 1 NEW OLD":            "",
		"1 k v LIMIT 1 2 NEW":              "6 NEW 2",
		"1 k v A":                          "3 A 3",
		"1 k v WHY x":                      "3 WHY 3",
		"1 k v B NEW":                      "3 B 3",
		"1 k v strange NEW":                "", // a syntax error in any case
		"1 k v NOTE":                       "",
		"x k NEW":                          "2 NEW 2",
		"9 k v NEW":                        "",
		"-1 NEW":                           "",
		"99999999999999999999 NEW NEW NEW": "",
		"":                                 "",
	} {
		words := strings.Fields(line)
		at, later, from := LaterOption(&row, words, 1)
		got := ""
		if later != nil {
			got = fmt.Sprint(at, " ", later.Token, " ", from)
		}
		require.Equal(t, want, got, line)
		_, later, _ = LaterOption(&row, words, 3)
		require.Nil(t, later, line)
	}
}
