// Package web is the node's port for monitoring, over HTTP:
//
//	/metrics      what the node counts and measures, for Prometheus
//	/livez        whether this process works; a lost leader or majority does not matter
//	/readyz       whether this node serves clients now: each check by its name
//	/debug/pprof  Go's profiles, when the operator opened them
//
// The package promises:
//   - nothing is computed, and no goroutine runs but the listener's, while nobody asks;
//   - a client holds nothing that others need: connections, headers, replies and the time for each are bounded,
//     the oldest connection makes room for a new one, and a check runs once however many ask for it;
//   - what a client of Redis must prove (password, TLS, client certificate) is asked for metrics and profiles.
//     /livez and /readyz answer everybody, since a kubelet has neither password nor certificate; a stranger is
//     told which check failed, and not why.
//
// Goroutines: one serves until the context ends; net/http has one for each connection; a check that is asked for
// runs on its own, and is joined by those who ask meanwhile.
//
// Start reading at [Config] and server.go.
package web
