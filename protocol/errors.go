package protocol

import (
	"strconv"
	"strings"
)

// Outcome says whether a command may have been applied although the reply is an error. Forwarding,
// clients' retries and the partition tests read it.
type Outcome uint8

const (
	// OutcomeNone: surely not applied; the command may be sent again.
	OutcomeNone Outcome = iota
	// OutcomeUnknown: the command may have been applied, or may still be.
	OutcomeUnknown
)

// Error is an error row: a reply whose text clients rely on. The prefix is the first word, by which
// client libraries decide whether to send the command again.
type Error struct {
	Prefix  string
	Text    string
	Outcome Outcome
}

// Error is the reply's text with its prefix.
func (e *Error) Error() string { return e.Prefix + " " + e.Text }

// Value is the row as a reply.
func (e *Error) Value() Value { return Value{Kind: KindError, Str: e.Error()} }

// The rows without parameters. An error that Redis has too bears Redis's text to the letter, since
// client libraries match on the text.
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

// The rows of a cluster that cannot take a command now. Stock clients repeat a command after CLUSTERDOWN
// or TRYAGAIN, so both mean that the command surely was not applied. No client knows the prefix
// UNCERTAIN, so no client repeats the command.
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
	// ErrTooManyWait: the waiters of the cluster take as much memory as they may.
	ErrTooManyWait = &Error{Prefix: "TRYAGAIN", Text: "Too many clients wait for keys, the command was not applied"}
	// ErrLocksFull: the holds or waiters of a lock, or the waiters of the cluster, are as many as they may be.
	ErrLocksFull = &Error{
		Prefix: "TRYAGAIN",
		Text:   "Too many clients hold the lock or wait for locks, the command was not applied",
	}
	// ErrCutOff is for a client that waited on a node from which the leader did not hear for long.
	ErrCutOff = &Error{
		Prefix: "CLUSTERDOWN",
		Text:   "This node was cut off from the cluster while the client waited, the command was not applied",
	}
	ErrUncertain = &Error{
		Prefix: "UNCERTAIN", Text: "The command may or may not have been applied",
		Outcome: OutcomeUnknown,
	}
	// ErrAskedAgain is for a client that waited for a lock. The owner's last request counts, and may be granted.
	// The elements of the event's reply are the keys that the same connection asked for.
	ErrAskedAgain = &Error{
		Prefix: "UNCERTAIN", Text: "The owner has asked for the lock again, and that request counts",
		Outcome: OutcomeUnknown,
	}
)

// NewError is a row with prefix ERR: surely not applied.
func NewError(text string) *Error { return &Error{Prefix: "ERR", Text: text} }

// InvalidExpire is the error of a command whose expire time is out of range.
func InvalidExpire(command string) *Error {
	return NewError("invalid expire time in '" + command + "' command")
}

// QuotaExceeded is the error of a command of a user who has all of something that the user's quota allows.
func QuotaExceeded(user, what string, most uint64) *Error {
	return &Error{Prefix: "QUOTA", Text: "command not allowed: user '" + user + "' has all of its " +
		strconv.FormatUint(most, 10) + " " + what}
}

// ErrQuotaUsers: as many users as the state counts for have keys or wait.
var ErrQuotaUsers = &Error{Prefix: "QUOTA", Text: "command not allowed: keys of too many users with a quota are there"}

// ExecAbortedBy is the reply to an EXEC that was itself refused with cause.
func ExecAbortedBy(cause *Error) *Error {
	text := cause.Text
	if cause.Prefix != "ERR" {
		text = cause.Error()
	}
	return &Error{Prefix: "EXECABORT", Text: "Transaction discarded because of: " + text}
}

// Err is an error reply with prefix ERR.
func Err(text string) Value { return Value{Kind: KindError, Str: "ERR " + text} }

// ErrValue is an error reply with a prefix of its own: "WRONGTYPE Operation …".
func ErrValue(line string) Value { return Value{Kind: KindError, Str: line} }

// OutcomeOf classifies the text of an error reply, of Holdfast or of Redis. The outcome is unknown for
// an unknown prefix, and for an error raised by a script: the writes of the script stay, unless the
// error says [Undone]. A script that returns an error of its own making ("ERR busy") after a write
// cannot be told from a refusal.
func OutcomeOf(line string) Outcome {
	prefix, _, _ := strings.Cut(line, " ")
	if refusals[prefix] == 0 || raisedByScript(line) {
		return OutcomeUnknown
	}
	return OutcomeNone
}

// raisedByScript reports whether line ends like an error of Redis that ended a script: "script: <sha>,
// on @user_script:1."
func raisedByScript(line string) bool {
	at := strings.LastIndex(line, ", on @user_script:")
	return at >= 0 && strings.Contains(line[:at], "script: ") && !strings.Contains(line[:at], ", "+Undone+" script: ")
}

// Undone stands in the error of a stopped script whose writes were undone.
const Undone = "what it did is undone"

// Retried reports whether a stock client repeats a command by itself after this error.
func Retried(line string) bool {
	prefix, _, _ := strings.Cut(line, " ")
	return refusals[prefix] == retried
}

// KnownPrefix reports whether errors of this program or of Redis begin with prefix. A script can make up
// others.
func KnownPrefix(prefix string) bool {
	return refusals[prefix] != 0 || prefix == ErrUncertain.Prefix || prefix == ErrUnblocked.Prefix
}

// refusal says what stock clients do about an error whose command was not tried.
type refusal uint8

const (
	reported refusal = iota + 1 // hand it to the caller
	retried                     // go-redis, redis-py or ioredis sends the command again
)

// refusals are the prefixes of errors whose command was not tried.
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

// The errors of the request reader, in the words of Redis. Each is the last reply of a connection.
var (
	errMultibulkLength          = protocolError("invalid multibulk length")
	errMultibulkUnauthenticated = protocolError("unauthenticated multibulk length")
	errMultibulkLine            = protocolError("too big mbulk count string")
	errBulkLength               = protocolError("invalid bulk length")
	errBulkUnauthenticated      = protocolError("unauthenticated bulk length")
	errBulkLine                 = protocolError("too big bulk count string")
	errInlineTooBig             = protocolError("too big inline request")
	errUnbalancedQuotes         = protocolError("unbalanced quotes in request")

	// ErrQueryTooBig answers a command above [Limits.MaxQueryBytes], where Redis
	// closes the connection without a word.
	ErrQueryTooBig = protocolError("too big request")
)

func protocolError(text string) *Error { return NewError("Protocol error: " + text) }

// errExpectedDollar answers a word that does not begin with '$'.
func errExpectedDollar(got byte) *Error {
	return protocolError("expected '$', got '" + quote([]byte{got}) + "'")
}
