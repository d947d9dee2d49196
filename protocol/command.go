// Package protocol defines the formats of the wire and of the log. It has no state and does no I/O of its own.
//
// It promises:
//   - a bounded request reader ([Reader]): no request makes it panic, recurse, or exceed its [Limits];
//   - one reply type ([Value]), which is encoded as RESP2 or RESP3 in one place;
//   - one command table ([Commands]), from which arity checks, COMMAND replies, ACL categories, help and COMMANDS.md
//     derive;
//   - error rows ([Error]) that say whether a failed command may have been applied;
//   - the codec of the log entry ([EntryWriter], [DecodeEntry]).
//
// Package fsm defines the meaning of commands.
//
// Start reading at [Commands], then [Value], then entry.go.
package protocol

// Route is the layer that executes a command.
type Route uint8

const (
	// Local commands are executed by the node of the connection alone (PING, CLIENT).
	Local Route = iota
	// Read commands read the state machine. They are linearizable.
	Read
	// Write commands go through the log.
	Write
	// Script commands go through the log, or are read if their row has FlagReadOnly (EVAL_RO).
	Script
)

// Flags has the properties of a command, with the names of COMMAND.
type Flags uint32

// The flags, with the meaning of Redis. Redis's movablekeys is not among them, since it follows from the row's key
// specs.
const (
	FlagWrite Flags = 1 << iota
	FlagReadOnly
	FlagDenyOOM
	FlagAdmin
	FlagPubSub
	FlagNoScript
	FlagBlocking
	FlagLoading
	FlagStale
	FlagFast
	FlagNoAuth
	FlagNoMulti
	FlagSkipMonitor
	FlagSkipSlowlog
	FlagNoAsyncLoading
	FlagAllowBusy
	FlagNoMandatoryKeys
)

// Group is the group of a command in lists, in the words of Redis.
type Group string

// The groups. The commands of GroupModule are those of [ModuleName].
const (
	GroupString       Group = "string"
	GroupList         Group = "list"
	GroupSortedSet    Group = "sorted-set"
	GroupBitmap       Group = "bitmap"
	GroupHash         Group = "hash"
	GroupSet          Group = "set"
	GroupGeneric      Group = "generic"
	GroupScripting    Group = "scripting"
	GroupTransactions Group = "transactions"
	GroupPubSub       Group = "pubsub"
	GroupConnection   Group = "connection"
	GroupServer       Group = "server"
	GroupCluster      Group = "cluster"
	GroupSentinel     Group = "sentinel"
	GroupModule       Group = "module"
)

// KeyFlags says what a command does with a key, in the words of COMMAND INFO.
type KeyFlags uint16

// One of the first four is about the key as a whole, the others are about its value.
const (
	KeyRW KeyFlags = 1 << iota
	KeyRO
	KeyOW
	KeyRM
	KeyAccess
	KeyUpdate
	KeyInsert
	KeyDelete
	// KeyNotKey is set if the word is a shard channel, which a cluster only looks up like a key.
	KeyNotKey
	// KeyVariableFlags is set if the options of the command decide. The other flags are then the most that may happen: see
	// [KeySpec.Plain].
	KeyVariableFlags
)

// KeySpec selects the words of a command line that are keys. Word 0 is the name of the command; word 1 is that of a
// subcommand.
type KeySpec struct {
	// Index is the position of the first key. With Counted it is the position of the number of keys, which come after it.
	Index int
	// Last is the position of the last key relative to Index, or -1 for the last word. It is unused with Counted.
	Last    int
	Step    int
	Counted bool
	Flags   KeyFlags
	// Plain has the flags, instead of the others, in two cases: none of the option words of Unless follows the key's
	// value, or all words after the key are options of While, with so many arguments each. It is used only with
	// KeyVariableFlags.
	Plain  KeyFlags
	Unless []string
	While  map[string]int
	Notes  string
	// Hidden is set if COMMAND INFO has no rule for the positions. If Option is not empty, the key follows the last such
	// option. Otherwise the value of another spec decides.
	Hidden bool
	Option string
}

// ArgType is the type of an argument, in the words of COMMAND DOCS.
type ArgType string

// The types. A oneof is one of Args, a block all of Args in order.
const (
	ArgString    ArgType = "string"
	ArgInteger   ArgType = "integer"
	ArgDouble    ArgType = "double"
	ArgKey       ArgType = "key"
	ArgPattern   ArgType = "pattern"
	ArgUnixTime  ArgType = "unix-time"
	ArgPureToken ArgType = "pure-token"
	ArgOneOf     ArgType = "oneof"
	ArgBlock     ArgType = "block"
)

// Arg is a node of a command's argument grammar, as in COMMAND DOCS.
type Arg struct {
	Name  string
	Type  ArgType
	Token string
	Since string
	// LogVersion is the first version of the log entry that has the argument, or 0 for that of the command: see
	// [LaterOption]. The argument must have a token, since only a token shows that it is present.
	LogVersion byte
	// KeySpec is the number of the argument's key spec, counted from 1. If it is 0, key arguments have their specs in
	// order.
	KeySpec  int
	Optional bool
	Multiple bool
	// MultipleToken is set if the token is repeated before every value.
	MultipleToken bool
	Args          []Arg
}

// Command is one row of the table. Rows are shared and must not be changed.
type Command struct {
	Name    string // lower case; a subcommand is "client|id"
	Summary string // a sentence without its full stop
	// Since is the first release of Redis with the command (of Valkey for DELIFEQ).
	Since string
	Group Group
	// LogVersion is the first version of the log entry that has the command: a cluster of an earlier version refuses it. 0
	// stands for all versions that this release writes.
	LogVersion byte
	// FromConn is set if the log has the connection that sent the command, since it may take a lock or end a hold. If
	// FromConnWith is not empty, the log has it only if this option is among the words.
	FromConn     bool
	FromConnWith string
	// Complexity is the O() sentence of COMMAND DOCS.
	Complexity string
	// Arity is the number of all words, including the name. If it is negative, it is the least number.
	Arity int
	Route Route
	Flags Flags
	// Categories has the ACL categories that the flags do not imply. nil stands for that of the group.
	Categories []string
	// Tips has hints for clients and proxies, in the words of COMMAND INFO.
	Tips     []string
	KeySpecs []KeySpec
	Args     []Arg
	// Deprecated is set if Redis advises against the command.
	Deprecated  *Deprecation
	Subcommands []Command
	// Reach is the effect of the command beyond its words.
	Reach *Reach

	number int
}

// Deprecation has the release of Redis since which a command has had a successor.
type Deprecation struct{ Since, ReplacedBy string }

// MaxCommands exceeds the number of rows.
const MaxCommands = 448

// Number returns the number of the row, which is below [MaxCommands]. It changes between releases.
func (c *Command) Number() int { return c.number }

// number numbers rows from n on, sets their reach, and returns the next number.
func number(rows []Command, n int) int {
	for i := range rows {
		if rows[i].Reach = reachOf()[rows[i].Name]; rows[i].Reach == nil {
			panic("protocol: reaches does not say what " + rows[i].Name + " tells or does beyond its words")
		}
		rows[i].number = n
		n = number(rows[i].Subcommands, n+1)
	}
	if n > MaxCommands {
		panic("protocol: MaxCommands is too small")
	}
	return n
}

// Has reports whether the row has all flags of f.
func (c *Command) Has(f Flags) bool { return c.Flags&f == f }

// CheckArity reports whether a command line may have nargs words, including the names of the command and its container.
func (c *Command) CheckArity(nargs int) bool {
	if c.Arity < 0 {
		return nargs >= -c.Arity
	}
	return nargs == c.Arity
}
