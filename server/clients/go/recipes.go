package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// runRecipes checks the recipe for native locks in recipe.go.
func (s *suite) runRecipes(ctx context.Context) error {
	for name, run := range map[string]func(context.Context) error{
		"waiting": s.recipeWaiting, "leases": s.recipeLeases, "losses": s.recipeLosses, "election": s.recipeElection,
	} {
		s.check("go-redis: "+name, func() error {
			ctx, cancel := context.WithTimeout(ctx, 3*patient)
			defer cancel()
			return run(ctx)
		})
	}
	s.check("go-redis: over the kill", func() error { return s.recipeKill(ctx) })
	return nil
}

// lockOn is a lock at a node.
func (s *suite) lockOn(ctx context.Context, node, name, owner string) (*Lock, error) {
	return NewLock(ctx, redis.Options{Addr: node}, name, owner, 30*time.Second)
}

func (s *suite) do(ctx context.Context, node int, words ...any) *redis.Cmd {
	return newClient(s.nodes[node], 3).Do(ctx, words...)
}

// pair are two locks of one name, at two nodes.
func (s *suite) pair(ctx context.Context, name string) (first, second *Lock, err error) {
	first, err = s.lockOn(ctx, s.nodes[0], name, "first")
	if err == nil {
		second, err = s.lockOn(ctx, s.nodes[1], name, "second")
	}
	return first, second, err
}

// infoOf is a field of LOCK.INFO; "" is none.
func (s *suite) infoOf(ctx context.Context, name, field string) string {
	m, _ := s.do(ctx, 2, "LOCK.INFO", name).Result()
	fields, _ := m.(map[any]any)
	return fmt.Sprint(fields[field])
}

// recipeWaiting: one after the other; the fence grows, and an older one does not pass.
func (s *suite) recipeWaiting(ctx context.Context) error {
	holder, waiter, err := s.pair(ctx, "go:job")
	if err != nil {
		return err
	}
	old, err := holder.Acquire(ctx, "")
	if err != nil {
		return err
	}
	type grant struct {
		fence int64
		err   error
	}
	granted := make(chan grant)
	go func() {
		fence, err := waiter.Acquire(ctx, "")
		granted <- grant{fence, err}
	}()
	err = within(patient, func() error { return equal(s.infoOf(ctx, "go:job", "waiters-count"), "1") })
	if err := errors.Join(err, holder.Release(ctx)); err != nil {
		return err
	}
	got := <-granted
	if got.err != nil || got.fence <= old {
		return fmt.Errorf("fence %d after %d: %w", got.fence, old, got.err)
	}
	return first(
		func() error { return isTrue(MayWrite(ctx, newClient(s.nodes[2], 3), "go:resource", got.fence)) },
		func() error { return isFalse(MayWrite(ctx, newClient(s.nodes[1], 3), "go:resource", old)) },
		waiter.Close, // with it the session, and the hold
		func() error { _, err := holder.Acquire(ctx, ""); return err },
		holder.Close,
	)
}

// recipeLeases: a lease instead of a session is renewed, by its owner alone.
func (s *suite) recipeLeases(ctx context.Context) error {
	fence, err := s.do(ctx, 0, "LOCK.ACQUIRE", "go:lease", "me", "PX", 10_000).Int64()
	if err != nil {
		return err
	}
	again, err := s.do(ctx, 1, "LOCK.RENEW", "go:lease", "me", "PX", 60_000).Int64()
	if err := errors.Join(err, equal(again, fence)); err != nil {
		return err
	}
	if err := s.do(ctx, 2, "LOCK.RENEW", "go:lease", "you", "PX", 60_000).Err(); !errors.Is(err, redis.Nil) {
		return fmt.Errorf("a stranger renews: %w", err)
	}
	return s.do(ctx, 0, "LOCK.RELEASE", "go:lease", "me").Err()
}

// recipeLosses: by push to the holder, and on the lock's channel.
func (s *suite) recipeLosses(ctx context.Context) error {
	l, err := s.lockOn(ctx, s.nodes[0], "go:lost", "me")
	if err != nil {
		return err
	}
	channel := newClient(s.nodes[1], 3).Subscribe(ctx, "__lock@0__:go:lost")
	if _, err := channel.ReceiveTimeout(ctx, patient); err != nil {
		return err
	}
	fence, err := l.Acquire(ctx, "")
	if err != nil {
		return err
	}
	if err := s.do(ctx, 2, "LOCK.BREAK", "go:lost", "REASON", "a test").Err(); err != nil {
		return err
	}
	err = within(patient, func() error {
		held, err := l.Held(ctx)
		return errors.Join(err, equal(held, false), equal(l.Lost, "broken"))
	})
	for err == nil {
		var m *redis.Message
		if m, err = channel.ReceiveMessage(ctx); err == nil && m.Payload == fmt.Sprintf("lost me %d broken", fence) {
			break
		}
	}
	return errors.Join(err, l.Close(), channel.Close())
}

// recipeElection: the leader is who has the lock; its note is where it can be found.
func (s *suite) recipeElection(ctx context.Context) error {
	leader, candidate, err := s.pair(ctx, "go:leader")
	if err != nil {
		return err
	}
	if _, err := leader.Acquire(ctx, "10.0.0.1:80"); err != nil {
		return err
	}
	if found := s.infoOf(ctx, "go:leader", "holders"); !strings.Contains(found, "10.0.0.1:80") {
		return fmt.Errorf("found %s", found)
	}
	won := make(chan error)
	go func() {
		_, err := candidate.Acquire(ctx, "10.0.0.2:80")
		won <- err
	}()
	if err := errors.Join(leader.Close(), <-won); err != nil {
		return err
	}
	if found := s.infoOf(ctx, "go:leader", "holders"); !strings.Contains(found, "10.0.0.2:80") {
		return fmt.Errorf("found %s", found)
	}
	return candidate.Close()
}

// recipeKill: the leader dies, and every hold outlives it; the session of its client is attached elsewhere.
func (s *suite) recipeKill(ctx context.Context) error {
	locks, fences := make(map[string]*Lock), make(map[string]int64)
	for _, node := range s.nodes {
		l, err := s.lockOn(ctx, node, "go:kill:"+node, "me")
		if err != nil {
			return err
		}
		if fences[node], err = l.Acquire(ctx, ""); err != nil {
			return err
		}
		locks[node] = l
	}
	dead, err := s.kill()
	if err != nil {
		return err
	}
	c := newClient(s.others(dead)[0], 3)
	err = within(2*patient, func() error { return c.Do(ctx, "SESSION.ATTACH", locks[dead].Session).Err() })
	for node, fence := range fences {
		found, checkErr := c.Do(ctx, "LOCK.CHECK", "go:kill:"+node, "me").Int64()
		err = errors.Join(err, checkErr, equal(found, fence))
		if node != dead {
			held, heldErr := locks[node].Held(ctx)
			err = errors.Join(err, heldErr, equal(held, true))
		}
	}
	return err
}
