package str

import (
	"github.com/holdfast/holdfast/fsm/command"
)

// condition is the condition of SET, MSETEX or DELEX.
type condition uint8

const (
	always condition = iota
	ifMissing
	ifPresent
	ifEqual
	ifNotEqual
	ifDigestEqual
	ifDigestNotEqual
)

// compares reports whether the condition depends on the value.
func (cond condition) compares() bool { return cond >= ifEqual }

// conditionWords has the conditions that compare the value with the next word.
var conditionWords = [...]struct {
	word string
	condition
}{
	{"IFEQ", ifEqual},
	{"IFNE", ifNotEqual},
	{"IFDEQ", ifDigestEqual},
	{"IFDNE", ifDigestNotEqual},
}

// comparison returns the condition of a word in conditionWords, or always.
func comparison(word string) condition {
	for i := range conditionWords {
		if command.IsWord(word, conditionWords[i].word) {
			return conditionWords[i].condition
		}
	}
	return always
}

// optionSet is a set of options. All commands with options take EX, PX, EXAT and PXAT.
type optionSet uint8

const (
	takesExistence  optionSet = 1 << iota // NX, XX
	takesComparison                       // IFEQ, IFNE, IFDEQ, IFDNE
	takesGet
	takesKeepTTL
	takesPersist
)

// options has the options of SET, GETEX or MSETEX.
type options struct {
	condition condition
	match     string // the word that the condition compares with
	get       bool
	keepTTL   bool
	persist   bool
	unit      command.ExpiryUnit
	amount    string
}

// parseOptions parses options in any order. As in Redis, the last value of a repeated option is valid. ok is false if
// there is a syntax error, or if two options exclude each other.
func parseOptions(words []string, takes optionSet) (o options, ok bool) {
	for len(words) > 0 {
		n := o.flag(words[0], takes)
		if n == 0 && len(words) > 1 {
			n = o.valued(words[0], words[1], takes)
		}
		if n == 0 {
			return o, false
		}
		words = words[n:]
	}
	return o, true
}

// flag parses an option without a value, and returns the number of parsed words.
func (o *options) flag(word string, takes optionSet) int {
	switch {
	case takes&takesExistence != 0 && command.IsWord(word, "NX") && (o.condition == always || o.condition == ifMissing):
		o.condition = ifMissing
	case takes&takesExistence != 0 && command.IsWord(word, "XX") && (o.condition == always || o.condition == ifPresent):
		o.condition = ifPresent
	case takes&takesGet != 0 && command.IsWord(word, "GET"):
		o.get = true
	case takes&takesKeepTTL != 0 && command.IsWord(word, "KEEPTTL") && o.unit == command.ExpiryNone:
		o.keepTTL = true
	case takes&takesPersist != 0 && command.IsWord(word, "PERSIST") && o.unit == command.ExpiryNone:
		o.persist = true
	default:
		return 0
	}
	return 1
}

// valued parses an option with a value, and returns the number of parsed words.
func (o *options) valued(word, value string, takes optionSet) int {
	if u := unitOf(word); u != command.ExpiryNone {
		if o.keepTTL || o.persist || o.unit != command.ExpiryNone && o.unit != u {
			return 0
		}
		o.unit, o.amount = u, value
		return 2
	}
	if takes&takesComparison == 0 {
		return 0
	}
	if cond := comparison(word); cond != always && (o.condition == always || o.condition == cond) {
		o.condition, o.match = cond, value
		return 2
	}
	return 0
}

func unitOf(word string) command.ExpiryUnit {
	switch {
	case command.IsWord(word, "EX"):
		return command.ExpirySeconds
	case command.IsWord(word, "PX"):
		return command.ExpiryMillis
	case command.IsWord(word, "EXAT"):
		return command.ExpirySecondsAt
	case command.IsWord(word, "PXAT"):
		return command.ExpiryMillisAt
	}
	return command.ExpiryNone
}
