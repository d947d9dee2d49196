package main

import (
	"io"
	"os/exec"
	"time"

	"github.com/holdfast/holdfast/protocol/fleet"
)

// process is one node of the demo. It can be started again once it has ended.
type process struct {
	fleet.Process
	addr     string
	http     string // where the page is
	password string // for requests to it
	exe      string
	env      []string
	grace    time.Duration // how long it may take to end after SIGTERM
}

func (p *process) start() error {
	cmd := exec.Command(p.exe, "serve")
	cmd.Env = p.env
	ownGroup(cmd)
	return p.Start(cmd)
}

// cluster is the demo's processes.
type cluster struct {
	nodes     []*process
	leader    *process // as last seen
	dir       string
	removeDir bool
	password  bool // clients must give one
	stdout    io.Writer
}
