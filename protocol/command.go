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

// Route says which layer has a command's behaviour.
type Route uint8

const (
	// Local commands are answered by the connection's node alone (PING, CLIENT).
	Local Route = iota
	// Read commands look at the state machine; linearizable.
	Read
	// Write commands go through the log.
	Write
	// Script commands go through the log, or are read when their row says
	// FlagReadOnly (EVAL_RO).
	Script
)

// Flags are a command's properties, named as Redis names them in COMMAND.
type Flags uint32

// The flags. FlagWrite, FlagReadOnly and the rest carry Redis's meaning. Redis's
// movablekeys is not among them: it follows from the row's key specs.
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

// Group is the group of commands a row is listed under, in the words of Redis.
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

// KeyFlags say what a command does with a key, in the words of COMMAND INFO.
type KeyFlags uint16

// One of the first four says what happens to the key as a whole, the others what happens to the value.
const (
	KeyRW KeyFlags = 1 << iota
	KeyRO
	KeyOW
	KeyRM
	KeyAccess
	KeyUpdate
	KeyInsert
	KeyDelete
	// KeyNotKey: the word is a shard channel, which only stands where a cluster looks for keys.
	KeyNotKey
	// KeyVariableFlags: the options of the command decide; the other flags are
	// the most that may happen. See [KeySpec.Plain].
	KeyVariableFlags
)

// KeySpec says which words of a command line are keys. The name of the command is
// word 0; a subcommand's name is word 1.
type KeySpec struct {
	// Index is the position of the first key or, with Counted, of the number of keys, behind which the
	// keys begin.
	Index int
	// Last is the last key's position relative to Index; -1 is the last word.
	// Without meaning when Counted.
	Last    int
	Step    int
	Counted bool
	Flags   KeyFlags
	// Plain are the flags that hold when none of the option words of Unless is
	// behind the key's value, or when the words behind the key are the options
	// of While alone, with so many arguments each; only with KeyVariableFlags.
	Plain  KeyFlags
	Unless []string
	While  map[string]int
	Notes  string
	// Hidden: COMMAND INFO has no rule for the place of the keys. If Option is not empty, the key is the
	// word behind the last such option; else keys follow from the value of another.
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

// Arg is a node of a command's argument grammar, in the manner of COMMAND DOCS.
type Arg struct {
	Name  string
	Type  ArgType
	Token string
	Since string
	// LogVersion is the first version of the log entry that has the argument: see [LaterOption]. Of an argument with a
	// token, since only a token tells that the argument is there. 0: as the command.
	LogVersion byte
	// KeySpec is the number of the argument's key spec, counted from 1. 0: key arguments have their specs in
	// order.
	KeySpec  int
	Optional bool
	Multiple bool
	// MultipleToken: the token is repeated before every value.
	MultipleToken bool
	Args          []Arg
}

// Command is one row of the table. Rows are shared and must not be changed.
type Command struct {
	Name    string // lower case; a subcommand is "client|id"
	Summary string // a sentence without its stop
	// Since is the release of Redis that has the command (of Valkey for DELIFEQ).
	Since string
	Group Group
	// LogVersion is the first version of the log entry that has the command: a cluster of an earlier version refuses it.
	// 0: all that this release writes.
	LogVersion byte
	// FromConn: the log says which connection sends the command, since it may take a lock or take one away. FromConnWith,
	// unless it is empty: only if this option is among the words.
	FromConn     bool
	FromConnWith string
	// Complexity is the O() sentence of COMMAND DOCS.
	Complexity string
	// Arity counts all words, the name's included; negative: at least that many.
	Arity int
	Route Route
	Flags Flags
	// Categories are the ACL categories that flags do not imply; nil: the group's category.
	Categories []string
	// Tips are hints for clients and proxies, in the words of COMMAND INFO.
	Tips     []string
	KeySpecs []KeySpec
	Args     []Arg
	// Deprecated is set on rows that Redis advises against.
	Deprecated  *Deprecation
	Subcommands []Command
	// Reach is what the command tells or does beyond its words.
	Reach *Reach

	number int
}

// Deprecation says since which release of Redis a command has had a successor.
type Deprecation struct{ Since, ReplacedBy string }

// MaxCommands is more than there are rows.
const MaxCommands = 448

// Number is below [MaxCommands], and differs from row to row. It changes from release to release.
func (c *Command) Number() int { return c.number }

// number numbers rows from n on, gives them their reach, and returns the next number.
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

// CheckArity reports whether a command line of nargs words, the command's name and
// the container's included, is long enough and not too long.
func (c *Command) CheckArity(nargs int) bool {
	if c.Arity < 0 {
		return nargs >= -c.Arity
	}
	return nargs == c.Arity
}
