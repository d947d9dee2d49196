// Package memberrpc lets nodes ask each other about who the members are, and for changes: a request and a reply
// over a connection of its own (peer.KindMember). Package bootstrap and package reconfig say what can be asked.
//
// It promises:
//   - a request reaches a handler only from a node that has proved that it knows the cluster secret, and has a
//     certificate if the cluster has an authority; a node that does not know the cluster reaches only handlers that
//     were given to [Server.HandleAny];
//   - a request and a reply have 64 KiB at most, and come within 5 s; a reply is waited for as long as the caller's
//     context lasts, and a handler's context ends when the caller has gone;
//   - 64 requests are handled at a time, 16 of a node, and others refused;
//   - where a stream of bytes follows the reply, two at a time, each frame of it comes within 20 s, and its end is not
//     believed before its checksum is right;
//   - what a reply says is believed as far as its type goes: the caller checks the values.
//
// Beside these requests, [Admissions] has the members try on each other, each minute, whether their credentials still
// fit.
//
// Otherwise the package does not know what a request means, and does not try again.
//
// # How to add an operation
//
// Say what is asked and answered, as types with JSON tags, and give the server a handler before Run:
//
//	type Question struct{ Name string `json:"name"` }
//	type Answer struct{ Voter bool `json:"voter"` }
//
//	memberrpc.Handle(server, "votes", func(ctx context.Context, from memberrpc.Caller, q Question) (Answer, error) {
//		…
//	})
//
// Call it by a node's ID, or at an address when the ID is not known:
//
//	answer, err := memberrpc.Call[Answer](ctx, client, id, "votes", Question{"n1"})
//	answer, id, err := memberrpc.CallAt[Answer](ctx, client, "host:7379", "votes", Question{"n1"})
//
// A handler's error comes to the caller as a [RemoteError] with the error's text in one line. Names of operations and
// of fields stay: two releases run in a cluster while it is upgraded. An operation that the other node does not know is
// a [RemoteError] with Unknown. Fields that are not known are ignored.
//
// # Goroutines
//
// [Server.Run] accepts connections on its caller's goroutine, and has two more for each: one handles the request, the
// other notices that the caller has gone. All of them end with the context of Run. [Admissions.Run] has a goroutine for
// each other member during a round. The locks of a Server and of Admissions are leaves; Refused and Admitted are called
// with the latter held.
package memberrpc
