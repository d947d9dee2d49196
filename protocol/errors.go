package protocol

import (
	"strconv"
	"strings"
)

// Outcome says whether a command with an error reply may have been applied. Forwarding, clients' retries and the
// partition tests use it.
type Outcome uint8

const (
	// OutcomeNone: the command was surely not applied, and may be sent again.
	OutcomeNone Outcome = iota
	// OutcomeUnknown: the command may have been applied, or may still be.
	OutcomeUnknown
)

// Error is an error row: a reply whose text clients depend on. Client libraries decide by the prefix, the first word,
// whether they send the command again.
type Error struct {
	Prefix  string
	Text    string
	Outcome Outcome
}

// Error returns the reply's text with its prefix.
func (e *Error) Error() string { return e.Prefix + " " + e.Text }

// Value returns the row as a reply.
func (e *Error) Value() Value { return Value{Kind: KindError, Str: e.Error()} }

// The rows without parameters. If Redis has the error, too, the text is Redis's, since client libraries compare it.
var (
	ErrSyntax         = NewError("syntax error")
	ErrNotInteger     = NewError("value is not an integer or out of range")
	ErrNotFloat       = NewError("value is not a valid float")
	ErrOverflow       = NewError("increment or decrement would overflow")
	ErrNotFinite      = NewError("increment would produce NaN or Infinity")
	ErrNoSuchKey      = NewError("no such key")
	ErrStringTooBig   = NewError("string exceeds maximum allowed size (proto-max-bulk-len)")
	ErrDBIndex        = NewError("DB index is out of range")
	ErrInvalidCursor  = NewError("invalid cursor")
	ErrMaxClients     = NewError("max number of clients reached")
	ErrNestedMulti    = NewError("MULTI calls can not be nested")
	ErrWatchInMulti   = NewError("WATCH inside MULTI is not allowed")
	ErrExecNoMulti    = NewError("EXEC without MULTI")
	ErrDiscardNoMulti = NewError("DISCARD without MULTI")
	ErrNotInScript    = NewError("This Redis command is not allowed from script")
	ErrReadOnlyScript = NewError("Write commands are not allowed from read-only scripts.")
	ErrProtoVersion   = NewError("Protocol version is not an integer or out of range")
	ErrPasswordNotSet = NewError("AUTH <password> called without any password configured for the default user. Are you " +
		"sure your configuration is correct?")
	ErrWrongType   = &Error{Prefix: "WRONGTYPE", Text: "Operation against a key holding the wrong kind of value"}
	ErrNoScript    = &Error{Prefix: "NOSCRIPT", Text: "No matching script. Please use EVAL."}
	ErrExecAbort   = &Error{Prefix: "EXECABORT", Text: "Transaction discarded because of previous errors."}
	ErrNoAuth      = &Error{Prefix: "NOAUTH", Text: "Authentication required."}
	ErrHelloNoAuth = &Error{
		Prefix: "NOAUTH",
		Text: "HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option " +
			"can be used to authenticate the client and select the RESP protocol version at the same time",
	}
	ErrWrongPass    = &Error{Prefix: "WRONGPASS", Text: "invalid username-password pair or user is disabled."}
	ErrNoProto      = &Error{Prefix: "NOPROTO", Text: "unsupported protocol version"}
	ErrOOM          = &Error{Prefix: "OOM", Text: "command not allowed when used memory > 'maxmemory'."}
	ErrDiskFull     = &Error{Prefix: "MISCONF", Text: "command not allowed when the disks of the cluster are nearly full."}
	ErrLoading      = &Error{Prefix: "LOADING", Text: "Redis is loading the dataset in memory"}
	ErrUnblocked    = &Error{Prefix: "UNBLOCKED", Text: "client unblocked via CLIENT UNBLOCK"}
	ErrOwnerTooLong = &Error{Prefix: "OWNERTOOLONG", Text: "an owner is at most 1024 bytes"}
	ErrLockMode     = &Error{
		Prefix: "LOCKMODE",
		Text:   "the owner holds the lock in another mode, which does not become this one",
	}
	ErrNoSession = &Error{Prefix: "NOSESSION", Text: "no such session"}
	ErrNotBusy   = &Error{Prefix: "NOTBUSY", Text: "No scripts in execution right now."}
)

// The rows of a cluster that cannot execute a command now. Stock clients repeat a command after CLUSTERDOWN or
// TRYAGAIN, so both mean that it was surely not applied. No client knows the prefix UNCERTAIN, so none repeats the
// command.
var (
	ErrNoLeader = &Error{Prefix: "CLUSTERDOWN", Text: "No leader is known, the command was not applied"}
	ErrStopping = &Error{Prefix: "CLUSTERDOWN", Text: "This node is stopping, the command was not applied"}
	// ErrQuarantined: the node's state differs from the other members'.
	ErrQuarantined = &Error{
		Prefix: "CLUSTERDOWN",
		Text:   "This node's state differs from the other members', the command was not applied",
	}
	ErrBusy   = &Error{Prefix: "TRYAGAIN", Text: "Too many commands wait on this node, the command was not applied"}
	ErrNoRoom = &Error{
		Prefix: "TRYAGAIN",
		Text:   "The work of other commands left no room for this one in time, it was not applied",
	}
	// ErrTooManyWait: the waiters of the cluster have as much memory as is allowed.
	ErrTooManyWait = &Error{Prefix: "TRYAGAIN", Text: "Too many clients wait for keys, the command was not applied"}
	// ErrLocksFull: a lock has the largest number of holds or waiters, or the cluster that of waiters.
	ErrLocksFull = &Error{
		Prefix: "TRYAGAIN",
		Text:   "Too many clients hold the lock or wait for locks, the command was not applied",
	}
	// ErrCutOff is the error of a client that waited on a node that was silent for too long.
	ErrCutOff = &Error{
		Prefix: "CLUSTERDOWN",
		Text:   "This node was cut off from the cluster while the client waited, the command was not applied",
	}
	ErrUncertain = &Error{
		Prefix: "UNCERTAIN", Text: "The command may or may not have been applied",
		Outcome: OutcomeUnknown,
	}
	// ErrAskedAgain is the error of a wait for a lock whose owner has sent a later request, which may be granted. The
	// elements of the event's reply are the keys that the same connection has requested again.
	ErrAskedAgain = &Error{
		Prefix: "UNCERTAIN", Text: "The owner has asked for the lock again, and that request counts",
		Outcome: OutcomeUnknown,
	}
)

// NewError returns a row with the prefix ERR and the outcome none.
func NewError(text string) *Error { return &Error{Prefix: "ERR", Text: text} }

// InvalidExpire returns the error of a command whose expire time is out of range.
func InvalidExpire(command string) *Error {
	return NewError("invalid expire time in '" + command + "' command")
}

// QuotaExceeded returns the error of a command that would exceed a quota of its user.
func QuotaExceeded(user, what string, most uint64) *Error {
	return &Error{Prefix: "QUOTA", Text: "command not allowed: user '" + user + "' has all of its " +
		strconv.FormatUint(most, 10) + " " + what}
}

// ErrQuotaUsers: the largest number of users with a quota already have keys or waiters.
var ErrQuotaUsers = &Error{Prefix: "QUOTA", Text: "command not allowed: keys of too many users with a quota are there"}

// ExecAbortedBy returns the reply to an EXEC that was refused because of cause.
func ExecAbortedBy(cause *Error) *Error {
	text := cause.Text
	if cause.Prefix != "ERR" {
		text = cause.Error()
	}
	return &Error{Prefix: "EXECABORT", Text: "Transaction discarded because of: " + text}
}

// Err returns an error reply with the prefix ERR.
func Err(text string) Value { return Value{Kind: KindError, Str: "ERR " + text} }

// ErrValue returns an error reply with a prefix of its own: "WRONGTYPE Operation …".
func ErrValue(line string) Value { return Value{Kind: KindError, Str: line} }

// OutcomeOf returns the outcome of an error reply of Holdfast or of Redis, by its text. It is unknown for an unknown
// prefix, and for an error that ended a script, since the writes of the script stay, unless the error contains
// [Undone]. An error that a script returns itself ("ERR busy") after a write looks like a refusal.
func OutcomeOf(line string) Outcome {
	prefix, _, _ := strings.Cut(line, " ")
	if refusals[prefix] == 0 || raisedByScript(line) {
		return OutcomeUnknown
	}
	return OutcomeNone
}

// raisedByScript reports whether line ends like Redis's error for a script that it ended: "script: <sha>, on
// @user_script:1."
func raisedByScript(line string) bool {
	at := strings.LastIndex(line, ", on @user_script:")
	return at >= 0 && strings.Contains(line[:at], "script: ") && !strings.Contains(line[:at], ", "+Undone+" script: ")
}

// Undone is in the error of a script that was stopped, and whose writes were undone.
const Undone = "what it did is undone"

// Retried reports whether some stock client repeats a command after this error.
func Retried(line string) bool {
	prefix, _, _ := strings.Cut(line, " ")
	return refusals[prefix] == retried
}

// KnownPrefix reports whether errors of this program or of Redis have the prefix. A script can make up others.
func KnownPrefix(prefix string) bool {
	return refusals[prefix] != 0 || prefix == ErrUncertain.Prefix || prefix == ErrUnblocked.Prefix
}

// refusal is what stock clients do after an error whose command was not executed.
type refusal uint8

const (
	reported refusal = iota + 1 // return it to the caller
	retried                     // go-redis, redis-py or ioredis sends the command again
)

// refusals has the prefixes of errors whose command was not executed.
var refusals = map[string]refusal{
	"LOADING": retried, "READONLY": retried, "MASTERDOWN": retried, "CLUSTERDOWN": retried, "TRYAGAIN": retried,
	"NOREPLICAS": retried,

	"ERR": reported, "WRONGTYPE": reported, "NOSCRIPT": reported, "EXECABORT": reported, "NOAUTH": reported,
	"WRONGPASS": reported,
	"NOPERM":    reported, "NOPROTO": reported, "OOM": reported, "BUSY": reported, "NOTBUSY": reported,
	"BUSYKEY":   reported,
	"BUSYGROUP": reported, "NOGROUP": reported, "MISCONF": reported, "MOVED": reported, "ASK": reported,
	"CROSSSLOT": reported,
	"REDIRECT":  reported, "DENIED": reported,
	"OWNERTOOLONG": reported, "LOCKMODE": reported, "NOSESSION": reported, "QUOTA": reported,
}

// The errors of the request reader, in the words of Redis. After each the connection is closed.
var (
	errMultibulkLength          = protocolError("invalid multibulk length")
	errMultibulkUnauthenticated = protocolError("unauthenticated multibulk length")
	errMultibulkLine            = protocolError("too big mbulk count string")
	errBulkLength               = protocolError("invalid bulk length")
	errBulkUnauthenticated      = protocolError("unauthenticated bulk length")
	errBulkLine                 = protocolError("too big bulk count string")
	errInlineTooBig             = protocolError("too big inline request")
	errUnbalancedQuotes         = protocolError("unbalanced quotes in request")

	// ErrQueryTooBig is the error for a command above [Limits.MaxQueryBytes]. Redis closes the connection without one.
	ErrQueryTooBig = protocolError("too big request")
)

func protocolError(text string) *Error { return NewError("Protocol error: " + text) }

// errExpectedDollar returns the error for a word that does not begin with '$'.
func errExpectedDollar(got byte) *Error {
	return protocolError("expected '$', got '" + quote([]byte{got}) + "'")
}
