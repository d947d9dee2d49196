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

	"github.com/holdfast/holdfast/cmd/internal/holder"
)

// releaseLimit is how long a command's end may wait for the lock to be given back. The lock ends
// with its session all the same.
const releaseLimit = 3 * time.Second

// guard runs a command while a lock is held, and ends the command when the lock is lost.
type guard struct {
	holder *holder.Holder
	name   string
	grace  time.Duration // from SIGTERM to SIGKILL
	margin time.Duration // by how much SIGKILL comes before a session may have ended
	job    *job

	signals chan os.Signal
	lost    chan *holder.Lost
	loosen  context.CancelFunc // ends keeping
	kept    chan struct{}      // closed when keeping has ended

	loss   *holder.Lost // the one that was told
	killAt time.Time
	kill   <-chan time.Time
}

// run returns when the command has ended.
func (g *guard) run() error {
	// The command dies with the thread that started it: see diesWithParent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.signals, g.lost = make(chan os.Signal, 16), make(chan *holder.Lost, 1)
	signal.Notify(g.signals, heeded(forwarded...)...)
	defer signal.Stop(g.signals)
	if err := g.job.start(); err != nil {
		g.release()
		return exitStatus{statusNotExecutable, err.Error()}
	}
	g.keep()
	for {
		select {
		case <-g.job.done:
			g.stopKeeping()
			return g.end()
		case s := <-g.signals:
			g.job.signal(s.(syscall.Signal))
		case s := <-g.job.stopped:
			g.follow(s)
		case loss := <-g.lost:
			g.terminate(loss)
		case <-g.kill:
			g.job.signal(syscall.SIGKILL)
		}
	}
}

// keep keeps the lock in the background until stopKeeping.
func (g *guard) keep() {
	ctx, cancel := context.WithCancel(context.Background())
	g.loosen, g.kept = cancel, make(chan struct{})
	go func(kept chan struct{}) {
		defer close(kept)
		if loss := (*holder.Lost)(nil); errors.As(g.holder.Keep(ctx), &loss) {
			g.lost <- loss
		}
	}(g.kept)
}

func (g *guard) stopKeeping() {
	g.loosen()
	<-g.kept
}

// terminate begins the end of the command: SIGTERM, and SIGKILL after the grace, or before others can
// have the lock if it is still this owner's.
func (g *guard) terminate(loss *holder.Lost) {
	if g.loss != nil {
		return
	}
	g.loss = loss
	g.killAt = time.Now().Add(g.grace)
	if last := loss.Until.Add(-g.margin); !loss.Until.IsZero() && last.Before(g.killAt) {
		g.killAt = last
	}
	g.kill = time.After(time.Until(g.killAt))
	g.job.signal(syscall.SIGTERM)
	g.job.wake()
}

// follow stops this process when the command was stopped from the terminal. The node keeps the session
// meanwhile, as the connection stays open and no sign of life is demanded. The command goes on only when the lock is
// still held.
func (g *guard) follow(by syscall.Signal) {
	if g.loss != nil || !g.job.mayStop(by) {
		return
	}
	g.stopKeeping()
	g.holder.Suspend(context.Background())
	g.job.stopSelf()
	select {
	case loss := <-g.lost: // before the stop
		g.job.goOn()
		g.terminate(loss)
		return
	default:
	}
	err := g.holder.Resume(context.Background())
	g.job.goOn()
	if loss := (*holder.Lost)(nil); errors.As(err, &loss) {
		g.terminate(loss)
		return
	}
	g.job.wake()
	g.keep()
}

// end is when the command has ended: the lock is given back, or what is left of the command is killed.
func (g *guard) end() error {
	select {
	case loss := <-g.lost:
		g.terminate(loss)
	default:
	}
	g.job.regain()
	if g.loss == nil {
		g.loss = g.release()
	} else {
		g.job.killRest(g.killAt)
	}
	if g.loss != nil {
		return exitStatus{statusLost, fmt.Sprintf("lost %s, fence %d: %v", g.name, g.holder.Fence(), g.loss)}
	}
	return g.job.status()
}

// release gives the lock back; a loss that this process had not heard of comes to light then.
func (g *guard) release() *holder.Lost {
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	err := g.holder.Release(ctx)
	if loss := (*holder.Lost)(nil); errors.As(err, &loss) {
		return loss
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "holdfast lock: %s is not given back, and ends by itself: %v\n", g.name, err)
	}
	return nil
}

// heeded leaves out the signals that this process was started to ignore, as by nohup.
func heeded(signals ...os.Signal) []os.Signal {
	var heeded []os.Signal
	for _, s := range signals {
		if !signal.Ignored(s) {
			heeded = append(heeded, s)
		}
	}
	return heeded
}
