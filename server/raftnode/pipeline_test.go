package raftnode

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/peer/wire"
)

// patient is a member that answers requests when the test says so.
type patient struct {
	net.Listener
	got     chan *raft.AppendEntriesRequest
	answers chan *raft.AppendEntriesResponse
	conns   []net.Conn // the member's ends of the connections
	refuses atomic.Bool
	refused atomic.Int32
	rate    atomic.Int64 // bytes that the member reads in a second; 0: no limit
}

// slowReader reads at the member's rate.
type slowReader struct {
	net.Conn
	rate *atomic.Int64
}

func (c slowReader) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), 64<<10)])
	if rate := c.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
	return n, err
}

func (m *patient) Close() error { return nil }

func (m *patient) DialContext(context.Context, string) (net.Conn, error) {
	if m.refuses.Load() {
		m.refused.Add(1)
		return nil, syscall.ECONNREFUSED
	}
	dialed, accepted := net.Pipe()
	m.conns = append(m.conns, accepted)
	go func() {
		br := bufio.NewReaderSize(slowReader{accepted, &m.rate}, 64<<10)
		for {
			frame, err := wire.Read(br, nil, maxAppendFrame)
			if err != nil {
				return
			}
			req, _ := decodeAppend(frame)
			m.got <- req
		}
	}()
	go func() {
		for answer := range m.answers {
			frame := appendAppended(make([]byte, wire.Head), raft.RPCResponse{Response: answer})
			if _, err := accepted.Write(wire.Seal(frame)); err != nil {
				m.answers <- answer // for the next connection
				return
			}
		}
	}()
	return dialed, nil
}

// takenBefore returns the previous index of each request that has arrived.
func (m *patient) takenBefore() (before []uint64) {
	synctest.Wait()
	for len(m.got) > 0 {
		before = append(before, (<-m.got).PrevLogEntry)
	}
	return before
}

// testPipeline is a pipeline of n1, which leads in term 7, to n2.
type testPipeline struct {
	*pipeline
	t      *testing.T
	member *patient
	tr     *transport
	log    *parallelLog
	over   bool
}

func (p *testPipeline) close() {
	if !p.over {
		p.over = true
		_ = p.Close()
	}
}

// withPipeline runs a test of a pipeline in virtual time. The log of n1 has five entries on the disk.
func withPipeline(t *testing.T, test func(p *testPipeline, store *heldStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log, store, _ := newHeldLog(t, 5)
		tr := newLeaderTransport(log, nil)
		stopped := make(chan struct{})
		tr.stopped = stopped
		m := &patient{
			got: make(chan *raft.AppendEntriesRequest, 100), answers: make(chan *raft.AppendEntriesResponse, 100),
		}
		tr.appender = newAppender(m)
		_, err := tr.AppendEntriesPipeline("n2", "")
		require.ErrorIs(t, err, raft.ErrPipelineReplicationNotSupported, "it is not known how far away the member is")
		for range tripTimes {
			tr.acks.noteRoundTrip("n2", FarAway)
		}
		opened, err := tr.AppendEntriesPipeline("n2", "")
		require.NoError(t, err)
		p := &testPipeline{pipeline: opened.(*pipeline), t: t, member: m, tr: tr, log: log}
		test(p, store)
		close(stopped)
		p.close()
		close(m.answers)
		for _, conn := range m.conns {
			_ = conn.Close()
		}
	})
}

// sendLarge sends the entry index with size bytes of data.
func (p *testPipeline) sendLarge(index uint64, size int) {
	p.t.Helper()
	req := entryRequest(index)
	req.Entries[0].Data = make([]byte, size)
	_, err := p.AppendEntries(req, &raft.AppendEntriesResponse{})
	require.NoError(p.t, err)
}

// entryRequest returns a request with the entry index.
func entryRequest(index uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		Term: 7, PrevLogEntry: index - 1, PrevLogTerm: 7,
		Entries: []*raft.Log{{Index: index, Term: 7, Data: []byte{1}}},
	}
}

func (p *testPipeline) send(indices ...uint64) {
	p.t.Helper()
	for _, index := range indices {
		_, err := p.AppendEntries(entryRequest(index), &raft.AppendEntriesResponse{})
		require.NoError(p.t, err)
	}
}

func (p *testPipeline) answer(lasts ...uint64) {
	for _, last := range lasts {
		p.member.answers <- &raft.AppendEntriesResponse{Term: 7, Success: true, LastLog: last}
	}
	synctest.Wait()
}

// acknowledged returns the entry index of each request whose answer raft can receive.
func (p *testPipeline) acknowledged() (indices []uint64) {
	synctest.Wait()
	for len(p.futures) > 0 {
		f := <-p.Consumer()
		require.True(p.t, f.Response().Success)
		indices = append(indices, f.Request().Entries[0].Index)
	}
	return indices
}

// TestPipelineSendsAhead: requests do not wait for answers, and raft gets the answers in order. An answer confirms only
// rounds that had begun when its request was sent.
func TestPipelineSendsAhead(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		before := p.tr.acks.beginRound(7)
		p.send(3, 4)
		require.Equal(t, []uint64{2, 3}, p.member.takenBefore())
		between := p.tr.acks.beginRound(7)
		p.send(5)
		require.Equal(t, []uint64{4}, p.member.takenBefore())
		require.Empty(t, p.acknowledged())
		p.answer(3)
		require.Equal(t, []uint64{3}, p.acknowledged())
		require.EqualValues(t, 3, p.tr.acks.matchOf("n2", 7))
		require.True(t, before.isDone())
		p.answer(4)
		require.False(t, between.isDone(), "the request was sent before the round began")
		p.answer(5)
		require.Equal(t, []uint64{4, 5}, p.acknowledged())
		require.True(t, between.isDone())
	})
}

// TestPipelineHoldsAcknowledgementsBack: an acknowledgement is held back until the leader's own disk has the entry, and
// so are later ones.
func TestPipelineHoldsAcknowledgementsBack(t *testing.T) {
	withPipeline(t, func(p *testPipeline, store *heldStore) {
		append1(t, p.log, 6)
		<-store.calls
		append1(t, p.log, 7)
		p.send(5, 6, 7)
		p.answer(5, 6, 7)
		require.Equal(t, []uint64{5}, p.acknowledged())
		store.let <- nil
		<-store.calls
		require.Equal(t, []uint64{6}, p.acknowledged())
		store.let <- nil
		require.Equal(t, []uint64{7}, p.acknowledged())
	})
}

// TestPipelineSendsAgain: unanswered requests are sent again, in order, over another connection, and raft gets no
// error.
func TestPipelineSendsAgain(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		p.send(2, 3, 4)
		p.answer(2)
		require.Equal(t, []uint64{1, 2, 3}, p.member.takenBefore())
		_ = p.member.conns[0].Close()
		require.Equal(t, []uint64{2, 3}, p.member.takenBefore())
		p.send(5)
		require.Equal(t, []uint64{4}, p.member.takenBefore())
		p.answer(3, 4, 5)
		require.Equal(t, []uint64{2, 3, 4, 5}, p.acknowledged())

		// The member is silent: the path may have lost the requests.
		p.send(5)
		p.member.takenBefore()
		time.Sleep(answerTimeout(1) - 1)
		require.Empty(t, p.member.takenBefore())
		p.send(5) // it extends the member's time only for its size
		require.Equal(t, []uint64{4}, p.member.takenBefore())
		time.Sleep(answerTimeout(2) - answerTimeout(1) + 1 + resendAfter)
		require.Equal(t, []uint64{4, 4}, p.member.takenBefore())

		// The member requests pre-votes.
		time.Sleep(time.Second)
		p.tr.appender.abandon("n2", 2*time.Second)
		require.Empty(t, p.member.takenBefore(), "an answer may still come")
		p.tr.appender.abandon("n2", time.Second/2)
		time.Sleep(resendAfter)
		require.Equal(t, []uint64{4, 4}, p.member.takenBefore())
		p.answer(5)
		time.Sleep(time.Second / 4)
		p.tr.appender.abandon("n2", time.Second/2)
		require.Empty(t, p.member.takenBefore(), "the last answer was a moment ago")
	})
}

// TestPipelineThatIsFull: a pipeline is full with pipelineDepth requests, or appendGather bytes. An answer without
// success ends it, even while raft receives no answers and waits for room (hashicorp/raft#612).
func TestPipelineThatIsFull(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		for range pipelineDepth {
			p.send(5)
		}
		require.Len(t, p.member.takenBefore(), pipelineDepth)
		sent := waits(t, func() error {
			_, err := p.AppendEntries(entryRequest(5), &raft.AppendEntriesResponse{})
			return err
		})
		p.answer(5)
		require.NoError(t, <-sent)
		sent = waits(t, func() error {
			_, err := p.AppendEntries(entryRequest(5), &raft.AppendEntriesResponse{})
			return err
		})
		p.member.answers <- &raft.AppendEntriesResponse{Term: 7, LastLog: 1}
		require.ErrorContains(t, <-sent, "no success")
		require.True(t, (<-p.Consumer()).Response().Success)
		refused := <-p.Consumer()
		require.False(t, refused.Response().Success)
		_, err := p.AppendEntries(entryRequest(5), &raft.AppendEntriesResponse{})
		require.Error(t, err)
	})
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		large := func() error {
			req := entryRequest(5)
			req.Entries[0].Data = make([]byte, appendGather/2+1)
			_, err := p.AppendEntries(req, &raft.AppendEntriesResponse{})
			return err
		}
		require.NoError(t, large())
		sent := waits(t, large)
		p.answer(5)
		require.NoError(t, <-sent)
		p.answer(5)
	})
}

// TestPipelineKeepsNothingAnswered: answered requests are not kept in memory, nor is the frame of a large request.
func TestPipelineKeepsNothingAnswered(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		p.sendLarge(5, appendGather/2)
		p.send(5)
		synctest.Wait()
		sent := p.sent
		p.answer(5)
		require.Nil(t, sent[0])
		require.NotNil(t, sent[1])
		require.Less(t, cap(p.conn.out), appendGather/2)
		p.answer(5)
	})
}

// TestPipelineOverASlowLink: answers are received while a request is written, however long that takes. The time of a
// write does not count for the timeout of an answer.
func TestPipelineOverASlowLink(t *testing.T) {
	const rate = 256 << 10
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		p.send(2, 3)
		require.Equal(t, []uint64{1, 2}, p.member.takenBefore())
		p.member.rate.Store(rate)
		p.sendLarge(4, appendGather/2)
		time.Sleep(time.Second)
		p.answer(2, 3)
		require.Equal(t, []uint64{2, 3}, p.acknowledged())
		require.Empty(t, p.member.takenBefore())
		time.Sleep(appendGather / 2 / rate * time.Second)
		require.Equal(t, []uint64{3}, p.member.takenBefore())
		p.answer(4)

		const size = 3 * maxBufferedBytes // its write takes longer than an answer may take
		p.sendLarge(5, size)
		time.Sleep((size/rate - 1) * time.Second)
		require.Empty(t, p.member.takenBefore())
		time.Sleep(2*time.Second + rpcTimeout/2)
		require.Equal(t, []uint64{4}, p.member.takenBefore())
		p.answer(5)
		require.Equal(t, []uint64{4, 5}, p.acknowledged())
		require.Len(t, p.member.conns, 1)
	})
}

// TestPipelineThatBreaksInAWrite: a connection breaks while requests are written, and some of them are answered. The
// others are sent in order over the next connection.
func TestPipelineThatBreaksInAWrite(t *testing.T) {
	const size = appendGather / 4
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		p.member.rate.Store(size)
		for i := range uint64(4) {
			p.sendLarge(2+i, size)
		}
		for i := range uint64(3) {
			time.Sleep(3 * time.Second / 2) // the next is half written
			require.Equal(t, []uint64{1 + i}, p.member.takenBefore())
			p.answer(2 + i)
			_ = p.member.conns[i].Close()
			require.Equal(t, []uint64{2 + i}, p.acknowledged())
		}
		time.Sleep(3 * time.Second / 2)
		require.Equal(t, []uint64{4}, p.member.takenBefore())
		p.answer(5)
		require.Equal(t, []uint64{5}, p.acknowledged())
	})
}

// TestPipelineExtendsRequests: a full request also gets the entries that follow, up to a number and a size.
func TestPipelineExtendsRequests(t *testing.T) {
	full := func(log *parallelLog) *raft.AppendEntriesRequest {
		req := &raft.AppendEntriesRequest{Term: 7}
		for i := range uint64(maxAppend) {
			e := new(raft.Log)
			require.NoError(t, log.GetLog(i+1, e))
			req.Entries = append(req.Entries, e)
		}
		return req
	}
	for _, c := range []struct{ appended, size, want int }{
		{maxAppend, 1, maxAppend},
		{maxAppend + 1, 1, maxAppend + 1},
		{extendedTo + 1, 1, extendedTo},
		{3 * maxAppend, strippedOver / 2, 2*maxAppend - 1}, // an entry has more bytes than its data
		{3 * maxAppend, strippedOver + 1, maxAppend},       // the data is not loaded
	} {
		withPipeline(t, func(p *testPipeline, _ *heldStore) {
			store := raft.NewInmemStore()
			p.tr.log = newParallelLog(store, 1<<20, func(err error) { t.Error(err) })
			for i := range uint64(c.appended) {
				require.NoError(t, store.StoreLog(&raft.Log{Index: i + 1, Term: 7, Data: make([]byte, c.size)}))
			}
			req := full(p.tr.log)
			p.extend(req)
			require.Len(t, req.Entries, c.want, "%d of %d bytes", c.appended, c.size)
			require.EqualValues(t, c.want, req.Entries[c.want-1].Index)
			short := full(p.tr.log)
			short.Entries = short.Entries[1:]
			p.extend(short)
			require.Len(t, short.Entries, maxAppend-1, "raft had no more")
		})
	}
}

// TestPipelineEndsWhenNear: a pipeline to a member that is no longer distant ends when all requests are answered.
func TestPipelineEndsWhenNear(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		takes := func(d time.Duration) {
			for range 2 * tripTimes {
				p.tr.acks.noteRoundTrip("n2", d)
			}
		}
		takes(FarAway / 2)
		p.send(4)
		takes(FarAway/2 - 1)
		p.send(5)
		p.answer(4, 5)
		require.Equal(t, []uint64{4, 5}, p.acknowledged())
		_, err := p.AppendEntries(entryRequest(5), &raft.AppendEntriesResponse{})
		require.ErrorIs(t, err, raft.ErrPipelineReplicationNotSupported)
	})
}

// TestPipelineCutsRequests: a request of more than appendGather bytes is sent in parts, and raft gets the answer to the
// last part.
func TestPipelineCutsRequests(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		req := entryRequest(4)
		req.Entries[0].Data = make([]byte, appendGather)
		req.Entries = append(req.Entries, entryRequest(5).Entries...)
		sent := waits(t, func() error {
			_, err := p.AppendEntries(req, &raft.AppendEntriesResponse{})
			return err
		})
		p.answer(4)
		require.NoError(t, <-sent)
		require.Equal(t, []uint64{3, 4}, p.member.takenBefore())
		require.Empty(t, p.acknowledged())
		p.answer(5)
		require.Equal(t, []uint64{4}, p.acknowledged())
	})
}

// TestPipelineEnds: a sender of a former leadership sends nothing. Unanswered requests are sent again only while this
// node leads, the other node is a member, and raft has not closed the pipeline.
func TestPipelineEnds(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: endedTerm}, &raft.AppendEntriesResponse{})
		require.ErrorIs(t, err, raft.ErrLeadershipLost)
		require.Empty(t, p.member.takenBefore())
	})
	for name, c := range map[string]struct {
		then  func(p *testPipeline)
		dials int // refused ones
		ends  bool
	}{
		"nothing else":        {func(*testPipeline) {}, 10, false},
		"the leadership ends": {func(p *testPipeline) { p.tr.leads.Store(func(uint64) bool { return false }) }, 1, true},
		"the member leaves":   {func(p *testPipeline) { p.tr.acks.reconfigure(viewOf("n1", "n3")) }, 1, true},
		"raft closes it":      {func(p *testPipeline) { p.close() }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			withPipeline(t, func(p *testPipeline, _ *heldStore) {
				p.send(4, 5)
				p.member.takenBefore()
				c.then(p)
				p.member.refuses.Store(true)
				_ = p.member.conns[0].Close()
				time.Sleep(resendAfter * 19 / 2)
				require.EqualValues(t, c.dials, p.member.refused.Load())
				require.Empty(t, p.futures)
				if c.ends {
					_, err := p.AppendEntries(entryRequest(5), &raft.AppendEntriesResponse{})
					require.Error(t, err)
				}
				p.member.refuses.Store(false)
				time.Sleep(resendAfter)
				require.Equal(t, c.ends, len(p.member.takenBefore()) == 0)
			})
		})
	}
	// The leadership ends while a request waits for room.
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		for range pipelineDepth {
			p.send(5)
		}
		p.member.takenBefore()
		sent := waits(t, func() error {
			_, err := p.AppendEntries(entryRequest(5), &raft.AppendEntriesResponse{})
			return err
		})
		p.tr.leads.Store(func(uint64) bool { return false })
		p.answer(5)
		require.ErrorIs(t, <-sent, raft.ErrLeadershipLost)
		require.Empty(t, p.member.takenBefore())
	})
	// Requests that are in flight when raft closes the pipeline arrive, and their answers are recorded.
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		p.send(4, 5)
		p.member.takenBefore()
		p.close()
		p.answer(4, 5)
		require.EqualValues(t, 5, p.tr.acks.matchOf("n2", 7))
		require.Empty(t, p.tr.appender.open)
	})
}

// TestNodeWaitsForItsPipelines: a node has ended only after its pipelines have. A pipeline that waits for an answer
// ends when its connection is closed.
func TestNodeWaitsForItsPipelines(t *testing.T) {
	withPipeline(t, func(p *testPipeline, _ *heldStore) {
		p.send(5)
		p.member.takenBefore()
		p.close()
		n := &Node{log: p.log, transport: p.tr, down: over{errBroken}}
		ended := waits(t, n.Wait)
		_ = p.member.conns[0].Close()
		require.ErrorIs(t, <-ended, errBroken)
	})
}
