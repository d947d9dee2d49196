package protocol

import (
	"strings"
)

// The errors of COMMAND GETKEYS.
var (
	errNoSuchCommand = NewError("Invalid command specified")
	errNoKeys        = NewError("The command has no key arguments")
	errKeysArity     = NewError("Invalid number of arguments specified for command")
	errKeysArguments = NewError("Invalid arguments specified for command")
)

// MovableKeys reports whether the keys depend on the arguments, so that [Command.Range] does not suffice.
func (c *Command) MovableKeys() bool {
	for i := range c.KeySpecs {
		if c.KeySpecs[i].Counted || c.KeySpecs[i].Hidden {
			return true
		}
	}
	return false
}

// Range returns the positions of the first and the last key, and the distance between two, as the older part of COMMAND
// INFO has them. A negative last counts from the end of the line. Range leaves out keys that a word counts, and returns
// zeros if there are no others.
func (c *Command) Range() (first, last, step int) {
	for i := range c.KeySpecs {
		spec := &c.KeySpecs[i]
		if spec.Counted || spec.Hidden {
			continue
		}
		if first == 0 {
			first, step = spec.Index, spec.Step
		}
		last = spec.Last
		if last >= 0 {
			last += spec.Index
		}
	}
	return first, last, step
}

// takesKeys reports whether a word of the command may be a key.
func (c *Command) takesKeys() bool {
	for i := range c.KeySpecs {
		if c.KeySpecs[i].Flags&KeyNotKey == 0 {
			return true
		}
	}
	return false
}

// KeyPositions returns the positions of the keys in a command line. words[0] is the name of the command, and words[1]
// that of a subcommand. The error, an [*Error], is for a line that contradicts the row's arity or its own count of
// keys.
func (c *Command) KeyPositions(words [][]byte) ([]int, error) { return c.KeyPositionsIn(nil, words) }

// KeyPositionsIn is [Command.KeyPositions] in the caller's memory.
func (c *Command) KeyPositionsIn(positions []int, words [][]byte) ([]int, error) {
	if !c.CheckArity(len(words)) {
		return nil, errKeysArity
	}
	for i := range c.KeySpecs {
		if c.KeySpecs[i].Flags&KeyNotKey != 0 {
			continue
		}
		var ok bool
		if positions, ok = appendPositions(&c.KeySpecs[i], positions, words); !ok {
			return nil, errKeysArguments
		}
	}
	return positions, nil
}

// AppendKeyPositions is [Command.KeyPositions] for strings. It skips parts of the line whose keys cannot be found.
func (c *Command) AppendKeyPositions(dst []int, words []string) []int {
	for i := range c.KeySpecs {
		if c.KeySpecs[i].Flags&KeyNotKey != 0 {
			continue
		}
		if more, ok := appendPositions(&c.KeySpecs[i], dst, words); ok {
			dst = more
		}
	}
	return dst
}

func appendPositions[W ~string | ~[]byte](s *KeySpec, dst []int, words []W) ([]int, bool) {
	first, last := s.Index, s.Index+s.Last
	switch {
	case s.Hidden:
		return appendOption(s, dst, words), true
	case s.Counted:
		if s.Index >= len(words) {
			return dst, false
		}
		n, ok := ParseInt(string(words[s.Index]))
		if !ok || n < 0 || n > int64((len(words)-s.Index-1)/s.Step) {
			return dst, false
		}
		first = s.Index + 1
		last = first + (int(n)-1)*s.Step
	case s.Last < 0:
		last = len(words) + s.Last
	}
	if last >= len(words) {
		return dst, false
	}
	for i := first; i <= last; i += s.Step {
		dst = append(dst, i)
	}
	return dst, true
}

// appendOption appends the position of the key after the last option of a hidden spec. As in Redis, the words after BY,
// GET and LIMIT are no options.
func appendOption[W ~string | ~[]byte](s *KeySpec, dst []int, words []W) []int {
	at := 0
	for i := 2; s.Option != "" && i < len(words); i++ {
		switch word := strings.ToUpper(string(words[i])); {
		case word == "BY", word == "GET":
			i++
		case word == "LIMIT":
			i += 2
		case word == s.Option && i+1 < len(words):
			at = i + 1
		}
	}
	if at > 0 {
		dst = append(dst, at)
	}
	return dst
}

// KeyUse is a key of a command line, and what the command does with it.
type KeyUse struct {
	At    int
	Flags KeyFlags
}

// AppendKeyUses appends the keys of a command line. It skips parts of the line whose keys cannot be found.
func AppendKeyUses[W ~string | ~[]byte](c *Command, dst []KeyUse, words []W) []KeyUse {
	var room [8]int
	for i := range c.KeySpecs {
		spec := &c.KeySpecs[i]
		if spec.Flags&KeyNotKey != 0 {
			continue
		}
		positions, ok := appendPositions(spec, room[:0], words)
		if !ok || len(positions) == 0 {
			continue
		}
		flags := flagsFor(spec, words)
		for _, at := range positions {
			dst = append(dst, KeyUse{at, flags})
		}
	}
	return dst
}

// flagsFor returns the flags for this command line.
func flagsFor[W ~string | ~[]byte](s *KeySpec, words []W) KeyFlags {
	if s.Flags&KeyVariableFlags == 0 {
		return s.Flags
	}
	if s.While != nil {
		for i := s.Index + 1; i < len(words); i++ {
			arguments, known := s.While[strings.ToUpper(string(words[i]))]
			if i += arguments; !known || i >= len(words) {
				return s.Flags &^ KeyVariableFlags
			}
		}
		return s.Plain
	}
	for _, w := range words[min(s.Index+2, len(words)):] {
		for _, option := range s.Unless {
			if strings.EqualFold(option, string(w)) {
				return s.Flags &^ KeyVariableFlags
			}
		}
	}
	return s.Plain
}

// GetKeys returns the reply to COMMAND GETKEYS with this command line. If withFlags is set, it is that of COMMAND
// GETKEYSANDFLAGS, which also says what happens to each key.
func GetKeys(line [][]byte, withFlags bool) Value {
	c, _ := Find(line)
	switch {
	case c == nil:
		return errNoSuchCommand.Value()
	case !c.takesKeys():
		return errNoKeys.Value()
	case !c.CheckArity(len(line)):
		return errKeysArity.Value()
	}
	var elems []Value
	for i := range c.KeySpecs {
		spec := &c.KeySpecs[i]
		if spec.Flags&KeyNotKey != 0 {
			continue
		}
		positions, ok := appendPositions(spec, nil, line)
		ok = ok && !(spec.Counted && len(positions) == 0)
		switch {
		case !ok && c.Has(FlagNoMandatoryKeys):
			return Array()
		case !ok:
			return errKeysArguments.Value()
		}
		flags := simpleSet(flagsFor(spec, line).names())
		for _, p := range positions {
			k := Bulk(string(line[p]))
			if withFlags {
				k = Array(k, flags)
			}
			elems = append(elems, k)
		}
	}
	return Array(elems...)
}

// Slots is the number of hash slots of a cluster.
const Slots = 16384

// KeySlot returns the hash slot of a key: that of the text between the first { and the next }, or of the whole key if
// that text is empty.
func KeySlot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if tag := strings.IndexByte(key[open+1:], '}'); tag > 0 {
			key = key[open+1 : open+1+tag]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crc16[byte(crc>>8)^key[i]]
	}
	return int(crc % Slots)
}

// crc16 is the table of CRC-16/XMODEM, polynomial 0x1021.
var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
