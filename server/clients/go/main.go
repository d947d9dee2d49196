// Command go runs stock Go clients and lock libraries (go-redis, rueidis, redsync,
// bsm/redislock) against three nodes of Holdfast. It is a module of its own, so that
// Holdfast does not depend on what it is tested with.
//
// Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the
// leader and prints the address it had.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const (
	long = 2 * time.Minute // TTL of what is held over the kill
	soon = 5 * time.Second // within which a lock can be taken after the kill
)

// suite runs named checks and remembers whether one failed.
type suite struct {
	nodes    []string
	failures int
}

func (s *suite) check(name string, run func() error) {
	if err := run(); err != nil {
		s.failures++
		fmt.Printf("  FAIL  %s: %v\n", name, err)
		return
	}
	fmt.Printf("  ok    %s\n", name)
}

// first returns the first error, so that a check reads as a list of steps.
func first(steps ...func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// within repeats run until it succeeds.
func within(limit time.Duration, run func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := run()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func equal[T comparable](found, wanted T) error {
	if found != wanted {
		return fmt.Errorf("found %v, expected %v", found, wanted)
	}
	return nil
}

// fails checks that an error came and says text.
func fails(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("found error %v, expected %q", err, text)
	}
	return nil
}

func (s *suite) others(dead string) []string {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(n string) bool { return n == dead })
}

// heldLock is a lock taken before the kill, on one node.
type heldLock struct {
	library library
	node    string
	name    string
	lock    lock
}

func (s *suite) run(ctx context.Context) error {
	for i, node := range s.nodes {
		other := s.nodes[(i+1)%len(s.nodes)]
		for _, protocol := range []int{3, 2} {
			s.check(fmt.Sprintf("go-redis RESP%d on %s", protocol, node), func() error {
				return goRedis(ctx, node, other, protocol)
			})
		}
		s.check("rueidis on "+node, func() error { return rueidisCommands(ctx, node, other) })
		for _, l := range libraries() {
			s.check(l.name+" on "+node, func() error { return roundTrip(ctx, l, node, other, "go:"+l.name+":"+node) })
		}
	}
	var held []heldLock
	for _, l := range libraries() {
		for _, node := range s.nodes {
			h := heldLock{library: l, node: node, name: "go:" + l.name + ":held:" + node}
			h.lock = l.open(node, h.name)
			s.check(l.name+" takes a lock on "+node+" to hold over the kill", func() error { return h.lock.acquire(ctx) })
			held = append(held, h)
		}
	}
	return s.overTheKill(ctx, held)
}

// kill kills the leader and returns the address it had.
func (s *suite) kill() (string, error) {
	out, err := exec.Command("sh", "-c", os.Getenv("HOLDFAST_KILL")).Output()
	if err != nil {
		return "", fmt.Errorf("kill the leader: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (s *suite) overTheKill(ctx context.Context, held []heldLock) error {
	fence, err := newClient(s.nodes[0], 3).Incr(ctx, "go:fence").Result()
	if err != nil {
		return err
	}
	dead, err := s.kill()
	if err != nil {
		return err
	}
	alive := s.others(dead)
	started := time.Now()
	s.check("a new lock after the kill", func() error {
		return within(soon, func() error { return libraries()[0].open(alive[0], "go:new").acquire(ctx) })
	})
	fmt.Printf("  killed the leader, %s; a new lock was taken %v later\n", dead,
		time.Since(started).Round(time.Millisecond))
	s.check("fencing grows over the kill", func() error {
		next, err := newClient(alive[1], 3).Incr(ctx, "go:fence").Result()
		if err == nil && next <= fence {
			err = fmt.Errorf("%d after %d", next, fence)
		}
		return err
	})
	for _, h := range held {
		s.check(h.library.name+" over the kill, taken on "+h.node, func() error { return h.survived(ctx, dead, alive) })
	}
	return nil
}

// survived: nobody else gets the lock; where the connection is alive its holder can go on.
func (h heldLock) survived(ctx context.Context, dead string, alive []string) error {
	for _, node := range alive {
		if err := h.library.open(node, h.name).acquire(ctx); !errors.Is(err, errTaken) {
			return fmt.Errorf("a stranger on %s: found %v, expected that it is taken", node, err)
		}
	}
	if h.node == dead {
		return nil
	}
	again := h.library.open(h.node, h.name)
	return first(
		func() error { return h.lock.extend(ctx) },
		func() error { return h.lock.release(ctx) },
		func() error { return again.acquire(ctx) },
		func() error { return again.release(ctx) },
	)
}

func main() {
	if info, ok := debug.ReadBuildInfo(); ok && !slices.Contains(os.Args, "connect") {
		for _, d := range info.Deps {
			for _, name := range []string{"redis/go-redis/v9", "redis/rueidis", "go-redsync/redsync/v4", "bsm/redislock"} {
				if strings.HasSuffix(d.Path, name) {
					fmt.Printf("  %s %s\n", name, d.Version)
				}
			}
		}
	}
	s := &suite{nodes: strings.Split(os.Getenv("HOLDFAST_NODES"), ",")}
	run := s.run
	if slices.Contains(os.Args[1:], "pushed") {
		run = s.runPushed
	}
	if i := slices.Index(os.Args, "discovery"); i > 0 {
		run = func(ctx context.Context) error { return s.runDiscovery(ctx, os.Args[i+1]) }
	}
	if i := slices.Index(os.Args, "connect"); i > 0 {
		run = func(ctx context.Context) error { return runConnect(ctx, os.Args[i+1], os.Args[i+2]) }
	}
	if err := run(context.Background()); err != nil {
		fmt.Println("  FAIL ", err)
		os.Exit(1)
	}
	if s.failures > 0 {
		os.Exit(1)
	}
}
