// Package api is the shape of what Holdfast says of locks and members in JSON. The port for monitoring
// (server/web) and `holdfast … --json` write the same documents.
//
// The package promises:
//   - a document is one JSON object, and its field "format" is [Format];
//   - within a format fields are added, and none is removed or gets another meaning;
//   - durations are milliseconds, instants are milliseconds of Unix time, and the names of fields say so;
//   - what is not known, or has no end, is null;
//   - JSON has only text: a name that is no UTF-8 has U+FFFD in place of what is not, and its bytes beside it, in
//     base64.
//
// A document is made from the reply to a command: of LOCK.LIST, LOCK.INFO, SESSION.INFO or RAFT.STATUS, in RESP2 or
// RESP3. Fields of a reply that this release does not know are passed over, and fields that an older node does not
// send are left zero.
//
// Start reading at [Locks] and [Cluster].
package api
