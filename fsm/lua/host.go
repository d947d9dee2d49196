package lua

import "github.com/holdfast/holdfast/protocol"

// Log levels of redis.log, as [Host.Log] gets them.
const (
	LogDebug = iota
	LogVerbose
	LogNotice
	LogWarning
)

// Host is what a script reaches outside of itself: the keyspace. Every answer
// must be a function of the replicated state alone.
type Host interface {
	// Call runs the command of redis.call and redis.pcall. words is the command and
	// its arguments, converted from Lua by the rules of Redis; the slice is valid
	// until Call returns, its strings for ever. The name is as the script
	// wrote it, in any case. resp is 2 or 3, as the script chose by
	// redis.setresp: it matters only for replies whose elements differ between the
	// two, the engine itself turns maps into arrays and so on.
	//
	// An error is a Value of KindError whose Str has its prefix and no line
	// break; the engine raises it (call) or returns it (pcall). That is also
	// the way of errors that only the host can know; in the words of Redis:
	//   - "ERR Unknown Redis command called from script"
	//   - "ERR Wrong number of args calling Redis command from script"
	//   - "ERR This Redis command is not allowed from script"
	//   - "ERR Write commands are not allowed from read-only scripts."
	Call(words []string, resp int) protocol.Value
	// CheckACL answers redis.acl_check_cmd: may the caller run words? An
	// unknown command is the error text "ERR Invalid command passed to
	// redis.acl_check_cmd()", else errText is empty.
	CheckACL(words []string) (allowed bool, errText string)
	// Log is redis.log. Runs on every replica; level is one of the Log constants.
	Log(level int, message string)
}

// Env is what one run of a [Program] gets.
type Env struct {
	// Keys and Args become KEYS and ARGV.
	Keys, Args []string
	Host       Host
	// SHA is the script's hash in lower case hex; error texts name it.
	SHA string
	// Seed begins the sequence of math.random, which is the same in all runs with the same
	// seed; 0: that of a Redis that has just started. It must come from the log.
	Seed uint64
	// Legacy runs by the charges of the entries before version 3, which must run over their
	// budget exactly where they did: nothing is given back, and replies are not bounded.
	Legacy bool
	// Limits bounds the run; a field that is 0 has the default.
	Limits Limits
}
