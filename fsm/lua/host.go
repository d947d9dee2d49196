package lua

import "github.com/holdfast/holdfast/protocol"

// Log levels of redis.log.
const (
	LogDebug = iota
	LogVerbose
	LogNotice
	LogWarning
)

// Host runs the commands of a script. Each result must depend on the arguments and the replicated state alone.
type Host interface {
	// Call runs the command of a redis.call or redis.pcall. words has the name, in the case of the script, and the
	// arguments, converted from Lua by the rules of Redis. The slice is valid until Call returns; the strings stay valid.
	// resp is the version that redis.setresp has set. The host needs it only if the elements of the reply differ between
	// versions; the engine converts the types of the reply, such as maps to arrays.
	//
	// An error is a Value of KindError whose Str has a prefix and no line break. redis.call raises the error, and
	// redis.pcall returns it. Some errors must have the texts of Redis:
	//   - "ERR Unknown Redis command called from script"
	//   - "ERR Wrong number of args calling Redis command from script"
	//   - "ERR This Redis command is not allowed from script"
	//   - "ERR Write commands are not allowed from read-only scripts."
	Call(words []string, resp int) protocol.Value
	// CheckACL is redis.acl_check_cmd. It reports whether the user may run a command. For an unknown command errText is
	// "ERR Invalid command passed to redis.acl_check_cmd()", else it is empty.
	CheckACL(words []string) (allowed bool, errText string)
	// Log is redis.log. Each replica calls it. level is one of the Log constants.
	Log(level int, message string)
}

// Env is the input of a run of a [Program].
type Env struct {
	// Keys and Args become KEYS and ARGV.
	Keys, Args []string
	Host       Host
	// SHA is the script's hash in lower case hex, for error texts.
	SHA string
	// Seed is the seed of math.random, and must come from the log. The seed 0 gives the numbers of a Redis that has just
	// started.
	Seed uint64
	// Limits limits the run. A field that is 0 stands for its default.
	Limits Limits
}
