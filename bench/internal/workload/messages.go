package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast/holdfast/bench/internal/load"
	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/protocol"
)

// handoffs passes one element around: each worker waits for it by BLPOP and pushes it back.
func handoffs(ctx context.Context, e Env) (*Figures, error) {
	endpoints, err := e.Target.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	limit := strconv.FormatFloat(e.Client.Timeout.Seconds()*0.9, 'f', 3, 64)
	var ops []load.Op
	for i := range e.Connections {
		c, err := resp.Dial(ctx, endpoints[i%len(endpoints)], e.Client.Timeout)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		ops = append(ops, func(_ context.Context, start time.Time, r *load.Recorder) error {
			v, err := confirmed(c, e.Target.Wait, "blpop", prefix+"element", limit)
			got := time.Now()
			if err == nil && v.IsNull() {
				err = errors.New("the element did not come round")
			}
			if err != nil {
				return err
			}
			r.Latency("handoff", start, got)
			_, err = confirmed(c, e.Target.Wait, "rpush", prefix+"element", holder)
			return err
		})
	}
	c, err := writer(ctx, e)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.Append("del", prefix+"element")
	c.Append("rpush", prefix+"element", holder)
	if err := readAll(c, 2, nil); err != nil {
		return nil, err
	}
	f, err := measure(ctx, e, ops)
	if err == nil {
		f.each("handoff")
	}
	return f, err
}

// confirmed sends a command, reads its reply, and waits until a number of replicas have confirmed the write.
func confirmed(c *resp.Conn, replicas int, words ...string) (protocol.Value, error) {
	v, err := c.Do(words...)
	if err != nil || replicas == 0 {
		return v, err
	}
	n, err := c.Do("wait", strconv.Itoa(replicas), waitMillis)
	if err == nil && n.Num < int64(replicas) {
		err = target.ErrNotReplicated
	}
	return v, err
}

// publish sends messages to as many subscribers as there are connections, each after all have received the last.
func publish(ctx context.Context, e Env) (*Figures, error) {
	endpoints, err := e.Target.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	got := make(chan error, e.Connections)
	var conns []*resp.Conn
	var group sync.WaitGroup
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
		group.Wait()
	}()
	for i := range e.Connections {
		// The timeout covers the whole run, since a subscriber always reads.
		c, err := resp.Dial(ctx, endpoints[i%len(endpoints)], e.Warmup+e.Measure+time.Minute)
		if err != nil {
			return nil, fmt.Errorf("subscriber %d of %d: %w", i, e.Connections, err)
		}
		conns = append(conns, c)
		if _, err := c.Do("subscribe", prefix+"channel"); err != nil {
			return nil, err
		}
		group.Go(func() { listen(c, got) })
	}
	publisher, err := writer(ctx, e)
	if err != nil {
		return nil, err
	}
	conns = append(conns, publisher)
	f, err := measure(ctx, e, []load.Op{func(ctx context.Context, start time.Time, r *load.Recorder) error {
		if _, err := publisher.Do("publish", prefix+"channel", holder); err != nil {
			return err
		}
		for range e.Connections {
			select {
			case err := <-got:
				if err != nil {
					return err
				}
			case <-time.After(e.Client.Timeout):
				return errors.New("not every subscriber got the message")
			}
		}
		r.Latency("publish", start, time.Now())
		return nil
	}})
	if err == nil {
		f.merge(map[string]float64{"messages_per_second": f.Steps["publish"].PerSecond * float64(e.Connections)})
		f.each("publish")
	}
	return f, err
}

// listen reports each message until the connection ends.
func listen(c *resp.Conn, got chan<- error) {
	for {
		_, err := c.Read()
		select {
		case got <- err:
		default: // no receiver is left
		}
		if err != nil {
			return
		}
	}
}
