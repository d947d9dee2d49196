// Package web is the node's port for monitoring, over HTTP:
//
//	/             a page that shows who holds which lock, who waits, and who leads
//	/api          the page's data in JSON: see API.md
//	/metrics      the node's metrics for Prometheus
//	/livez        whether this process works, with or without a leader and a majority
//	/readyz       whether this node serves clients now, as a list of named checks
//	/debug/pprof  Go's profiles, if the operator has enabled them
//
// The package promises:
//   - without requests nothing is computed, and only the listener's goroutine runs (server/console counts locks once a
//     minute);
//   - a client cannot exhaust the port: connections, headers, replies and the time for each are bounded, a new
//     connection replaces the oldest one, and concurrent requests share one run of a check;
//   - a request needs the same credentials as a client of Redis (password, TLS, client certificate), except to /livez
//     and /readyz, as a kubelet has none; without credentials these two name a failed check and withhold the reason;
//   - the page and /api only read. Names chosen by clients become text in the page, never markup, and a policy lets the
//     browser load from this port only. Without a password, a port on loopback answers only to local host names, so
//     that no other site can read it through a browser.
//
// Goroutines: one serves until the context ends; net/http has one for each connection; each running check has one.
//
// Start reading at [Config] and server.go.
package web
