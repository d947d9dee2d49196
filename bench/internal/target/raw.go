package target

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/protocol"
)

// raw is a client without a library, which leaves more of a small machine to the servers. It redials after a connection
// error.
type raw struct {
	addr           string
	o              Options
	conn           *resp.Conn
	release, renew script
}

// script is a Lua source with its hash.
type script struct{ source, hash string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source: source, hash: hex.EncodeToString(sum[:])}
}

func dialRaw(ctx context.Context, addr string, o Options) (Client, error) {
	r, err := newRaw(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return r, nil
}

func newRaw(ctx context.Context, addr string, o Options) (*raw, error) {
	r := &raw{addr: addr, o: o, release: newScript(releaseScript), renew: newScript(renewScript)}
	if _, err := r.do(ctx, "PING"); err != nil {
		return nil, errors.Join(fmt.Errorf("reach %s: %w", addr, err), r.Close())
	}
	return r, nil
}

// do sends a command and reads its reply.
func (r *raw) do(ctx context.Context, words ...string) (protocol.Value, error) {
	if err := r.connect(ctx); err != nil {
		return protocol.Value{}, err
	}
	v, err := r.conn.Do(words...)
	return v, r.check(err)
}

func (r *raw) connect(ctx context.Context) (err error) {
	if r.conn == nil {
		r.conn, err = resp.Dial(ctx, r.addr, r.o.Timeout)
	}
	return err
}

// check drops the connection unless the error is a reply of the server.
func (r *raw) check(err error) error {
	var reply *resp.ReplyError
	if err != nil && !errors.As(err, &reply) {
		_ = r.Close()
	}
	return err
}

// Acquire pipelines SET and WAIT, which saves a round trip.
func (r *raw) Acquire(ctx context.Context, key, token string) (bool, error) {
	if r.o.Wait == 0 {
		v, err := r.do(ctx, "set", key, token, "nx", "px", r.o.ttlMillis())
		return err == nil && !v.IsNull(), err
	}
	if err := r.connect(ctx); err != nil {
		return false, err
	}
	r.conn.Append("set", key, token, "nx", "px", r.o.ttlMillis())
	r.conn.Append("wait", strconv.Itoa(r.o.Wait), waitMillis)
	if err := r.check(r.conn.Flush()); err != nil {
		return false, err
	}
	set, err := r.conn.Read()
	if err = r.check(err); r.conn == nil {
		return false, err
	}
	wait, waitErr := r.conn.Read()
	switch err = errors.Join(err, r.check(waitErr)); {
	case err != nil || set.IsNull():
		return false, err
	case wait.Num < int64(r.o.Wait):
		return false, ErrNotReplicated
	}
	return true, nil
}

func (r *raw) Release(ctx context.Context, key, token string) (bool, error) {
	return r.eval(ctx, r.release, key, token)
}

func (r *raw) Renew(ctx context.Context, key, token string) (bool, error) {
	return r.eval(ctx, r.renew, key, token, r.o.ttlMillis())
}

// eval runs a script that returns 1 or 0.
func (r *raw) eval(ctx context.Context, s script, key string, args ...string) (bool, error) {
	v, err := r.run(ctx, s, key, args...)
	return v.Num == 1, err
}

// run runs a script by its hash, or by its source if the server lacks it.
func (r *raw) run(ctx context.Context, s script, key string, args ...string) (protocol.Value, error) {
	words := append([]string{"evalsha", s.hash, "1", key}, args...)
	v, err := r.do(ctx, words...)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT ") {
		words[0], words[1] = "eval", s.source
		v, err = r.do(ctx, words...)
	}
	return v, err
}

func (r *raw) Read(ctx context.Context, key string) (string, error) {
	v, err := r.do(ctx, "get", key)
	return v.Str, err
}

func (r *raw) Close() error {
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}

// native acquires native locks. Acquire waits.
type native struct{ *raw }

func dialNative(ctx context.Context, addr string, o Options) (Client, error) {
	r, err := newRaw(ctx, addr, o)
	if err != nil {
		return nil, err
	}
	return native{r}, nil
}

// waitShare is a lock wait's share of the command timeout, in percent.
const waitShare = 90

// Acquire waits for the lock; the token is the owner.
func (n native) Acquire(ctx context.Context, key, token string) (bool, error) {
	wait := strconv.FormatInt(n.o.Timeout.Milliseconds()*waitShare/100, 10)
	v, err := n.do(ctx, "lock.acquire", key, token, "px", n.o.ttlMillis(), "wait", wait)
	return err == nil && v.Num > 0, err
}

func (n native) Release(ctx context.Context, key, token string) (bool, error) {
	v, err := n.do(ctx, "lock.release", key, token)
	return err == nil && !v.IsNull(), err
}

func (n native) Renew(ctx context.Context, key, token string) (bool, error) {
	v, err := n.do(ctx, "lock.renew", key, token, "px", n.o.ttlMillis())
	return err == nil && !v.IsNull(), err
}
