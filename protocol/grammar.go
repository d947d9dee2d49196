package protocol

import "strings"

// The words of the argument grammar of the table's rows. They are values, and a method returns a changed
// copy: text("value").after("IFEQ").opt().

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

// Options that several commands have.

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

// from is the release in which the argument came.
func (a Arg) from(release string) Arg {
	a.Since = release
	return a
}

// fromLog is the version of the log entry with which the argument came.
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

// of ties the argument to a key spec, counted from 1.
func (a Arg) of(spec int) Arg {
	a.KeySpec = spec
	return a
}

// oneKey is a key at a fixed position.
func oneKey(index int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Step: 1, Flags: flags}
}

// twoKeys are a key at a fixed position and the next word.
func twoKeys(index int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Last: 1, Step: 1, Flags: flags}
}

// keysFrom are keys up to the end of the line, every step words.
func keysFrom(index, step int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Last: -1, Step: step, Flags: flags}
}

// keysBefore are keys up to the word before the last so many, every step words.
func keysBefore(index, last int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Last: -1 - last, Step: 1, Flags: flags}
}

// countedKeys are keys behind the number that counts them, every step words.
func countedKeys(index, step int, flags KeyFlags) KeySpec {
	return KeySpec{Index: index, Step: step, Counted: true, Flags: flags}
}

// hiddenKeys are keys whose places COMMAND INFO cannot describe.
func hiddenKeys(flags KeyFlags, notes string) KeySpec {
	return KeySpec{Step: 1, Hidden: true, Flags: flags, Notes: notes}
}

// behind says that the key is behind an option.
func (s KeySpec) behind(option string) KeySpec {
	s.Option = option
	return s
}

func (s KeySpec) noted(notes string) KeySpec {
	s.Notes = notes
	return s
}

// plain says what happens to the key without any of the option words.
func (s KeySpec) plain(flags KeyFlags, unless ...string) KeySpec {
	s.Flags |= KeyVariableFlags
	s.Plain, s.Unless = flags, unless
	return s
}

// plainWhile says what happens to the key when all words behind it are these options, each with so many arguments.
func (s KeySpec) plainWhile(flags KeyFlags, options map[string]int) KeySpec {
	s.Flags |= KeyVariableFlags
	s.Plain, s.While = flags, options
	return s
}
