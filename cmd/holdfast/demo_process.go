package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is one node of the demo. It can be started again once it has ended.
type process struct {
	name, addr string
	http       string // where the page is
	password   string // for requests to it
	exe        string
	env        []string
	log        string        // file that gets what it writes
	grace      time.Duration // how long it may take to end after SIGTERM

	*life        // the present one, or the last; nil before the first
	logEnd int64 // where the log ended before it
}

// life is from one start of a process to its end.
type life struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // how it ended; valid once done is closed
}

func (p *process) start() error {
	log, err := p.openLog()
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(p.exe, "serve")
	cmd.Env, cmd.Stderr = p.env, log
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	l := &life{cmd: cmd, done: make(chan struct{})}
	p.life = l
	go func() {
		l.err = cmd.Wait()
		close(l.done)
	}()
	return nil
}

func (p *process) openLog() (*os.File, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", p.name, err)
	}
	info, err := log.Stat()
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("open log of %s: %w", p.name, err)
	}
	p.logEnd = info.Size()
	return log, nil
}

// output is what the process wrote to its log since its last start.
func (p *process) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil || int64(len(text)) < p.logEnd {
		return ""
	}
	return string(text[p.logEnd:])
}

func (l *life) pid() int { return l.cmd.Process.Pid }

// alive reports whether the process was started and has not ended.
func (l *life) alive() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// end says in a word or two how the process ended.
func (l *life) end() string {
	if l.err == nil {
		return "exit status 0"
	}
	return l.err.Error()
}

// terminate asks the process to end.
func (p *process) terminate() {
	if p.alive() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// await waits for the end of a process after terminate, and kills the process when its grace is over.
func (p *process) await() {
	if p.life == nil {
		return
	}
	limit := time.NewTimer(p.grace)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
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
