package checker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRightsWrongOnPurposeAreFound(t *testing.T) {
	rights := Rights(Owner{Prefix: "a:", First: 10, Last: 14}, Owner{Prefix: "b:", First: 20, Last: 24, MaxKeys: 2})
	judge(t, []sample{
		{"refused", rights, `
			0-10    trespass a:1 0 25 -> 1
			20-30   trespass b:1 0 15 -> 1
			40-50   trespass b:1 0 15 info
			60-70   trespass b:1 0 15 fail`, ""},
		{"not refused", rights, `
			0-10    trespass a:1 0 25 -> 0`, "was not refused"},
		{"own values", rights, `
			0-10    write a:1 10
			20-30   read a:1 -> 10
			40-50   read a:1 -> 14
			60-70   read b:1 ->
			80-90   write b:1 -1`, ""},
		{"a refused command has an effect on its own keys", rights, `
			0-10    read a:1 -> 15`, "did not write"},
		{"the other user's value", rights, `
			0-10    read b:1 -> 14`, "did not write"},
		{"as many keys as the quota", rights, `
			0-10    count b:* -> 2
			20-30   count a:* -> 5`, ""},
		{"more keys than the quota", rights, `
			0-10    count b:* -> 3`, "more keys than the quota of 2"},
	})
	errors := []struct{ f, key, why, finds string }{
		{"write", "b:1", "QUOTA command not allowed: user 'b' has all of its 2 keys", ""},
		{"write", "a:1", "QUOTA command not allowed: user 'a' has all of its 2 keys", "there is no quota"},
		{"write", "b:1", "NOPERM this user has no permissions", "of the owner was refused"},
		{"write", "b:1", "ERR The user executing the script can't access", "of the owner was refused"},
		{"write", "b:1", "CLUSTERDOWN No leader is known", ""},
		{"trespass", "b:1", "CLUSTERDOWN No leader is known", ""},
		{"trespass", "b:1", "ERR value is not an integer", "for another reason"},
		{"trespass", "b:1", "QUOTA command not allowed", "for another reason"},
		{"trespass", "b:1", "NOPERM this user has no permissions to run the 'set' command", "for another reason"},
	}
	for _, e := range errors {
		t.Run(e.f+" "+e.key+" "+e.why, func(t *testing.T) {
			h := script(t, "0-10 "+e.f+" "+e.key+" 1 fail")
			h.Ops[0].Error = e.why
			r := rights(h)
			require.Equal(t, e.finds != "", r.Total == 1, "%s", r)
			require.Contains(t, r.String(), e.finds)
		})
	}
}
