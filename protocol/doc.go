// Package protocol holds the words of Holdfast: the formats of the wire and of the log. It keeps no state
// and does no I/O of its own.
//
// It promises:
//   - a bounded request reader ([Reader]): no request makes it panic, recurse,
//     or hold more memory than its [Limits] say;
//   - one reply type ([Value]) and one place where it becomes RESP2 or RESP3;
//   - one command table ([Commands]) from which arity checks, COMMAND replies,
//     ACL categories, help and COMMANDS.md derive;
//   - error rows ([Error]) that say whether a failed command may have been applied;
//   - the codec of the log entry ([EntryWriter], [DecodeEntry]).
//
// Package fsm knows what a command means.
//
// Start reading at [Commands], then [Value], then entry.go.
package protocol
