package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/server/api"
)

const clusterUsage = `usage: holdfast cluster status | members | remove NAME … | repair NAME | replace OLD [NEW] |
                        promote NAME | demote NAME | transfer [NAME]

Describes the members of a cluster, or changes them, through any node. NAME is a member's name or ID.

  status             who leads, who votes, who answers, who lags
  members            the members, with their IDs and addresses
  remove NAME …      take members out, one after the other; a node ends, and its folder is of no more use
  repair NAME        replace the state of a member whose state differs from a majority's by the leader's
  replace OLD [NEW]  give NEW the vote of OLD, and take OLD out; without NEW, the only member that has no vote yet
  promote NAME       give a member that keeps up a vote
  demote NAME        take a member's vote; the member goes on to serve clients
  transfer [NAME]    have another voter lead

A change that would leave fewer voters that answer than a majority is refused, except with --force. A change that was
interrupted is completed by asking for it again.

The exit status of 'status' is 0 if there is a leader, and one more voter may fail; 1 if no node answers; 3 if no leader
is known, if the cluster stops when one more voter fails, if the node that answers is not ready (as after a start, until
its log is applied), or if members do not admit each other. A cluster of one voter has none to spare, and status 0. The
other commands end with 0 when all is done, else with 1 and one line that says why.
`

// statusAtRisk is the exit status of `holdfast cluster status` if the verdict is not OK, or fewer than --voters answer.
const statusAtRisk = 3

const clusterHeading = "The request"

// clusterOwn are the flags of `holdfast cluster`.
type clusterOwn struct {
	clientFlags
	timeout time.Duration
	watch   bool
	json    bool
	force   bool
	gone    bool
	voters  int
	stderr  io.Writer
}

func newClusterOwn() *clusterOwn {
	return &clusterOwn{clientFlags: newClientFlags(), timeout: 30 * time.Second}
}

func (o *clusterOwn) rows() []option {
	return append([]option{
		{heading: clusterHeading},
		{name: "timeout", value: &o.timeout, help: "how long all of it may take"},
		{name: "watch", value: &o.watch, help: "status: show it again each second, with what each node does, until ^C"},
		{name: "json", value: &o.json, help: "status, members: one JSON document in place of the table"},
		{name: "voters", value: &o.voters, help: "status: end with status 3 while fewer voters than this answer"},
		{
			name: "force", value: &o.force,
			help: "remove, replace or demote although fewer voters than a majority would answer: the cluster may stop; " +
				"repair although the state is not known to differ",
		},
		{name: "gone-ok", value: &o.gone, help: "remove: a name that no member has is no error, as after an earlier try"},
	}, o.clientFlags.rows()...)
}

// clusterWord is a subcommand.
type clusterWord struct {
	name string
	run  func(o *clusterOwn, ctx context.Context, words []string, stdout io.Writer) error
}

func clusterWords() []clusterWord {
	return []clusterWord{
		{"status", (*clusterOwn).status},
		{"members", (*clusterOwn).members},
		{"remove", (*clusterOwn).remove},
		{"repair", changing("RAFT.REPAIR", 1, 1, "which member")},
		{"replace", changing("RAFT.REPLACE", 1, 2, "which member, and by which")},
		{"promote", changing("RAFT.PROMOTE", 1, 1, "which member")},
		{"demote", changing("RAFT.DEMOTE", 1, 1, "which member")},
		{"transfer", changing("RAFT.TRANSFER", 0, 1, "at most one member")},
	}
}

// manage is `holdfast cluster`, which shows or changes the members of a cluster.
func manage(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := newClusterOwn()
	o.stderr = stderr
	words, err := parseAnywhere(o.rows(), args, stdout, clusterUsage)
	switch {
	case err != nil:
		return err
	case len(words) == 0:
		return usageError{errors.New("say what: " + strings.Join(clusterNames(), ", "))}
	case o.timeout <= 0:
		return usageError{fmt.Errorf("timeout %v: more than nothing", o.timeout)}
	}
	if o.watch && words[0] != "status" {
		return usageError{errors.New("watch is for 'status'")}
	}
	if o.json && (o.watch || words[0] != "status" && words[0] != "members") {
		return usageError{errors.New("json is for 'status' and 'members'")}
	}
	for _, w := range clusterWords() {
		if w.name == words[0] {
			if forces := []string{"remove", "replace", "demote", "repair"}; o.force && !slices.Contains(forces, w.name) {
				return usageError{fmt.Errorf("%s: there is nothing to force", w.name)}
			}
			if o.gone && w.name != "remove" {
				return usageError{errors.New("gone-ok is for 'remove'")}
			}
			if !o.watch {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, o.timeout)
				defer cancel()
			}
			return w.run(o, ctx, words[1:], stdout)
		}
	}
	return usageError{fmt.Errorf("%q: say one of %s", words[0], strings.Join(clusterNames(), ", "))}
}

func clusterNames() (names []string) {
	for _, w := range clusterWords() {
		names = append(names, w.name)
	}
	return names
}

// servers returns the nodes of the flags.
func (o *clusterOwn) servers() (*operator.Servers, error) {
	servers, err := o.clientFlags.servers()
	if err == nil {
		servers.Name = clientName("holdfast-cluster")
	}
	return servers, err
}

// connect connects to the first node that answers.
func (o *clusterOwn) connect(ctx context.Context) (*operator.Conn, error) {
	servers, err := o.servers()
	if err != nil {
		return nil, err
	}
	return servers.DialAny(ctx, min(o.timeout, nodeTimeout))
}

// look returns the status of the cluster from any node.
func (o *clusterOwn) look(ctx context.Context) (*api.Cluster, error) {
	conn, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return statusOf(ctx, conn)
}

// statusOf returns the status of the cluster from a node.
func statusOf(ctx context.Context, conn *operator.Conn) (*api.Cluster, error) {
	v, err := conn.Do(ctx, "RAFT.STATUS")
	if err != nil {
		return nil, err
	}
	status, err := api.ClusterOf(v)
	return &status, err
}

func (o *clusterOwn) status(ctx context.Context, words []string, stdout io.Writer) error {
	if len(words) > 0 {
		return unexpected(words[0])
	}
	if o.watch {
		return o.watchStatus(ctx, stdout)
	}
	f, err := o.look(ctx)
	if err != nil {
		return err
	}
	if err := o.write(stdout, f, clusterFrame); err != nil {
		return err
	}
	if f.Verdict != api.VerdictOK || f.LiveVoters < int64(o.voters) {
		return exitStatus{status: statusAtRisk}
	}
	return nil
}

func (o *clusterOwn) members(ctx context.Context, words []string, stdout io.Writer) error {
	if len(words) > 0 {
		return unexpected(words[0])
	}
	f, err := o.look(ctx)
	if err != nil {
		return err
	}
	return o.write(stdout, f, memberTable)
}

// write writes the status as a document, or as text.
func (o *clusterOwn) write(stdout io.Writer, status *api.Cluster, text func(*api.Cluster) string) error {
	if o.json {
		return writeJSON(stdout, status)
	}
	_, err := io.WriteString(stdout, text(status))
	return err
}
