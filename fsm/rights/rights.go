//lint:file-ignore ST1005 the texts are those of Redis

// Package rights decides what a user may do by the rules of Redis's ACLs: which commands, and which keys and channels
// among their words.
//
// It promises:
//   - rules mean what they mean to Redis, and a rule that Redis refuses is refused with Redis's text;
//   - [Rights.String] is rules again, in the form of ACL LIST, and they mean the same on every node;
//   - the work of a check is counted, so that the state machine can bound it.
//
// The rules of a user travel in the log with scripts of the user's. So the categories of a command that scripts may
// call are part of the meaning of a log entry: a test holds them.
//
// Read selector.go (rules) and check.go (commands) next.
package rights

import (
	"errors"
	"iter"
	"strings"
)

// Rights are what a user may do: one of the selectors must allow a whole command. The first selector has the rules that
// stand in no parentheses. The zero value allows nothing.
type Rights struct {
	root selector
	more []selector
}

// The errors of rules have the texts of Redis.
var (
	ErrUnknown      = errors.New("Unknown command or category name in ACL")
	ErrRuleSyntax   = errors.New("Syntax error")
	errAfterAllKeys = errors.New("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does " +
		"not have any effect. " +
		"Try 'resetkeys' to start with an empty list of patterns")
	errAfterAllChannels = errors.New("Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid " +
		"and does not have any effect. " +
		"Try 'resetchannels' to start with an empty list of channels")
	errNested = errors.New("Allowing first-arg of a subcommand is not supported")
)

// Apply changes the rights by one rule.
func (r *Rights) Apply(rule string) error {
	switch {
	case len(rule) >= 2 && rule[0] == '(' && rule[len(rule)-1] == ')':
		var s selector
		for word := range words(rule[1 : len(rule)-1]) {
			// Redis takes such a pattern, but ACL LIST would end the selector there.
			if strings.HasSuffix(word, ")") {
				return ErrRuleSyntax
			}
			if err := s.apply(word); err != nil {
				return err
			}
		}
		r.more = append(r.more, s)
		return nil
	case strings.EqualFold(rule, "clearselectors"):
		r.more = nil
		return nil
	}
	return r.root.apply(rule)
}

// Everything reports whether no command is ever refused.
func (r *Rights) Everything() bool {
	if r.root.everything() {
		return true
	}
	for i := range r.more {
		if r.more[i].everything() {
			return true
		}
	}
	return false
}

// String is rules that mean these rights, as ACL LIST has them.
func (r *Rights) String() string {
	text := r.root.String()
	for i := range r.more {
		text += " (" + r.more[i].String() + ")"
	}
	return text
}

// Parse reads what [Rights.String] wrote, on this node or on another. A command or a category that this release lacks
// is left out: entries that the release applies have none.
func Parse(text string) (*Rights, error) {
	r := new(Rights)
	rules, err := Words(text)
	if err != nil {
		return nil, err
	}
	for _, rule := range rules {
		if err := r.Apply(rule); err != nil && !errors.Is(err, ErrUnknown) {
			return nil, err
		}
	}
	return r, nil
}

// ErrParenthesis is the error of a selector without an end.
var ErrParenthesis = errors.New("Unmatched parenthesis in selector definition.")

// Words cuts a line into rules; what stands in parentheses is one rule.
func Words(line string) ([]string, error) {
	var rules []string
	open := -1
	for word := range words(line) {
		switch {
		case open >= 0:
			rules[open] += " " + word
			if strings.HasSuffix(word, ")") {
				open = -1
			}
			continue
		case word[0] == '(' && !strings.HasSuffix(word, ")"):
			open = len(rules)
		}
		rules = append(rules, word)
	}
	if open >= 0 {
		return nil, ErrParenthesis
	}
	return rules, nil
}

// words are the words between blanks of ASCII: others may be part of a pattern.
func words(line string) iter.Seq[string] {
	return strings.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' })
}

// Parts describes a selector in the parts of ACL GETUSER.
type Parts struct{ Commands, Keys, Channels string }

// Describe returns the parts of each selector, the root's first.
func (r *Rights) Describe() []Parts {
	parts := []Parts{r.root.parts()}
	for i := range r.more {
		parts = append(parts, r.more[i].parts())
	}
	return parts
}
