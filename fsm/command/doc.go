// Package command has what every command works with: a [Call], which is the command's view of the keys.
//
// A command looks up an item or a collection ([Call.Find], [Read]), charges for its work before it changes anything
// ([Call.Charge], [Call.Fits]), changes a copy ([Open]) and stores it, and notifies ([Call.Notify]). The Call notes
// the change for WATCH, for the roll-back of scripts and transactions, for clients that wait for the key, and for
// tracking. What only the machine knows, the Call asks of its [Host].
//
// The rooms of the types import this package, and never the machine: fsm/str, fsm/bit, fsm/hash, fsm/list, fsm/set,
// fsm/zset, and fsm/keys for keys of any type. Each has a table Ops of its commands, which the machine joins with the
// rows of protocol.
//
// Start reading at call.go.
package command
