package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is an OTLP receiver, by HTTP.
type receiver struct {
	*testing.T
	mu       sync.Mutex
	requests []*collector.ExportTraceServiceRequest
	status   int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	var spans collector.ExportTraceServiceRequest
	if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, &spans) != nil {
		r.Errorf("%s: %v", req.URL, err)
	}
	r.requests = append(r.requests, &spans)
	w.WriteHeader(r.status)
}

// spans are the names of services, and the spans.
func (r *receiver) spans() (services []string, spans []*tracepb.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, request := range r.requests {
		for _, of := range request.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					services = append(services, a.Value.GetStringValue())
				}
			}
			for _, scope := range of.ScopeSpans {
				spans = append(spans, scope.Spans...)
			}
		}
	}
	r.requests = nil
	return services, spans
}

// TestExport: what two nodes wrote arrives at a receiver once, in the caller's trace. A receiver that refuses spans is
// an error of the program.
func TestExport(t *testing.T) {
	r := &receiver{T: t, status: http.StatusOK}
	server := httptest.NewServer(r)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	var paths []string
	for _, node := range []string{"n1", "n2"} {
		paths = append(paths, filepath.Join(t.TempDir(), node))
		l := openLog(t, paths[len(paths)-1], node)
		for index := uint64(1); index < 2000; index += 2 {
			hold(l, index, "k", node == "n1")
		}
		require.NoError(t, l.Close())
	}
	var stderr bytes.Buffer
	require.Zero(t, run(t.Context(), paths, nil, &stderr), "%s", &stderr)
	services, spans := r.spans()
	require.Equal(t, "holdfast", services[0])
	require.Len(t, spans, 2000)
	ids := map[string]bool{}
	for i, s := range spans {
		ids[string(s.SpanId)] = true
		require.Equal(t, []string{waitSpan, holdSpan}[i%2], s.Name)
		length := []int64{5, 10}[i%2]
		end := (at + 10*int64(1+i)) * 1_000_000
		require.EqualValues(t, end, s.EndTimeUnixNano)
		require.EqualValues(t, end-length*1_000_000, s.StartTimeUnixNano)
	}
	require.Len(t, ids, 2000)

	t.Setenv("OTEL_SERVICE_NAME", "locks")
	const line = `{"time":"2026-01-01T00:00:00Z","cluster":"c","index":1,"event":"lost","key":"k","reason":"expired",` +
		`"note":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}` + "\n"
	require.Zero(t, run(t.Context(), nil, strings.NewReader(line), &stderr), "%s", &stderr)
	services, spans = r.spans()
	require.Equal(t, []string{"locks"}, services)
	require.Len(t, spans, 1)
	require.Equal(t, "\xb7\xad\x6b\x71\x69\x20\x33\x31", string(spans[0].ParentSpanId))
	require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, spans[0].Status.Code)

	r.mu.Lock()
	r.status = http.StatusBadRequest
	r.mu.Unlock()
	require.Equal(t, 1, run(t.Context(), nil, strings.NewReader(line), &stderr))
	require.Contains(t, stderr.String(), "400")
}

// TestAway: spans wait for a receiver that is away, and a signal ends the program without it.
func TestAway(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := socket.Addr().String()
	require.NoError(t, socket.Close())
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "1") // which is for files that are not followed
	path := filepath.Join(t.TempDir(), "log")
	const line = `{"time":"2026-01-01T00:00:00Z","cluster":"c","index":%d,"event":"released","key":"k"}` + "\n"
	var text string
	for index := range 5000 { // more than wait in memory
		text += fmt.Sprintf(line, index)
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	told := make(chan string, 100)
	e := export{paths: []string{path}, follow: true, warn: func(text string) { told <- text }}
	follow := func() (stop func(), ended chan error) {
		ctx, stop := context.WithCancel(t.Context())
		ended = make(chan error)
		go func() { ended <- e.run(ctx) }()
		require.Contains(t, <-told, "refused")
		return stop, ended
	}
	stop, ended := follow()
	stop()
	require.ErrorContains(t, <-ended, "not read to their ends")

	e.lastWithin = time.Hour
	stop, ended = follow()
	r := &receiver{T: t, status: http.StatusOK}
	socket, err = net.Listen("tcp", address)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(r)
	server.Listener.Close()
	server.Listener = socket
	server.Start()
	defer server.Close()
	stop()
	require.NoError(t, <-ended)
	_, spans := r.spans()
	require.Len(t, spans, 5000)

	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "30000")
	e.follow, e.lastWithin = false, 0 // which is for signals alone
	require.NoError(t, e.run(t.Context()))
	_, spans = r.spans()
	require.Len(t, spans, 5000)
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "1")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	r.mu.Lock()
	r.status = http.StatusServiceUnavailable
	r.mu.Unlock()
	for range 2 {
		from, to := io.Pipe() // does not end
		go fmt.Fprintf(to, line, 1)
		var stderr bytes.Buffer
		require.Equal(t, 1, run(t.Context(), nil, from, &stderr))
		require.Contains(t, stderr.String(), "holdfast-otel: traces export: ")
		server.Close()
	}
}

// TestUsage: a mistake in the words is status 2, and what cannot be read is 1.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		status int
		stdin  string
		args   []string
		want   string
	}{
		{0, "", []string{"--help"}, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		{2, "", []string{"--nosuch"}, "nosuch"},
		{2, "", []string{"--follow"}, "--follow is for files"},
		{1, "", []string{"/nonexist/file"}, "/nonexist/file"},
		{1, "{\n", nil, "1 lines could not be read"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, c.status, run(t.Context(), c.args, strings.NewReader(c.stdin), &stderr), c.args)
		require.Contains(t, stderr.String(), c.want)
	}
}
