package fsm

import (
	"math"

	"github.com/holdfast/holdfast/fsm/command"
	"github.com/holdfast/holdfast/fsm/locks"
	"github.com/holdfast/holdfast/protocol"
)

// maxDuration bounds the durations of lock commands, in milliseconds. Clients may keep numbers as doubles.
const maxDuration = 1<<53 - 1

var (
	errTimeoutNoInteger = protocol.Err("timeout is not an integer or out of range")
	errManyPermits      = protocol.Err("PERMITS can't be greater than LIMIT")
	errNumkeys          = protocol.Err("numkeys should be greater than 0")
	errManyKeys         = protocol.Err("Number of keys can't be greater than number of args")
	errTooManyKeys      = protocol.Err("Number of keys can't be greater than 128")
	errLongDelay        = protocol.Err("DELAY can't be greater than 86400000, which is a day")
	errFence            = protocol.Err("value is out of range, must be a fence")
)

// lockOptions has the options of LOCK.ACQUIRE or LOCK.ACQUIREALL.
type lockOptions struct {
	request   locks.Request
	many      bool   // the command is LOCK.ACQUIREALL, which has fewer options
	leased    bool   // PX or EX was given
	limited   bool   // LIMIT was given
	permitted bool   // PERMITS was given
	calls     bool   // CALL was given
	command   string // the name of the command, for errors
}

// read parses a request. The first word is the name of the command.
func (o *lockOptions) read(words []string) (problem protocol.Value) {
	r := &o.request
	if o.many {
		r.Keys, words, problem = parseKeys(words[1:], locks.MaxKeys)
		switch {
		case problem.IsError():
			return problem
		case len(words) == 0:
			return command.ErrSyntax
		}
	} else {
		r.Keys, words = words[1:2], words[2:]
	}
	if r.Owner = words[0]; len(r.Owner) > locks.MaxText {
		return protocol.ErrOwnerTooLong.Value()
	}
	if problem = parseLockOptions(words[1:], o.flag, o.valued); problem.IsError() {
		return problem
	}
	return o.check()
}

// parseLockOptions parses options in any order. If an option is repeated, its last value counts. parseLockOptions calls
// flag for each word that may be an option without a value, and valued for an option with its value. Both functions
// report whether they know the option.
func parseLockOptions(words []string, flag func(word string) bool, valued func(word, value string) (known bool,
	problem protocol.Value),
) protocol.Value {
	for len(words) > 0 {
		if flag(words[0]) {
			words = words[1:]
			continue
		}
		if len(words) < 2 {
			return command.ErrSyntax
		}
		known, problem := valued(words[0], words[1])
		switch {
		case problem.IsError():
			return problem
		case !known:
			return command.ErrSyntax
		}
		words = words[2:]
	}
	return protocol.Value{}
}

// noFlag is the argument flag of parseLockOptions for commands whose options all have values.
func noFlag(string) bool { return false }

// check validates options that depend on each other, and sets the mode of the request.
func (o *lockOptions) check() protocol.Value {
	r := &o.request
	switch {
	case o.leased == (r.Session != 0), // a request has either a lease or a session
		o.limited && r.Mode == locks.Shared, o.permitted && !o.limited, r.Notify && !r.Waits, o.calls && !r.Reentrant:
		return command.ErrSyntax
	case o.permitted && r.Permits > r.Limit:
		return errManyPermits
	}
	if o.limited {
		r.Mode = locks.Permits
		if !o.permitted {
			r.Permits = 1
		}
	}
	return protocol.Value{}
}

// flag parses an option without a value.
func (o *lockOptions) flag(word string) (known bool) {
	r := &o.request
	switch {
	case command.IsWord(word, "SHARED"):
		r.Mode = locks.Shared
	case command.IsWord(word, "NOTIFY"):
		r.Notify = true
	case !o.many && command.IsWord(word, "REENTRANT"):
		r.Reentrant = true
	default:
		return false
	}
	return true
}

// valued parses an option with a value.
func (o *lockOptions) valued(word, value string) (known bool, problem protocol.Value) {
	r := &o.request
	unit := leaseUnit(word)
	switch {
	case unit != 0:
		o.leased = true
		r.LeaseMillis, problem = parseLease(value, unit, o.command)
	case command.IsWord(word, "SESSION"):
		r.Session, problem = parseSession(value)
	case command.IsWord(word, "WAIT"):
		r.Waits = true
		r.WaitMillis, problem = parseWait(value)
	case command.IsWord(word, "DELAY"):
		r.DelayMillis, problem = parseDelay(value)
	case command.IsWord(word, "NOTE"):
		r.Note, problem = parseText("NOTE", value)
	case !o.many && command.IsWord(word, "CALL"):
		o.calls = true
		r.Call, problem = parseText("CALL", value)
	case !o.many && command.IsWord(word, "LIMIT"):
		o.limited = true
		r.Limit, problem = parsePlaces(value)
	case !o.many && command.IsWord(word, "PERMITS"):
		o.permitted = true
		r.Permits, problem = parsePlaces(value)
	default:
		return false, problem
	}
	return true, problem
}

// leaseUnit returns the milliseconds of the unit of PX or EX, or 0 for another word.
func leaseUnit(word string) int64 {
	switch {
	case command.IsWord(word, "PX"):
		return 1
	case command.IsWord(word, "EX"):
		return 1000
	}
	return 0
}

// parseLease parses the value of PX or EX. name is the name of the command, for errors.
func parseLease(word string, unitMillis int64, name string) (millis int64, problem protocol.Value) {
	n, ok := protocol.ParseInt(word)
	switch {
	case !ok:
		return 0, command.ErrNotInteger
	case n <= 0, n > maxDuration/unitMillis:
		return 0, command.ErrExpireTime(name)
	}
	return n * unitMillis, problem
}

// parseNumber parses a number from lowest to highest. It returns the error invalid if the word is not a number or the
// number is too large, and the error tooSmall if the number is too small.
func parseNumber(word string, lowest, highest int64, invalid, tooSmall protocol.Value) (n int64,
	problem protocol.Value,
) {
	n, ok := protocol.ParseInt(word)
	switch {
	case !ok, n > highest:
		return 0, invalid
	case n < lowest:
		return 0, tooSmall
	}
	return n, problem
}

// parseSession parses the id of a session, which is at least 1.
func parseSession(word string) (id uint64, problem protocol.Value) {
	n, problem := parseNumber(word, 1, math.MaxInt64, command.ErrNotInteger, protocol.ErrNoSession.Value())
	return uint64(n), problem
}

func parseWait(word string) (millis int64, problem protocol.Value) {
	return parseNumber(word, 0, maxDuration, errTimeoutNoInteger, command.ErrTimeoutNegative)
}

// maxDelay is the longest delay in milliseconds.
const maxDelay = 24 * 3600 * 1000

func parseDelay(word string) (millis int64, problem protocol.Value) {
	millis, problem = parseNumber(word, 0, maxDuration, command.ErrNotInteger, command.ErrNotPositive)
	if !problem.IsError() && millis > maxDelay {
		return 0, errLongDelay
	}
	return millis, problem
}

// parsePlaces parses the value of LIMIT or PERMITS.
func parsePlaces(word string) (places int32, problem protocol.Value) {
	n, problem := parseNumber(word, 1, math.MaxInt32, command.ErrNotInteger, command.ErrNotPositive)
	return int32(n), problem
}

// parseText validates the value of an option that is a text.
func parseText(option, text string) (string, protocol.Value) {
	if len(text) > locks.MaxText {
		return "", protocol.Err(option + " is longer than 1024 bytes")
	}
	return text, protocol.Value{}
}

// parseKeys parses "numkeys key …". It returns the keys and the words after the keys. limit bounds their number.
func parseKeys(words []string, limit int64) (keys, rest []string, problem protocol.Value) {
	n, ok := protocol.ParseInt(words[0])
	switch {
	case !ok:
		return nil, nil, command.ErrNotInteger
	case n < 1:
		return nil, nil, errNumkeys
	case n > int64(len(words)-1):
		return nil, nil, errManyKeys
	case n > limit:
		return nil, nil, errTooManyKeys
	}
	return words[1 : 1+n], words[1+n:], problem
}
