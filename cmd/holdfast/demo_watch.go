package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// failoverLimit bounds the demo's search for a new leader.
const failoverLimit = 10 * time.Second

// lines returns a channel that gets a value for every line of r and is closed at its end. Its goroutine ends with r.
func lines(r io.Reader) <-chan struct{} {
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			entered <- struct{}{}
		}
	}()
	return entered
}

// restartPause is the time before a dead node is restarted in a demo without a terminal.
const restartPause = 5 * time.Second

// watch reports the end of each node, and restarts dead nodes at every line of stdin, or after restartPause once stdin
// has ended. It returns when ctx ends, or when all nodes are dead and stdin has ended.
func (d *cluster) watch(ctx context.Context, entered <-chan struct{}) error {
	ended := make(chan death)
	for _, p := range d.nodes {
		go death{p, p.Done()}.send(ctx, ended)
	}
	var due <-chan time.Time
	again := func() {
		for _, p := range d.bringBack(ctx) {
			go death{p, p.Done()}.send(ctx, ended)
		}
	}
	for {
		select {
		case e := <-ended:
			if e.process.Done() == e.done { // it was not restarted meanwhile
				d.reportDeath(ctx, e.process)
			}
			if entered == nil {
				due = time.After(restartPause)
			}
		case <-due:
			again()
		case _, open := <-entered:
			if !open {
				entered = nil
				break
			}
			again()
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil:
			fmt.Fprintln(d.stdout, "\nstopping")
			return nil
		case entered == nil && len(d.living()) == 0:
			return errAllEnded
		}
	}
}

// death is the end of one start of a process.
type death struct {
	process *process
	done    <-chan struct{}
}

// send sends e once the process has ended.
func (e death) send(ctx context.Context, ended chan<- death) {
	select {
	case <-e.done:
	case <-ctx.Done():
		return
	}
	select {
	case ended <- e:
	case <-ctx.Done():
	}
}

// reportDeath reports the end of p, and the present leader.
func (d *cluster) reportDeath(ctx context.Context, p *process) {
	begin := time.Now()
	led := d.leader
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	leader, err := d.awaitLeader(ctx)
	d.leader = leader
	switch {
	case errors.Is(err, errMinority):
		fmt.Fprintf(d.stdout, "%s is gone (%s). %d of %d nodes are left: no lock can be taken until a majority is back.\n",
			p.Name, p.ExitState(), len(d.living()), len(d.nodes))
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		fmt.Fprintf(d.stdout, "%s is gone (%s), and no node leads after %v: see the logs in %s\n", p.Name, p.ExitState(),
			failoverLimit, d.dir)
	case err != nil: // the demo is stopping
	case leader == led:
		fmt.Fprintf(d.stdout, "%s is gone (%s), %s still leads.\n", p.Name, p.ExitState(), leader.Name)
	default:
		fmt.Fprintf(d.stdout, "%s is gone (%s), %s leads after %s.\n", p.Name, p.ExitState(), leader.Name, seconds(begin))
	}
}

// bringBack restarts every node that has ended, and returns these nodes.
func (d *cluster) bringBack(ctx context.Context) []*process {
	begin := time.Now()
	var started []*process
	for _, p := range d.nodes {
		if p.Running() {
			continue
		}
		if err := p.start(); err != nil {
			fmt.Fprintln(d.stdout, err)
			continue
		}
		started = append(started, p)
	}
	ctx, cancel := context.WithTimeout(ctx, demoStartLimit)
	defer cancel()
	for _, p := range started {
		if err := p.waitServing(ctx); err != nil {
			fmt.Fprintln(d.stdout, err)
			continue
		}
		d.leader, _ = d.awaitLeader(ctx)
		role := "and follows"
		if d.leader == p {
			role = "and leads"
		}
		fmt.Fprintf(d.stdout, "%s is back as pid %d after %s, %s.\n", p.Name, p.PID(), seconds(begin), role)
	}
	if len(started) == 0 {
		fmt.Fprintln(d.stdout, "All nodes run.")
	}
	return started
}

func seconds(begin time.Time) string { return fmt.Sprintf("%.2f s", time.Since(begin).Seconds()) }

func (d *cluster) howTo() {
	w := d.stdout
	fmt.Fprintf(w, "Holdfast serves: three nodes, one lock server.\n\n")
	for _, p := range d.nodes {
		role := "follows"
		if p == d.leader {
			role = "leads"
		}
		fmt.Fprintf(w, "  %s  %s  pid %d  %s\n", p.Name, p.addr, p.PID(), role)
	}
	if d.password {
		fmt.Fprintf(w,
			"\nClients must give the password; redis-cli takes it from its environment:\n\n  export REDISCLI_AUTH=…\n")
	}
	first := portOf(d.nodes[0].addr)
	last := portOf(d.nodes[len(d.nodes)-1].addr)
	fmt.Fprintf(w, `
Take a lock on one node, see it on another, release it with the script that every lock library sends:

  redis-cli -p %[1]s SET lock:a token-1 NX PX 30000
  redis-cli -p %[2]s PTTL lock:a
  redis-cli -p %[2]s INCR fence:a
  redis-cli -p %[1]s EVAL "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end" 1 lock:a token-1

Take a native lock, which answers with a fencing token; with another owner the same line waits for its turn:

  redis-cli -p %[2]s LOCK.ACQUIRE job owner-1 PX 30000 WAIT 60000

See who holds and who waits:

  http://%[5]s/

Kill the leader; what was acknowledged is still there:

  kill -9 %[3]d

Data and logs are in %[4]s.
Enter starts nodes again that have ended, Ctrl-C stops everything.
Where there is no input, as in a container, they start after 5 s by themselves.

`, first, last, d.leader.PID(), d.dir, d.nodes[0].http)
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

var errAllEnded = errors.New("all nodes have ended")
