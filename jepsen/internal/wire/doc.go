// Package wire is the clients' side of RESP: small on purpose, so that every byte
// sent and every reason for an outcome is known.
//
// It promises: a request is written once and never again (libraries that retry are imitated
// by their dialects, with each try on record), and every exchange ends in one of three
// outcomes, by these rules and nothing else:
//
//   - a reply that is no error: ok;
//   - an error that [protocol.OutcomeOf] says is sent in place of doing anything, a connection that
//     could not be made, or a write that sent nothing: fail;
//   - any other error (raised by a script, or unknown), a time-out, a connection lost after
//     the request was written, bytes that are no reply: info.
//
// Pushes of RESP3 come between replies and are none: [Conn.OnPush] gets them, whenever the connection is read.
//
// Start reading at [Conn.Pipeline].
package wire
