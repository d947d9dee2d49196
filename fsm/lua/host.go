package lua

import "github.com/holdfast/holdfast/protocol"

// Log levels of redis.log, as [Host.Log] gets them.
const (
	LogDebug = iota
	LogVerbose
	LogNotice
	LogWarning
)

// Host is a script's way to the keys. Every answer must be a function of the replicated state alone.
type Host interface {
	// Call runs the command of redis.call and redis.pcall. words is the command and the arguments,
	// converted from Lua by the rules of Redis. The slice is valid until Call returns, the strings for
	// ever. The name is in any case, as in the script. resp is 2 or 3, by redis.setresp. It matters only
	// for replies whose elements differ between the two; the engine itself turns maps into arrays and so
	// on.
	//
	// An error is a Value of KindError whose Str has a prefix and no line break. The engine raises the
	// error (call) or returns it (pcall). The host must know some errors in the words of Redis:
	//   - "ERR Unknown Redis command called from script"
	//   - "ERR Wrong number of args calling Redis command from script"
	//   - "ERR This Redis command is not allowed from script"
	//   - "ERR Write commands are not allowed from read-only scripts."
	Call(words []string, resp int) protocol.Value
	// CheckACL answers redis.acl_check_cmd: may the caller run words? An
	// unknown command is the error text "ERR Invalid command passed to
	// redis.acl_check_cmd()", else errText is empty.
	CheckACL(words []string) (allowed bool, errText string)
	// Log is redis.log, on every replica. level is a Log constant.
	Log(level int, message string)
}

// Env is the input of a run of a [Program].
type Env struct {
	// Keys and Args become KEYS and ARGV.
	Keys, Args []string
	Host       Host
	// SHA is the script's hash in lower case hex, for error texts.
	SHA string
	// Seed begins the sequence of math.random: the same sequence in all runs with the same seed; 0: the
	// sequence of a Redis that has just started. The seed must come from the log.
	Seed uint64
	// Limits bounds the run; a field that is 0 has the default.
	Limits Limits
}
