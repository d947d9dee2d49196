// Package metrics has the figures of a node: what its connections count, what its copy of the state holds, and how far
// its log is. INFO, MEMORY and LATENCY HISTOGRAM show them to clients, and [Registry.Collector] to Prometheus.
//
// The package promises:
//   - INFO and Prometheus are made from the same rows (metrics.go), so they cannot disagree;
//   - counting costs an atomic addition, timing a command a few more, and no allocation but at a command's first call;
//   - nothing ticks: rates are samples that commands take on their way;
//   - no label and no line has a key or a value of a client; prefixes that scripts make up are bounded.
//
// A connection adds to the [Counters] and to the [Command] of the row, and calls [Registry.NoteRates] where the time is
// known anyway. All methods may be called by any goroutine; none is started here.
//
// Locks: Counters.mu guards the errors by prefix, rates.mu the samples. Nothing is called while one of them is held.
//
// Start reading at registry.go, then metrics.go: a figure is a row.
package metrics
