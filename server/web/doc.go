// Package web is the node's port for monitoring, over HTTP:
//
//	/             a page that shows who holds which lock, who waits, and who leads
//	/api          what the page is drawn from, in JSON: see API.md
//	/metrics      what the node counts and measures, for Prometheus
//	/livez        whether this process works; a lost leader or majority does not matter
//	/readyz       whether this node serves clients now: each check by its name
//	/debug/pprof  Go's profiles, when the operator opened them
//
// The package promises:
//   - nothing is computed, and no goroutine runs but the listener's, while nobody asks (server/console notes the
//     counts of locks once a minute);
//   - a client holds nothing that others need: connections, headers, replies and the time for each are bounded,
//     the oldest connection makes room for a new one, and a check runs once however many ask for it;
//   - what a client of Redis must prove (password, TLS, client certificate) is asked for all but /livez and /readyz.
//     /livez and /readyz answer everybody, since a kubelet has neither password nor certificate; a stranger is
//     told which check failed, and not why;
//   - the page and /api only read. What clients of the cluster named themselves becomes text in the page, never markup,
//     and the browser is told to load and to ask nothing but this port. Without a password, a port on loopback answers
//     under names of this machine only, so that no site has a browser read it.
//
// Goroutines: one serves until the context ends; net/http has one for each connection; a check that is asked for
// runs on its own, and is joined by those who ask meanwhile.
//
// Start reading at [Config] and server.go.
package web
