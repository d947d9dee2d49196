package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/backup"
	"github.com/holdfast/holdfast/server/bootstrap"
)

const recoverUsage = `usage: holdfast recover --data-dir DIR [flags]

For a cluster that has lost its majority for good: makes the node of a folder a new cluster of its own, in place. The
node must not run. Without --yes the command says what it would do, and what is lost, and does nothing.
`

// recoverOwn are the flags of `holdfast recover`.
type recoverOwn struct {
	renewalOwn
	dataDir, peerAddr string
	yes               bool
}

func newRecoverOwn() *recoverOwn {
	return &recoverOwn{renewalOwn: renewalOwn{minLease: defaultMinLease, keepLocks: true}}
}

const recoverHeading = "The survivor"

func (o *recoverOwn) rows() []option {
	return append([]option{
		{heading: recoverHeading},
		{name: "data-dir", value: &o.dataDir, help: "the node's folder"},
		{name: "peer-addr", value: &o.peerAddr, help: "where other nodes dial the node; default: as before"},
		{name: "yes", value: &o.yes, help: "do it"},
	}, o.renewalOwn.rows()...)
}

// recovery is `holdfast recover`.
func recovery(_ context.Context, args []string, stdout, _ io.Writer) (err error) {
	o := newRecoverOwn()
	words, err := parseAnywhere(o.rows(), args, stdout, recoverUsage)
	switch {
	case err != nil:
		return err
	case len(words) > 0:
		return unexpected(words[0])
	case o.dataDir == "":
		return usageError{errors.New("say which folder: --data-dir")}
	}
	renewal, err := o.renewal()
	if err != nil {
		return err
	}
	s, err := backup.Survive(o.dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	addr := cmp.Or(o.peerAddr, s.Addr())
	if err := bootstrap.CheckAddr(addr); err != nil {
		return usageError{fmt.Errorf("%w: say --peer-addr", err)}
	}
	p := &paper{w: stdout}
	p.survivor(s)
	if !o.yes {
		p.line("would do", "a new cluster of this node alone, at %s; the other members can only join it with empty folders",
			addr)
		p.line("next", "make sure that no other member runs, copy the folder, then say --yes")
		return p.err
	}
	s.User, s.Host = whoAndWhere()
	done, err := s.Recover(addr, renewal, func(done fsm.Renewed) error { return raisedSome(&renewal, &done) })
	if err != nil {
		return aboutTime(err)
	}
	if !s.Begun {
		p.renewed(&renewal, &done)
	}
	p.line("done", "node %s is the only member of cluster %s", s.Identity.ID, s.Identity.ClusterID)
	p.line("next", "start this node, then others with empty folders and --join %s", addr)
	return p.err
}

// survivor adds the contents of a folder, and what may be lost.
func (p *paper) survivor(s *backup.Survivor) {
	if s.Begun {
		p.line("begun", "a recovery was begun here before, and has only to be ended")
		return
	}
	p.line("folder", "node %s of cluster %s", s.Identity.ID, s.Identity.ClusterID)
	p.line("log", "up to index %d, term %d; known to be committed up to %d, and all the rest is kept", s.Log.Last,
		s.Log.Term, s.Log.Snapshot)
	var gone []string
	for _, m := range s.Log.Members.Members {
		if m.ID != s.Identity.ID {
			gone = append(gone, m.Name()+" at "+m.Addr)
		}
	}
	p.line("members gone", "%s", cmp.Or(strings.Join(gone, ", "), "none"))
	if s.Identity.InQuarantine() {
		p.line("quarantine", "its state differed from the other members' at index %d, or was about to be replaced: recover "+
			"another survivor if there is one", s.Identity.Quarantine.Index)
	}
	p.line("may be lost",
		"writes that this node had not heard of: of several survivors recover the one with the largest term, then index")
	p.state(&s.Survey)
	p.fences(&s.Survey)
}
