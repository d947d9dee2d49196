package target

import (
	"context"
	"errors"
)

// redlock acquires a lock on a majority of independent servers, like the Redlock algorithm. It ignores validity times,
// since no lock is held that long here.
type redlock struct{ servers []Client }

func dialRedlock(ctx context.Context, addrs []string, o Options) (Client, error) {
	r := &redlock{}
	for _, addr := range addrs {
		c, err := dialRaw(ctx, addr, o)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.servers = append(r.servers, c)
	}
	return r, nil
}

// all asks all servers concurrently and counts those that answer yes. An error counts as no, unless all return one.
func (r *redlock) all(ask func(Client) (bool, error)) (yes int, err error) {
	type answer struct {
		ok  bool
		err error
	}
	answers := make(chan answer, len(r.servers))
	for _, c := range r.servers {
		go func() {
			ok, err := ask(c)
			answers <- answer{ok, err}
		}()
	}
	failed := 0
	for range r.servers {
		a := <-answers
		if a.err != nil {
			failed++
			err = errors.Join(err, a.err)
		}
		if a.ok {
			yes++
		}
	}
	if failed < len(r.servers) {
		err = nil
	}
	return yes, err
}

func (r *redlock) majority(yes int) bool { return yes > len(r.servers)/2 }

func (r *redlock) Acquire(ctx context.Context, key, token string) (bool, error) {
	yes, err := r.all(func(c Client) (bool, error) { return c.Acquire(ctx, key, token) })
	if err == nil && !r.majority(yes) && yes > 0 {
		_, err = r.Release(ctx, key, token)
		return false, err
	}
	return r.majority(yes), err
}

func (r *redlock) Release(ctx context.Context, key, token string) (bool, error) {
	yes, err := r.all(func(c Client) (bool, error) { return c.Release(ctx, key, token) })
	return r.majority(yes), err
}

func (r *redlock) Renew(ctx context.Context, key, token string) (bool, error) {
	yes, err := r.all(func(c Client) (bool, error) { return c.Renew(ctx, key, token) })
	return r.majority(yes), err
}

func (r *redlock) Read(ctx context.Context, key string) (string, error) {
	return r.servers[0].Read(ctx, key)
}

func (r *redlock) Close() error {
	var err error
	for _, c := range r.servers {
		err = errors.Join(err, c.Close())
	}
	return err
}
