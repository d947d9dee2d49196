package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func newLocker(node string) (rueidislock.Locker, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{node}}, KeyMajority: 2, KeyValidity: 10 * time.Second,
	})
}

// lockers checks rueidislock, whose waiters and holders hear by invalidations that keys changed.
func (s *suite) lockers(ctx context.Context) error {
	lockers := make([]rueidislock.Locker, len(s.nodes))
	for i, node := range s.nodes {
		var err error
		if lockers[i], err = newLocker(node); err != nil {
			return err
		}
		defer lockers[i].Close()
	}
	s.check("rueidislock: nine callers on three nodes exclude each other", func() error {
		var inside, done atomic.Int32
		var wg sync.WaitGroup
		failures := make(chan error, 9)
		for i := range 9 {
			wg.Go(func() {
				for range 5 {
					_, release, err := lockers[i%3].WithContext(ctx, "go:exclude")
					if err != nil {
						failures <- err
						return
					}
					if inside.Add(1) != 1 {
						failures <- errors.New("two hold it")
					}
					inside.Add(-1)
					done.Add(1)
					release()
				}
			})
		}
		wg.Wait()
		select {
		case err := <-failures:
			return err
		default:
			return equal(done.Load(), 45)
		}
	})
	for i, node := range s.nodes {
		other := s.nodes[(i+1)%3]
		s.check("rueidislock on "+node+": a holder hears that its keys are gone", func() error {
			name := "go:forced:" + node
			held, release, err := lockers[i].WithContext(ctx, name)
			if err != nil {
				return err
			}
			defer release()
			if _, _, err := lockers[(i+1)%3].TryWithContext(ctx, name); !errors.Is(err, rueidislock.ErrNotLocked) {
				return fmt.Errorf("a rival's try: %v", err)
			}
			for n := range 3 {
				if err := newClient(other, 3).Del(ctx, fmt.Sprintf("rueidislock:%d:%s", n, name)).Err(); err != nil {
					return err
				}
			}
			select {
			case <-held.Done():
				return nil
			case <-time.After(patient):
				return errors.New("the context did not end")
			}
		})
	}
	return nil
}

// holdAndWait takes a lock on a node that stays and lets a caller on the other wait for it. The
// check it returns, for after the kill: the holder still holds it, and its release lets the waiter in.
func (s *suite) holdAndWait(ctx context.Context, alive []string) func() error {
	fail := func(err error) func() error { return func() error { return err } }
	holder, err := newLocker(alive[0])
	if err != nil {
		return fail(err)
	}
	rival, err := newLocker(alive[1])
	if err != nil {
		return fail(err)
	}
	held, release, err := holder.WithContext(ctx, "go:kill")
	if err != nil {
		return fail(err)
	}
	waiter := make(chan error, 1)
	go func() {
		_, leave, err := rival.WithContext(ctx, "go:kill")
		if err == nil {
			leave()
		}
		waiter <- err
	}()
	return func() error {
		select {
		case err := <-waiter:
			return fmt.Errorf("the waiter got it while it was held: %v", err)
		case <-held.Done():
			return errors.New("the holder lost it")
		case <-time.After(time.Second):
		}
		release()
		select {
		case err := <-waiter:
			return err
		case <-time.After(3 * patient):
			return errors.New("the waiter got nothing")
		}
	}
}
