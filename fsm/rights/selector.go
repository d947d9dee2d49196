package rights

import (
	"math"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// access is the set of permitted accesses to keys of a pattern.
type access uint8

const (
	reads access = 1 << iota
	writes
)

type keyPattern struct {
	glob   string
	access access
}

// selector is a set of rules.
type selector struct {
	// allCommands is set by allowing all commands and cleared by refusing any; later is set if commands of later
	// releases are allowed.
	allCommands, later   bool
	allKeys, allChannels bool
	allowed              commandSet
	// first maps a command to the only first arguments with which it is allowed.
	first    map[*protocol.Command][]string
	keys     []keyPattern
	channels []string
	// rules are the command rules since the last one about all commands.
	rules []string
}

// commandSet is a bitmap of commands by number.
type commandSet [protocol.MaxCommands / 64]uint64

func (s *commandSet) has(c *protocol.Command) bool { return s[c.Number()/64]>>(c.Number()%64)&1 != 0 }

func (s *commandSet) put(c *protocol.Command, in bool) {
	bit := uint64(1) << (c.Number() % 64)
	if s[c.Number()/64] &^= bit; in {
		s[c.Number()/64] |= bit
	}
}

func (s *selector) everything() bool { return s.allCommands && s.allKeys && s.allChannels }

// apply changes the selector by one rule.
func (s *selector) apply(rule string) error {
	switch strings.ToLower(rule) {
	case "":
		return ErrRuleSyntax
	case "allkeys", "~*":
		s.allKeys, s.keys = true, nil
	case "resetkeys":
		s.allKeys, s.keys = false, nil
	case "allchannels", "&*":
		s.allChannels, s.channels = true, nil
	case "resetchannels":
		s.allChannels, s.channels = false, nil
	case "allcommands", "+@all":
		s.allCommands = true
		s.setAll(true)
	case "nocommands", "-@all":
		s.allCommands = false
		s.setAll(false)
	default:
		return s.applyOne(rule)
	}
	return nil
}

// applyOne applies a rule about certain keys, channels or commands.
func (s *selector) applyOne(rule string) error {
	allow := rule[0] == '+'
	switch {
	case rule[0] == '~' || rule[0] == '%':
		return s.addKeys(rule)
	case rule[0] == '&':
		return s.addChannel(rule[1:])
	case rule[0] != '+' && rule[0] != '-':
		return ErrRuleSyntax
	case strings.HasPrefix(rule[1:], "@"):
		return s.setCategory(strings.ToLower(rule[2:]), allow)
	case allow && strings.Contains(rule, "|"):
		return s.allowPart(strings.ToLower(rule[1:]))
	}
	command := find(rule[1:])
	if command == nil {
		return ErrUnknown
	}
	s.set(command, allow)
	s.note(command.Name, allow)
	return nil
}

// addKeys parses "~glob" and "%R~glob".
func (s *selector) addKeys(rule string) error {
	if s.allKeys {
		return errAfterAllKeys
	}
	k := keyPattern{glob: rule[1:], access: reads | writes}
	if rule[0] == '%' {
		letters, glob, _ := strings.Cut(rule[1:], "~")
		k = keyPattern{glob: glob}
		for _, letter := range []byte(letters) {
			one := map[byte]access{'r': reads, 'w': writes}[letter|0x20]
			if one == 0 || k.access&one != 0 {
				return ErrRuleSyntax
			}
			k.access |= one
		}
		if k.access == 0 {
			return ErrRuleSyntax
		}
	}
	if !plain(k.glob) {
		return ErrRuleSyntax
	}
	if i := slices.IndexFunc(s.keys, func(other keyPattern) bool { return other.glob == k.glob }); i >= 0 {
		s.keys[i].access |= k.access
	} else {
		s.keys = append(s.keys, k)
	}
	return nil
}

func (s *selector) addChannel(glob string) error {
	switch {
	case s.allChannels:
		return errAfterAllChannels
	case !plain(glob):
		return ErrRuleSyntax
	case !slices.Contains(s.channels, glob):
		s.channels = append(s.channels, glob)
	}
	return nil
}

// plain reports whether a word has neither blanks nor NUL.
func plain(word string) bool { return !strings.ContainsAny(word, " \t\n\v\f\r\x00") }

// find returns a command, or nil.
func find(name string) *protocol.Command {
	for _, table := range tables() {
		if c, ok := table.LookupBytes([]byte(name)); ok {
			return c
		}
	}
	return nil
}

func tables() []*protocol.Table { return []*protocol.Table{protocol.Redis(), protocol.Sentinel()} }

// setAll replaces all command rules by one about all commands.
func (s *selector) setAll(allow bool) {
	s.later, s.rules, s.first = allow, nil, nil
	s.allowed = commandSet{}
	for i := range s.allowed {
		if allow {
			s.allowed[i] = math.MaxUint64
		}
	}
}

// set allows or refuses a command including its subcommands.
func (s *selector) set(command *protocol.Command, allow bool) {
	s.allowed.put(command, allow)
	s.allCommands = s.allCommands && allow
	delete(s.first, command)
	for i := range command.Subcommands {
		s.set(&command.Subcommands[i], allow)
	}
}

// setCategory allows or refuses the commands of a category.
func (s *selector) setCategory(name string, allow bool) error {
	if !slices.Contains(protocol.ACLCategoryNames(), name) {
		return ErrUnknown
	}
	for _, table := range tables() {
		for c := range table.All() {
			if c.InCategory(name) {
				s.set(c, allow)
			}
		}
	}
	s.note("@"+name, allow)
	return nil
}

// allowPart allows a subcommand, or a command with a given first argument.
func (s *selector) allowPart(name string) error {
	at := strings.LastIndex(name, "|")
	command, argument := find(name[:at]), name[at+1:]
	switch {
	case command == nil:
		return ErrUnknown
	case strings.Contains(command.Name, "|"):
		return errNested
	case argument == "":
		return ErrRuleSyntax
	case len(command.Subcommands) > 0:
		sub := find(name)
		if sub == nil {
			return ErrUnknown
		}
		s.set(sub, true)
	case !slices.Contains(s.first[command], argument):
		if s.first == nil {
			s.first = make(map[*protocol.Command][]string)
		}
		s.first[command] = append(s.first[command], argument)
	}
	s.note(name, true)
	return nil
}

// note records a rule about a command or category, and removes rules that it overrides.
func (s *selector) note(name string, allow bool) {
	s.rules = slices.DeleteFunc(s.rules, func(rule string) bool {
		return rule[1:] == name || strings.HasPrefix(rule[1:], name+"|")
	})
	mark := "-"
	if allow {
		mark = "+"
	}
	s.rules = append(s.rules, mark+name)
}

func (s *selector) parts() Parts {
	p := Parts{Commands: "-@all"}
	if s.later {
		p.Commands = "+@all"
	}
	for _, rule := range s.rules {
		p.Commands += " " + rule
	}
	var keys, channels []string
	for _, k := range s.keys {
		keys = append(keys, map[access]string{reads: "%R~", writes: "%W~", reads | writes: "~"}[k.access]+k.glob)
	}
	for _, glob := range s.channels {
		channels = append(channels, "&"+glob)
	}
	if p.Keys = strings.Join(keys, " "); s.allKeys {
		p.Keys = "~*"
	}
	if p.Channels = strings.Join(channels, " "); s.allChannels {
		p.Channels = "&*"
	}
	return p
}

// String returns rules that create the selector from an empty one.
func (s *selector) String() string {
	p, words := s.parts(), []string(nil)
	if p.Keys != "" {
		words = append(words, p.Keys)
	}
	if !s.allChannels {
		words = append(words, "resetchannels")
	}
	if p.Channels != "" {
		words = append(words, p.Channels)
	}
	return strings.Join(append(words, p.Commands), " ")
}
