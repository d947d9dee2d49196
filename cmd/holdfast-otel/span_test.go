package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast/holdfast/server/audit"
)

// lineOf reads "second index event key owner" with more members as JSON behind.
func lineOf(t *testing.T, text string) *audit.Line {
	t.Helper()
	short, more, _ := strings.Cut(text, " {")
	var second int64
	l := &audit.Line{Cluster: "c", Kind: "native"}
	n, _ := fmt.Sscan(short, &second, &l.Index, &l.Event, &l.Key, &l.Owner)
	require.GreaterOrEqual(t, n, 3, text)
	l.Time = time.Unix(second, 0).UTC()
	if more != "" {
		require.NoError(t, json.Unmarshal([]byte("{"+more), l), text)
	}
	return l
}

// spansOf are the spans of lines.
func spansOf(t *testing.T, maxGrants int, lines ...string) tracetest.SpanStubs {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	s := newSpanner(sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithIDGenerator(lineIDs{})))
	s.max = maxGrants
	for _, text := range lines {
		s.add(lineOf(t, text))
	}
	kept := 0
	for _, owners := range s.held {
		require.NotEmpty(t, owners)
		kept += len(owners)
	}
	require.Equal(t, kept, s.count)
	return exporter.GetSpans()
}

func attributesBy(of []attribute.KeyValue) map[string]any {
	all := map[string]any{}
	for _, a := range of {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// TestSpans: which spans lines make, from when until when, and which are errors.
func TestSpans(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{
			"a native lock",
			[]string{
				`4 1 granted k a {"fence":7,"waitedMillis":3000}`, `5 2 renewed k a {"fence":7}`,
				`9 3 released k a {"fence":7,"heldMillis":5000}`, `9 4 granted k b {"fence":8}`,
			},
			[]string{"lock wait 0/k a 1-4", "lock hold 0/k a 4-9"},
		},
		{
			"losses",
			[]string{`5 1 lost k a {"heldMillis":4000,"reason":"expired"}`},
			[]string{"lock hold 0/k a 1-5 error expired"},
		},
		{
			"waits without the lock",
			[]string{
				`5 1 wait-ended k a {"waitedMillis":2000,"reason":"timeout"}`, `5 2 wait-ended k b {"reason":"gone"}`,
				`5 3 wait-ended k c {"reason":"cancelled"}`, `5 4 wait-ended k d {"reason":"replaced"}`,
			},
			[]string{
				"lock wait 0/k a 3-5 error timeout", "lock wait 0/k b 5-5 error gone", "lock wait 0/k c 5-5",
				"lock wait 0/k d 5-5",
			},
		},
		{
			"a stock lock at a key that was there before",
			[]string{
				`100 1 granted k a {"kind":"stock","heldMillis":90000}`,
				`105 2 released k a {"kind":"stock","heldMillis":95000}`,
				`205 3 released x a {"kind":"stock","heldMillis":95000}`,
			},
			[]string{"lock hold 0/k a 100-105", "lock hold 0/x a 110-205"},
		},
		{
			"a clock that was set back",
			[]string{
				`900 1 granted k a {"kind":"stock"}`, `105 2 released k a {"kind":"stock","heldMillis":5000}`,
			},
			[]string{"lock hold 0/k a 100-105"},
		},
		{
			"a flush",
			[]string{
				`1 1 granted k a {"kind":"stock","shared":true}`, `2 2 granted k b {"kind":"stock","shared":true}`,
				`3 3 granted l a {"kind":"stock","shared":true,"db":1}`,
				`4 4 granted n a`, `5 5 granted m a {"kind":"stock","cluster":"other"}`,
				`9 6 flushed {"kind":"stock","reason":"flushed","command":"flushall"}`,
				`9 7 flushed {"kind":"stock","reason":"flushed","command":"flushall"}`,
			},
			[]string{"lock hold 0/k a 1-9 error flushed", "lock hold 0/k b 2-9 error flushed"},
		},
		{
			"a swap",
			[]string{
				`1 1 granted k a {"kind":"stock"}`, `2 2 granted k b {"kind":"stock","db":1}`,
				`3 3 granted l a {"kind":"stock"}`,
				`5 4 swapped {"kind":"stock","toDb":1}`,
				`9 5 flushed {"kind":"stock","reason":"flushed"}`,
				`9 6 released k a {"kind":"stock","db":1,"heldMillis":1000}`,
			},
			[]string{"lock hold 0/k b 2-9 error flushed", "lock hold 1/k a 1-9"},
		},
		{
			"a hash that many lose",
			[]string{
				`1 1 granted k a {"kind":"stock","shared":true}`,
				`2 2 granted k b {"kind":"stock","shared":true}`,
				`3 3 granted l b {"kind":"stock","shared":true}`,
				`9 4 lost k {"kind":"stock","reason":"broken","count":2}`,
			},
			[]string{"lock hold 0/k a 1-9 error broken", "lock hold 0/k b 2-9 error broken"},
		},
		{
			"ends that are missing",
			[]string{
				`1 1 granted k a {"kind":"stock"}`, `2 2 granted k b {"kind":"stock","shared":true}`,
				`3 3 granted k c {"kind":"stock"}`, `4 4 granted k c {"kind":"stock"}`,
				`9 5 flushed {"kind":"stock","reason":"flushed"}`,
			},
			[]string{"lock hold 0/k c 4-9 error flushed"},
		},
		{
			"more holds than are kept",
			[]string{
				`1 1 granted k a {"kind":"stock","shared":true}`,
				`2 2 granted k b {"kind":"stock","shared":true}`,
				`3 3 granted l a {"kind":"stock","shared":true}`,
				`4 4 granted k c {"kind":"stock","shared":true}`,
				`8 4 released k c {"kind":"stock","heldMillis":1000}`,
				`9 5 flushed {"kind":"stock","reason":"flushed"}`,
			},
			[]string{
				"lock hold 0/k a 1-9 error flushed", "lock hold 0/k b 2-9 error flushed", "lock hold 0/l a 3-9 error flushed",
				"lock hold 0/k c 7-8",
			},
		},
		{
			"names that are no UTF-8",
			[]string{
				`1 1 granted ? a {"kind":"stock","keyBase64":"/w=="}`, `2 2 granted ? a {"kind":"stock","keyBase64":"/g=="}`,
				`5 3 released ? a {"kind":"stock","keyBase64":"/w==","heldMillis":1}`,
			},
			[]string{"lock hold 0/? a 1-5"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, s := range spansOf(t, 3, c.lines...) {
				by := attributesBy(s.Attributes)
				text := fmt.Sprintf("%s %s/%s %s %d-%d", s.Name, by["db.namespace"], by["holdfast.key"], by["holdfast.owner"],
					s.StartTime.Unix(), s.EndTime.Unix())
				if s.Status.Code == codes.Error {
					require.Equal(t, s.Status.Description, by["error.type"])
					text += " error " + s.Status.Description
				}
				got = append(got, text)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			require.Equal(t, c.want, got)
		})
	}
}

// TestAttributes: the attributes of a span are the fields of its line, under the names of OpenTelemetry where it has
// names for them.
func TestAttributes(t *testing.T) {
	spans := spansOf(t, 1, `9 1 lost k a {"db":3,"fence":7,"session":5,"client":"n1/9","addr":"[::1]:70","name":"w",`+
		`"user":"u","note":"job","reason":"broken","command":"lock.break","by":"op","text":"stuck"}`)
	require.Len(t, spans, 1)
	require.Equal(t, map[string]any{
		"db.namespace": "3", "holdfast.cluster": "c", "holdfast.kind": "native", "holdfast.key": "k", "holdfast.owner": "a",
		"holdfast.fence": int64(7), "holdfast.session": "5", "holdfast.client": "n1/9", "holdfast.client.name": "w",
		"holdfast.note": "job", "holdfast.reason": "broken", "holdfast.command": "lock.break", "holdfast.by": "op",
		"holdfast.text": "stuck", "user.name": "u", "client.address": "::1", "client.port": int64(70),
		"error.type": "broken",
	}, attributesBy(spans[0].Attributes))
}

// TestParents: a span belongs to the span that the NOTE names, and not to a trace that is not sampled.
func TestParents(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for note, want := range map[string]string{
		"00-" + id + "-" + parent + "-01":                              parent,
		" 00-" + id + "-" + parent + "-01 ":                            parent,
		"job 7, traceparent=00-" + id + "-" + parent + "-01, x":        parent,
		"00-" + id + "-" + parent + "-00":                              "not sampled",
		"ff-" + id + "-" + parent + "-01":                              "",
		"traceparent=":                                                 "",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01":         "",
		"traceparent=00-" + strings.ToUpper(id) + "-" + parent + "-01": "",
		"": "",
	} {
		spans := spansOf(t, 1, fmt.Sprintf(`4 1 granted k a {"fence":7,"waitedMillis":3000,"note":%q}`, note),
			fmt.Sprintf(`9 2 released k a {"fence":7,"heldMillis":5000,"note":%q}`, note))
		if want == "not sampled" {
			require.Empty(t, spans)
			continue
		}
		require.Len(t, spans, 2, note)
		for _, s := range spans {
			require.Equal(t, want != "", s.Parent.IsValid(), note)
			require.Equal(t, spans[0].SpanContext.TraceID(), s.SpanContext.TraceID(), "of one fence")
			if want != "" {
				require.Equal(t, want, s.Parent.SpanID().String())
				require.Equal(t, id, s.SpanContext.TraceID().String())
				require.True(t, s.Parent.IsRemote())
			}
		}
	}
}

// TestIDs: lines that are read again make the same spans, and each line has its own.
func TestIDs(t *testing.T) {
	lines := []string{
		`4 1 granted k a {"fence":7,"waitedMillis":3000}`, `9 2 released k a {"fence":7}`,
		`9 2 released k a {"fence":7,"n":1}`,
		`9 3 released k a {"fence":8}`, `9 4 released k a`, `9 5 released k a`, `9 5 released k a {"cluster":"d"}`,
		`1 6 granted k a {"kind":"stock"}`, `1 6 granted l a {"kind":"stock","n":1}`, `9 7 flushed`,
	}
	spans, again := spansOf(t, 9, lines...), spansOf(t, 9, lines...)
	require.Len(t, spans, 9)
	ids, traces := map[string]bool{}, map[string]bool{}
	for _, s := range spans {
		require.True(t, s.SpanContext.IsValid())
		ids[s.SpanContext.SpanID().String()] = true
		traces[s.SpanContext.TraceID().String()] = true
	}
	require.Len(t, ids, 9)
	require.Len(t, traces, 7, "the first three are of one fence")
	for _, s := range again {
		require.True(t, ids[s.SpanContext.SpanID().String()] && traces[s.SpanContext.TraceID().String()])
	}
}
