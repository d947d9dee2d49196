package peers

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/fakeredis"
	"github.com/holdfast/holdfast/bench/internal/resp"
	"github.com/holdfast/holdfast/protocol/fleet"
)

// Data sent without waiting for answers arrives at the same intervals: the distance delays it, and does not throttle
// it.
func TestDistanceDelaysAndLimitsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const oneWay, every = 40 * time.Millisecond, time.Millisecond
		d := &distance{}
		d.oneWay.Store(int64(oneWay))
		sender, from := net.Pipe()
		to, receiver := net.Pipe()
		carried := make(chan error, 1)
		go func() { carried <- d.carry(to, from) }()
		begin := time.Now()
		go func() {
			for i := range 100 {
				_, _ = sender.Write([]byte{byte(i)})
				time.Sleep(every)
			}
			sender.Close()
		}()
		for i := range 100 {
			var b [1]byte
			_, err := io.ReadFull(receiver, b[:])
			require.NoError(t, err)
			require.Equal(t, byte(i), b[0])
			require.Equal(t, oneWay+time.Duration(i)*every, time.Since(begin))
		}
		_, err := receiver.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the end of a direction is carried, too")
		require.NoError(t, <-carried)
	})
}

// A receiver that disconnects ends the sender's connection.
func TestDistanceEndsWithTheReceiver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &distance{}
		sender, from := net.Pipe()
		to, receiver := net.Pipe()
		carried := make(chan error, 1)
		go func() { carried <- d.carry(to, from) }()
		receiver.Close()
		for {
			if _, err := sender.Write([]byte("x")); err != nil {
				break
			}
		}
		require.ErrorIs(t, <-carried, io.ErrClosedPipe)
	})
}

func TestServersArePutApart(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	d := &distance{}
	defer d.close()
	far, err := d.behind(s.Addr)
	require.NoError(t, err)
	c := &Cluster{distance: d}
	const roundTrip = 20 * time.Millisecond
	require.NoError(t, c.Part(roundTrip))
	begin := time.Now()
	_, err = resp.Ask(t.Context(), far, time.Minute, "PING")
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), 2*roundTrip, "once to connect, once to ask")
	require.ErrorContains(t, (&Cluster{}).Part(roundTrip), "cannot be put apart")

	nobody, err := fleet.Reserve(1)
	require.NoError(t, err)
	refused, err := d.behind(nobody[0])
	require.NoError(t, err)
	conn, err := net.Dial("tcp", refused)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "no server, no connection")
}
