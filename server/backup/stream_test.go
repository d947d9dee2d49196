package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// chunksOf reads a stream to its end.
func chunksOf(t *testing.T, s *Stream) []byte {
	t.Helper()
	var file []byte
	for {
		b, err := s.Next(t.Context())
		if err == io.EOF {
			return file
		}
		require.NoError(t, err)
		require.NotEmpty(t, b)
		file = append(file, b...)
	}
}

func stateSource(state []byte) Source {
	return func(_ context.Context, stale bool) (Meta, io.WriterTo, error) {
		m := someMeta
		m.Stale = stale
		return m, bytes.NewReader(state), nil
	}
}

func TestStreamIsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := bytes.Repeat([]byte("xyz"), 1_000_000)
		streams := NewStreams(stateSource(state), Limits{Open: 1, ChunkBytes: 1000_00, Idle: time.Second, Total: time.Minute})
		s, err := streams.Begin(t.Context(), false)
		require.NoError(t, err)
		file := chunksOf(t, s)
		want, summary := fileOf(t, state)
		require.True(t, bytes.Equal(want, file))
		require.Equal(t, summary, s.Summary())
		_, err = s.Next(t.Context())
		require.Equal(t, io.EOF, err, "again")
		s.Close()
		require.Zero(t, streams.Open())
		again, err := streams.Begin(t.Context(), true)
		require.NoError(t, err)
		require.True(t, again.Meta.Stale)
		again.Close()
		again.Close()
		_, err = again.Next(t.Context())
		require.Error(t, err)
	})
}

// TestStreamsAreBounded shows that the open streams are bounded, and that those whose clients stop reading, or read too
// slowly, end and are not counted.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streams := NewStreams(stateSource(make([]byte, 1<<20)), Limits{
			Open: 2, ChunkBytes: 1000, Idle: time.Second,
			Total: 10 * time.Second,
		})
		idle, err := streams.Begin(t.Context(), false)
		require.NoError(t, err)
		slow, err := streams.Begin(t.Context(), false)
		require.NoError(t, err)
		_, err = streams.Begin(t.Context(), false)
		require.ErrorIs(t, err, ErrTooMany)
		for range 15 {
			time.Sleep(900 * time.Millisecond)
			if _, err = slow.Next(t.Context()); err != nil {
				break
			}
			require.LessOrEqual(t, streams.Open(), 2)
		}
		require.ErrorIs(t, err, errTotal)
		_, err = idle.Next(t.Context())
		require.ErrorIs(t, err, errIdle)
		synctest.Wait()
		require.Zero(t, streams.Open(), "a client that went away without a word holds nothing")
	})
}

func TestStreamThatCannotBegin(t *testing.T) {
	failure := errors.New("no leader")
	streams := NewStreams(func(context.Context, bool) (Meta, io.WriterTo, error) { return Meta{}, nil, failure },
		DefaultLimits())
	for range 3 {
		_, err := streams.Begin(t.Context(), false)
		require.ErrorIs(t, err, failure)
	}
	require.Zero(t, streams.Open())
}
