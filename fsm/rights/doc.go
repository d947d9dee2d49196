// Package rights decides what a user may do by the rules of Redis's ACLs: which commands, and which keys and channels
// among their words.
//
// It promises:
//   - rules mean what they mean to Redis, and a rule that Redis refuses is refused with Redis's text;
//   - [Rights.String] is rules again, in the form of ACL LIST, and they mean the same on every node;
//   - the work of a check is counted, so that the state machine can bound it.
//
// The rules of a user travel in the log with scripts of the user's. So the categories of a command that scripts may
// call are part of the meaning of a log entry: categories_test.go holds them.
//
// Start reading at rights.go, then selector.go (rules) and check.go (commands).
package rights
