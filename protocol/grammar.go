package protocol

import "strings"

// The functions that build the argument grammar of the rows. Each method returns a changed copy:
// text("value").after("IFEQ").opt().

func text(name string) Arg     { return Arg{Name: name, Type: ArgString} }
func integer(name string) Arg  { return Arg{Name: name, Type: ArgInteger} }
func double(name string) Arg   { return Arg{Name: name, Type: ArgDouble} }
func key(name string) Arg      { return Arg{Name: name, Type: ArgKey} }
func pattern(name string) Arg  { return Arg{Name: name, Type: ArgPattern} }
func unixTime(name string) Arg { return Arg{Name: name, Type: ArgUnixTime} }

// token is a literal word.
func token(word string) Arg {
	return Arg{Name: strings.ToLower(word), Type: ArgPureToken, Token: word}
}

func oneOf(name string, args ...Arg) Arg { return Arg{Name: name, Type: ArgOneOf, Args: args} }

func block(name string, args ...Arg) Arg { return Arg{Name: name, Type: ArgBlock, Args: args} }

// Options of several commands.

func weights() Arg { return integer("weight").after("WEIGHTS").opt().many() }

func aggregate() Arg {
	return oneOf("aggregate", token("SUM"), token("MIN"), token("MAX")).after("AGGREGATE").opt()
}

func offsetCount() Arg {
	return block("offset_count", integer("offset"), integer("count")).after("LIMIT").opt()
}

func expiryCondition() Arg {
	return oneOf("condition", token("NX"), token("XX"), token("GT"), token("LT")).from("7.0.0").opt()
}

// after puts a token before the argument.
func (a Arg) after(word string) Arg {
	a.Token = word
	return a
}

// named gives a token another name.
func (a Arg) named(name string) Arg {
	a.Name = name
	return a
}

// from sets the release that introduced the argument.
func (a Arg) from(release string) Arg {
	a.Since = release
	return a
}

// fromLog sets the version of the log entry that introduced the argument.
func (a Arg) fromLog(version byte) Arg {
	a.LogVersion = version
	return a
}

func (a Arg) opt() Arg {
	a.Optional = true
	return a
}

func (a Arg) many() Arg {
	a.Multiple = true
	return a
}

// eachTime repeats the token before every value.
func (a Arg) eachTime() Arg {
	a.MultipleToken = true
	return a
}

// of sets the argument's key spec, counted from 1.
func (a Arg) of(spec int) Arg {
	a.KeySpec = spec
	return a
}

// oneKey returns the spec of a key at a fixed position.
func oneKey(index int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Step: 1, Flags: flags}
}

// twoKeys returns the spec of a key at a fixed position and at the next.
func twoKeys(index int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Last: 1, Step: 1, Flags: flags}
}

// keysFrom returns the spec of keys up to the end of the line, every step words.
func keysFrom(index, step int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Last: -1, Step: step, Flags: flags}
}

// keysBefore returns the spec of keys up to the last words, every step words.
func keysBefore(index, last int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Last: -1 - last, Step: 1, Flags: flags}
}

// countedKeys returns the spec of keys after the number that counts them, every step words.
func countedKeys(index, step int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Step: step, Counted: true, Flags: flags}
}

// hiddenKeys returns the spec of keys whose positions COMMAND INFO cannot describe.
func hiddenKeys(flags KeyFlags, notes string) KeySpec {
	return KeySpec{Step: 1, Hidden: true, Flags: flags, Notes: notes}
}

// behind sets the option that the key follows.
func (s KeySpec) behind(option string) KeySpec {
	s.Option = option
	return s
}

func (s KeySpec) noted(notes string) KeySpec {
	s.Notes = notes
	return s
}

// plain sets the flags for a command without any of the option words.
func (s KeySpec) plain(flags KeyFlags, unless ...string) KeySpec {
	s.Flags |= KeyVariableFlags
	s.Plain, s.Unless = flags, unless
	return s
}

// plainWhile sets the flags for a command in which only these options, each with so many arguments, follow the key.
func (s KeySpec) plainWhile(flags KeyFlags, options map[string]int) KeySpec {
	s.Flags |= KeyVariableFlags
	s.Plain, s.While = flags, options
	return s
}
