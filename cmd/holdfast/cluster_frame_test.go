package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
)

// reply makes fields from names and values.
func reply(words ...any) fields {
	f := make(fields)
	for i := 0; i < len(words); i += 2 {
		switch v := words[i+1].(type) {
		case string:
			f[words[i].(string)] = protocol.Bulk(v)
		case int:
			f[words[i].(string)] = protocol.Integer(int64(v))
		case []fields:
			var rows []protocol.Value
			for _, row := range v {
				var elems []protocol.Value
				for name, value := range row {
					elems = append(elems, protocol.Bulk(name), value)
				}
				rows = append(rows, protocol.Map(elems...))
			}
			f[words[i].(string)] = protocol.Array(rows...)
		}
	}
	return f
}

// statusIn is what is made of a reply to RAFT.STATUS.
func statusIn(t *testing.T, f fields) *api.Cluster {
	var elems []protocol.Value
	for name, value := range f {
		elems = append(elems, protocol.Bulk(name), value)
	}
	c, err := api.ClusterOf(protocol.Map(elems...))
	require.NoError(t, err)
	return &c
}

// TestClusterThatIsNotWell: what is wrong beside silent members is shown, and the status is not 0.
func TestClusterThatIsNotWell(t *testing.T) {
	f := reply("node", "n1", "leader", "n2", "term", 7, "voters", 3, "live-voters", 3, "quorum", 2, "margin", 1)
	f["warnings"] = protocol.Strings("n3: the disk is slow")
	require.Equal(t, api.VerdictOK, statusIn(t, f).Verdict, "a warning is no trouble yet")
	f["troubles"] = protocol.Strings("n1 is not ready: at log index 5 of 90 since the start",
		"n1 and n3 do not admit each other: \x1b[2J\"no\"")
	require.Equal(t, api.VerdictNotWell, statusIn(t, f).Verdict)
	require.Equal(t, `n2 leads in term 7: 3 of 3 voters answer, 1 may fail.
Not well: n1 is not ready: at log index 5 of 90 since the start.
Not well: n1 and n3 do not admit each other: ?[2J"no".
Warning: n3: the disk is slow.

NAME  ROLE  ANSWERS  COULD LEAD  LAG  MATCH  CLIENTS  PEERS  VERSION  FORMAT
`, clusterFrame(statusIn(t, f)))
}

// TestClusterThatIsHeldBack: who holds the version of the cluster back, and why, is no trouble, and is said.
func TestClusterThatIsHeldBack(t *testing.T) {
	f := reply("node", "n1", "leader", "n2", "term", 7, "voters", 3, "live-voters", 3, "quorum", 2, "margin", 1,
		"cluster-version", 5, "members", []fields{
			reply("name", "n1", "log-format", 6, "hold-version", 5),
			reply("name", "n2", "log-format", 6),
			reply("name", "n3", "log-format", 5),
			reply("name", "n4", "log-format", 5, "silent", 1),
			reply("name", "n5", "log-format", 0),
		})
	require.Equal(t, "", heldBack(statusIn(t, f)))
	f["held-back-by"] = protocol.Strings("n1", "n3", "n4", "n5")
	require.Equal(t,
		"The cluster keeps version 5 for n1 (--hold-version 5), n3 (log format 5), n4 (does not answer), n5 (unknown "+
			"log format).\n", heldBack(statusIn(t, f)))
	require.Contains(t, clusterFrame(statusIn(t, f)), heldBack(statusIn(t, f)))
	require.Equal(t, api.VerdictOK, statusIn(t, f).Verdict)
}

func TestClusterFrame(t *testing.T) {
	three := []fields{
		reply("name", "n1", "id", "n1@0123456789ab", "role", "follower", "voter", 1, "silent", 0, "lag", 3, "match-index",
			97, "cannot-lead", "it is in quarantine",
			"client-address", "10.0.0.1:6379", "peer-address", "10.0.0.1:7379", "log-format", 5),
		reply("name", "n2", "id", "n2@0123456789ab", "role", "leader", "voter", 1, "silent", 0, "lag", 0, "match-index", 100,
			"client-address", "10.0.0.2:6379", "peer-address", "10.0.0.2:7379", "version", "0.1.0", "log-format", 6),
		reply("name", "n3", "id", "n3@0123456789ab", "role", "non-voter", "voter", 0, "silent", 1, "lag", -1, "match-index",
			0, "cannot-lead", "it has no vote", "client-address", "", "peer-address", "10.0.0.3:7379\x1b[2J"),
	}
	for _, c := range []struct {
		name   string
		reply  fields
		said   string
		atRisk bool
	}{
		{
			"well", reply("node", "n1", "leader", "n2", "term", 7, "voters", 3, "live-voters", 3, "quorum", 2, "margin", 1),
			"n2 leads in term 7: 3 of 3 voters answer, 1 may fail.", false,
		},
		{
			"five", reply("node", "n1", "leader", "n2", "term", 7, "voters", 5, "live-voters", 5, "quorum", 3, "margin", 2),
			"n2 leads in term 7: 5 of 5 voters answer, 2 may fail.", false,
		},
		{"nothing to spare", reply("node", "n1", "leader", "n2", "term", 7, "voters", 3, "live-voters", 2, "quorum", 2,
			"margin", 0), "n2 leads in term 7: 2 of 3 voters answer, the cluster stops when one more fails.", true},
		{
			"alone", reply("node", "n1", "leader", "n1", "term", 2, "voters", 1, "live-voters", 1, "quorum", 1, "margin", 0),
			"n1 leads alone, in term 2.", false,
		},
		{"a voter and others", reply("node", "n1", "leader", "n1", "term", 2, "voters", 1, "live-voters", 1, "quorum", 1,
			"margin", 0, "members", three), "n1 leads alone, in term 2.", true},
		{
			"no leader", reply("node", "n1", "leader", "", "term", 9, "voters", 3, "live-voters", 1, "quorum", 2, "margin", -1),
			"No leader is known to n1, in term 9: 3 voters, of which 2 must answer.", true,
		},
		{"no cluster", reply("node", "n1", "waiting", "for n2"), "n1 belongs to no cluster yet: for n2.", true},
		{
			"no state", reply("node", "n1", "cluster-id", "c1", "waiting", "for n2"), "n1 does not take part yet: for n2.",
			true,
		},
	} {
		require.Equal(t, c.said, statusIn(t, c.reply).Sentence, c.name)
		require.Equal(t, c.atRisk, statusIn(t, c.reply).Verdict != api.VerdictOK, c.name)
	}
	f := reply("node", "n1", "leader", "n2", "term", 7, "voters", 2, "live-voters", 2, "quorum", 2, "margin", 0,
		"members", three)
	require.Equal(t, `n2 leads in term 7: 2 of 2 voters answer, the cluster stops when one more fails.

NAME  ROLE       ANSWERS  COULD LEAD               LAG  MATCH  CLIENTS        PEERS                   VERSION  FORMAT
n1    follower   yes      no: it is in quarantine  3    97     10.0.0.1:6379  10.0.0.1:7379           unknown  5
n2    leader     yes      yes                      0    100    10.0.0.2:6379  10.0.0.2:7379           0.1.0    6
n3    non-voter  no       no: it has no vote       -    -      -              "10.0.0.3:7379\x1b[2J"  unknown  -
`, clusterFrame(statusIn(t, f)))
	require.Equal(t, "n1 belongs to no cluster yet: for n2.\n",
		clusterFrame(statusIn(t, reply("node", "n1", "waiting", "for n2", "members", three[2:]))))
	require.Equal(t, "n?1 belongs to no cluster yet: for n2.\n",
		clusterFrame(statusIn(t, reply("node", "n\x1b1", "waiting", "for n2"))))
	require.Equal(t, `NAME  ID               ROLE       VOTES  CLIENTS        PEERS
n1    n1@0123456789ab  follower   yes    10.0.0.1:6379  10.0.0.1:7379
n2    n2@0123456789ab  leader     yes    10.0.0.2:6379  10.0.0.2:7379
n3    n3@0123456789ab  non-voter  no     -              "10.0.0.3:7379\x1b[2J"
`, memberTable(statusIn(t, f)))
}
