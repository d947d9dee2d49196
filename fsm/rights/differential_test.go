package rights

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// TestDifferential applies random rules here and in Redis. Both must refuse the same rules with the same texts, String
// must recreate the user, and both must allow the same command lines.
func TestDifferential(t *testing.T) {
	ctx := t.Context()
	socket := protocoltest.StartRedis(t)
	client := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
	})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	known := commandsOf(t, client)
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		ours := new(Rights)
		require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "u", "reset", "on").Err())
		var rules []string
		for range 1 + r.IntN(8) {
			rule := randomRule(r, known)
			rules = append(rules, rule)
			err := ours.Apply(rule)
			theirs := client.Do(ctx, "ACL", "SETUSER", "u", rule).Err()
			if err != nil {
				require.EqualError(t, theirs, fmt.Sprintf("ERR Error in ACL SETUSER modifier '%s': %s", rule, err), "%q", rules)
			} else {
				require.NoError(t, theirs, "%q", rules)
			}
		}
		again, err := Words(ours.String())
		require.NoError(t, err)
		copied := []any{"ACL", "SETUSER", "copy", "reset", "on"}
		for _, rule := range again {
			copied = append(copied, rule)
		}
		require.NoError(t, client.Do(ctx, copied...).Err(), "%q", rules)
		compareUsers(t, client, rules)
		compareLines(t, client, ours, rules, known, seed)
	}
}

// compareUsers requires that Redis describes both users alike.
func compareUsers(t *testing.T, client *redis.Client, rules []string) {
	user, err := client.Do(t.Context(), "ACL", "GETUSER", "u").Result()
	require.NoError(t, err)
	again, err := client.Do(t.Context(), "ACL", "GETUSER", "copy").Result()
	require.NoError(t, err)
	require.Equal(t, sorted(t, user), sorted(t, again), "%q", rules)
}

// sorted sorts the root's command rules, since a first argument that is allowed twice moves.
func sorted(t *testing.T, user any) any {
	fields, ok := user.(map[any]any)
	require.True(t, ok)
	words := strings.Fields(fmt.Sprint(fields["commands"]))
	slices.Sort(words)
	fields["commands"] = words
	return fields
}

// compareLines requires the same verdicts on random command lines.
func compareLines(t *testing.T, client *redis.Client, ours *Rights, rules []string, known []*protocol.Command,
	seed uint64,
) {
	g := protocoltest.New(seed)
	g.Key = func(r *rand.Rand) string { return someName(r) }
	g.Value = func(r *rand.Rand, arg *protocol.Arg) (string, bool) {
		return someName(r), strings.Contains(arg.Name, "channel") || arg.Type == protocol.ArgPattern
	}
	for range 60 {
		command := known[g.Rand.IntN(len(known))]
		if command.Subcommands != nil {
			continue
		}
		var words []string
		line := []any{"ACL", "DRYRUN", "u"}
		for _, word := range g.Line(command) {
			words, line = append(words, string(word)), append(line, string(word))
		}
		want, err := client.Do(t.Context(), line...).Text()
		if err != nil {
			require.ErrorContains(t, err, "wrong number of arguments", "%q", line) // later releases accept more words
			continue
		}
		want = strings.Replace(want, "User u has", "This user has", 1) // later releases name the user
		denial, at := Check(ours, command, words, &Budget{Steps: 1 << 20})
		require.Equal(t, want, dryRun(command, words, denial, at), "%q %q", rules, line)
	}
}

func dryRun(command *protocol.Command, words []string, denial Denial, at int) string {
	switch denial {
	case DeniedCommand:
		return "This user has no permissions to run the '" + command.Name + "' command"
	case DeniedKey:
		return "This user has no permissions to access the '" + words[at] + "' key"
	case DeniedChannel:
		return "This user has no permissions to access the '" + words[at] + "' channel"
	}
	return "OK"
}

// commandsOf returns the commands that Redis has as well.
func commandsOf(t *testing.T, client *redis.Client) (known []*protocol.Command) {
	for c := range protocol.Redis().All() {
		info, err := client.Do(t.Context(), "COMMAND", "INFO", c.Name).Slice()
		if err == nil && len(info) == 1 && info[0] != nil {
			known = append(known, c)
		}
	}
	require.Greater(t, len(known), 150)
	return known
}

func randomRule(r *rand.Rand, known []*protocol.Command) string {
	command := known[r.IntN(len(known))].Name
	category := protocol.ACLCategoryNames()[r.IntN(21)]
	all := []string{
		"~" + someName(r), "~" + someName(r), "%R~" + someName(r), "%W~" + someName(r), "%rW~" + someName(r), "&" +
			someName(r), "&" + someName(r),
		"allkeys", "~*", "resetkeys", "allchannels", "&*", "resetchannels", "allcommands", "+@all", "nocommands", "-@all",
		"+" + command, "+" + command, "+" + strings.ToUpper(command), "-" + command, "+@" + category, "+@" + category, "-@" +
			category,
		"+select|1", "+SELECT|2", "+config|get", "+config|nope", "+config|", "+get|", "+config|get|x", "-select|1", "+nope",
		"-nope", "+@nope",
		"%~a", "%R", "%RR~a", "%X~a", "~", "&", "%", "+", "-", "+@", "nonsense", "clearselectors", "~a b", "&a b", "()",
		"(" + "~" + someName(r) + " +@" + category + ")", "(+" + command + " ~* &*)", "(+@all &" + someName(r) +
			")", "(nonsense)", "(~a ~* ~b)",
	}
	return all[r.IntN(len(all))]
}

func someName(r *rand.Rand) string {
	all := []string{"a", "b", "a:1", "a:2", "b:1", "a*", "b:*", "*", "*:1", "[ab]:1", "?", "A"}
	return all[r.IntN(len(all))]
}
