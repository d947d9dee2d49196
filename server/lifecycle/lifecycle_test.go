package lifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder is three parts that note when they end.
type recorder struct{ ended chan string }

func (r *recorder) part(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		r.ended <- name
		return nil
	}
}

// TestShutdownOrder: the leadership is handed over when no client is left, and while the other
// nodes can still be reached.
func TestShutdownOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recorder{ended: make(chan string, 3)}
		slowly := func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // a command in flight
			r.ended <- "clients"
			return nil
		}
		p := New(slowly, r.part("replica"), r.part("peers"))
		p.Start()
		err := p.Shutdown(func() error {
			require.NotEmpty(t, r.ended, "clients are still there")
			synctest.Wait()
			require.Equal(t, "clients", <-r.ended)
			require.Empty(t, r.ended, "the port between nodes is open")
			p.replica.stop()
			require.Equal(t, "replica", <-r.ended)
			return errors.New("nobody took over")
		})
		require.EqualError(t, err, "nobody took over")
		require.Equal(t, "peers", <-r.ended)
	})
}

// TestAbandon: a node that cannot go on ends all parts at once, and waits a second for clients
// that do not read, but not for a replica that hangs.
func TestAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan struct{})
		defer close(disk)
		r := recorder{ended: make(chan string, 3)}
		p := New(r.part("clients"), func(context.Context) error { <-disk; return nil }, r.part("peers"))
		p.Start()
		begin := time.Now()
		p.Abandon()
		require.Zero(t, time.Since(begin), "clients have taken their answers")
		synctest.Wait()
		require.Len(t, r.ended, 2)
	})
	synctest.Test(t, func(t *testing.T) {
		reader := make(chan struct{})
		defer close(reader)
		r := recorder{ended: make(chan string, 3)}
		p := New(func(context.Context) error { <-reader; return nil }, r.part("replica"), r.part("peers"))
		p.Start()
		begin := time.Now()
		p.Abandon()
		require.Equal(t, time.Second, time.Since(begin))
		require.Len(t, r.ended, 2)
	})
}

func TestFailedPartIsNamed(t *testing.T) {
	p := New(nil, func(context.Context) error { return errors.New("state lost") }, func(context.Context) error {
		return nil
	})
	p.Start()
	require.EqualError(t, <-p.Failed(), "replica: state lost")
	p.Wait()
}
