package rights

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Denial is the reason why a command is refused. A larger one belongs to a later check.
type Denial uint8

const (
	Allowed Denial = iota
	DeniedCommand
	DeniedKey
	DeniedChannel
)

// String returns the reason in the words of ACL LOG.
func (d Denial) String() string { return [...]string{"", "command", "key", "channel"}[d] }

// Budget bounds the work of checks. A step is a comparison of a pattern's byte with a key's byte. A check without steps
// left refuses.
type Budget struct{ Steps int64 }

// Check reports whether a command line may run. words has the command's name, the subcommand if any, and the arguments;
// at is the index of the refused word.
func Check[W ~string | ~[]byte](r *Rights, command *protocol.Command, words []W, b *Budget) (denial Denial, at int) {
	var keys []protocol.KeyUse
	for i := range 1 + len(r.more) {
		s := r.selector(i)
		if !s.allKeys && keys == nil {
			keys = protocol.AppendKeyUses(command, make([]protocol.KeyUse, 0, 8), words)
		}
		d, where := check(s, command, words, keys, b)
		if d == Allowed {
			return Allowed, 0
		}
		if d > denial || d == denial && where > at {
			denial, at = d, where
		}
	}
	return denial, at
}

func check[W ~string | ~[]byte](s *selector, command *protocol.Command, words []W, keys []protocol.KeyUse,
	b *Budget,
) (denial Denial, at int) {
	if !allows(s, command, words) {
		return DeniedCommand, 0
	}
	if !s.allKeys {
		for _, k := range keys {
			if !s.allowsKey(string(words[k.At]), needed(k.Flags), b) {
				return DeniedKey, k.At
			}
		}
	}
	if s.allChannels {
		return Allowed, 0
	}
	first, last, pattern := command.Channels()
	if first > 0 && last < 0 {
		last += len(words)
	}
	for i := first; i > 0 && i <= last && i < len(words); i++ {
		if !s.allowsChannel(string(words[i]), pattern, b) {
			return DeniedChannel, i
		}
	}
	return Allowed, 0
}

// allows reports whether the command itself is allowed.
func allows[W ~string | ~[]byte](s *selector, command *protocol.Command, words []W) bool {
	if s.allCommands || s.allowed.has(command) || command.Has(protocol.FlagNoAuth) {
		return true
	}
	first := s.first[command]
	return len(first) > 0 && len(words) > 1 && slices.ContainsFunc(first, func(argument string) bool {
		return strings.EqualFold(argument, string(words[1]))
	})
}

// needed returns the access to a key that a command needs.
func needed(f protocol.KeyFlags) (a access) {
	if f&protocol.KeyAccess != 0 {
		a |= reads
	}
	if f&(protocol.KeyInsert|protocol.KeyDelete|protocol.KeyUpdate) != 0 {
		a |= writes
	}
	return a
}

func (s *selector) allowsKey(key string, a access, b *Budget) bool {
	for i := range s.keys {
		if k := &s.keys[i]; k.access&a == a && b.match(k.glob, key) {
			return true
		}
	}
	return false
}

// allowsChannel reports whether a channel is allowed. A pattern of PSUBSCRIBE must be equal to an allowed pattern, as
// in Redis.
func (s *selector) allowsChannel(channel string, pattern bool, b *Budget) bool {
	return slices.ContainsFunc(s.channels, func(glob string) bool {
		return pattern && glob == channel || !pattern && b.match(glob, channel)
	})
}

func (b *Budget) match(glob, word string) bool {
	b.Steps-- // each pattern costs a step
	if b.Steps < 0 {
		return false
	}
	if before, simple := strings.CutSuffix(glob, "*"); simple && !strings.ContainsAny(before, `*?[\`) && word != "" {
		b.Steps -= int64(len(before))
		return strings.HasPrefix(word, before)
	}
	return protocol.MatchSteps(glob, word, false, &b.Steps)
}

// MayRead reports whether any selector allows reading a key, whatever the command.
func (r *Rights) MayRead(key string, b *Budget) bool {
	for i := range 1 + len(r.more) {
		if s := r.selector(i); s.allKeys || s.allowsKey(key, reads, b) {
			return true
		}
	}
	return false
}

// MayHear reports whether any selector allows subscribing to a channel.
func (r *Rights) MayHear(channel string, b *Budget) bool {
	for i := range 1 + len(r.more) {
		if s := r.selector(i); s.allChannels || s.allowsChannel(channel, false, b) {
			return true
		}
	}
	return false
}

// RefusedSort returns Redis's error text if SORT has an option that reads keys which are no arguments, and the user may
// not read all keys. It is empty otherwise.
func RefusedSort[W ~string | ~[]byte](r *Rights, command *protocol.Command, words []W, b *Budget) (text string) {
	if command.Name != "sort" && command.Name != "sort_ro" {
		return ""
	}
	option := foreignKeys(words)
	if option == "" || allKeys(r, command, words, b) {
		return ""
	}
	return option + " option of SORT denied due to insufficient ACL permissions."
}

// foreignKeys returns the first option of SORT that reads keys which are no arguments: BY, GET or none.
func foreignKeys[W ~string | ~[]byte](words []W) string {
	for i := 2; i+1 < len(words); i++ {
		switch option := strings.ToUpper(string(words[i])); option {
		case "BY", "GET":
			i++
			if option == "GET" || strings.Contains(string(words[i]), "*") { // BY without a star names no key
				return option
			}
		case "LIMIT":
			i += 2
		}
	}
	return ""
}

// allKeys reports whether a selector that allows the command line allows reading every key.
func allKeys[W ~string | ~[]byte](r *Rights, command *protocol.Command, words []W, b *Budget) bool {
	keys := protocol.AppendKeyUses(command, nil, words)
	for i := range 1 + len(r.more) {
		s := r.selector(i)
		if denial, _ := check(s, command, words, keys, b); denial == Allowed && s.readsAll() {
			return true
		}
	}
	return false
}

func (s *selector) readsAll() bool {
	return s.allKeys || slices.ContainsFunc(s.keys, func(k keyPattern) bool {
		return k.glob == "*" && k.access&reads != 0
	})
}

// selector returns the root selector for 0, then the others.
func (r *Rights) selector(i int) *selector {
	if i == 0 {
		return &r.root
	}
	return &r.more[i-1]
}
