package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/server/clients/go/holdfast"
)

// releaseLimit bounds the release of the lock at the end. If it fails, the lock ends with its session.
const releaseLimit = 3 * time.Second

// guard runs a command while a lock is held, and ends the command if the lock is lost.
type guard struct {
	client *holdfast.Client
	lock   *holdfast.Lock
	name   string
	grace  time.Duration // from SIGTERM to SIGKILL
	ttl    time.Duration // of the session
	job    *job

	signals chan os.Signal

	loss   *holdfast.LostError // the loss for which the command was ended, or nil
	killAt time.Time
	kill   <-chan time.Time
}

// run runs the command until it has ended.
func (g *guard) run() error {
	// The command dies with the thread that started it: see diesWithParent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.signals = make(chan os.Signal, 16)
	signal.Notify(g.signals, heeded(forwarded...)...)
	defer signal.Stop(g.signals)
	if err := g.job.start(); err != nil {
		g.release()
		return exitStatus{statusNotExecutable, err.Error()}
	}
	for lost := g.lock.Context().Done(); ; {
		select {
		case <-g.job.done:
			return g.end()
		case s := <-g.signals:
			g.job.signal(s.(syscall.Signal))
		case s := <-g.job.stopped:
			g.follow(s)
		case <-lost:
			lost = nil
			g.terminateIfLost()
		case <-g.kill:
			g.job.signal(syscall.SIGKILL)
		}
	}
}

// terminateIfLost begins to end the command if the lock is lost: by SIGTERM, and by SIGKILL after the grace, or
// earlier, before the lock can be granted to another owner.
func (g *guard) terminateIfLost() (lost bool) {
	if g.loss != nil || !errors.As(context.Cause(g.lock.Context()), &g.loss) {
		return g.loss != nil
	}
	g.killAt = time.Now().Add(g.grace)
	if last := g.loss.Until.Add(-g.ttl / 20); !g.loss.Until.IsZero() && last.Before(g.killAt) {
		g.killAt = last
	}
	g.kill = time.After(time.Until(g.killAt))
	g.job.signal(syscall.SIGTERM)
	g.job.wake()
	return true
}

// follow stops this process if the command was stopped from the terminal. The node keeps the session alive meanwhile.
// The command continues after a node has confirmed the hold.
func (g *guard) follow(by syscall.Signal) {
	if g.loss != nil || !g.job.mayStop(by) {
		return
	}
	resume := g.client.Suspend(context.Background())
	g.job.stopSelf()
	ctx, cancel := context.WithTimeout(context.Background(), g.ttl)
	defer cancel()
	resume(ctx)
	g.job.goOn()
	if !g.terminateIfLost() {
		g.job.wake()
	}
}

// end handles the end of the command: it releases the lock, or kills the rest of the command's processes after a loss.
func (g *guard) end() error {
	g.terminateIfLost()
	g.job.regain()
	if g.loss == nil {
		g.loss = g.release()
	} else {
		g.job.killRest(g.killAt)
	}
	if g.loss != nil {
		return exitStatus{statusLost, fmt.Sprintf("lost %s, fence %d: %s", g.name, g.lock.Fence(), reasonOf(g.loss))}
	}
	return g.job.status()
}

// reasonOf describes why the lock was lost.
func reasonOf(loss *holdfast.LostError) string {
	why := loss.Reason
	switch why {
	case "session":
		why = "the session ended"
	case "unknown":
		why = "it is no longer this owner's"
	}
	if loss.By != "" {
		why += " by " + loss.By
	}
	if loss.Text != "" {
		why += ": " + loss.Text
	}
	return why
}

// release releases the lock, and returns a loss that this process did not know of.
func (g *guard) release() (loss *holdfast.LostError) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	if err := g.lock.Unlock(ctx); !errors.As(err, &loss) && err != nil {
		fmt.Fprintf(os.Stderr, "holdfast lock: %s is not given back, and ends by itself: %v\n", g.name, err)
	}
	return loss
}

// heeded returns the signals that this process does not ignore since its start, as under nohup.
func heeded(signals ...os.Signal) []os.Signal {
	var heeded []os.Signal
	for _, s := range signals {
		if !signal.Ignored(s) {
			heeded = append(heeded, s)
		}
	}
	return heeded
}
