// Package acl has the users of a node: their rules from a file as Redis's aclfile, their passwords, what ACL's
// subcommands answer about them, and the log of refusals. What a user may do is decided by fsm/rights.
//
// It promises:
//   - a file is taken as a whole or not at all, and the error names each line that is wrong;
//   - who guesses names or passwords learns nothing from how long an answer takes;
//   - the file, the users and the log are bounded.
//
// Users never change: a file that is read again makes new ones. Start reading at users.go.
package acl
