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
	http     string // the address of the page
	password string // for requests to the node
	exe      string
	env      []string
	grace    time.Duration // the time from SIGTERM to SIGKILL
}

func (p *process) start() error {
	cmd := exec.Command(p.exe, "serve")
	cmd.Env = p.env
	ownGroup(cmd)
	return p.Start(cmd)
}

// cluster has the demo's processes.
type cluster struct {
	nodes     []*process
	leader    *process // as last seen
	dir       string
	removeDir bool
	password  bool // clients need one
	stdout    io.Writer
}
