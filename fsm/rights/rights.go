//lint:file-ignore ST1005 the texts are those of Redis

// Package rights implements the rules of Redis's ACLs: the commands, keys and channels that a user may use.
//
// It promises:
//   - rules mean what they mean to Redis, and a rule that Redis refuses is refused with Redis's text;
//   - [Rights.String] returns equivalent rules in the form of ACL LIST, with the same meaning on every node;
//   - the work of a check is counted, so that the state machine can bound it.
//
// The log has a user's rules together with the user's scripts. So the categories of commands in scripts are part of the
// meaning of a log entry, and a test fixes them.
//
// Read selector.go (rules) and check.go (commands) next.
package rights

import (
	"errors"
	"iter"
	"strings"
)

// Rights are a user's permissions: one of the selectors must allow the whole command. The first selector has the rules
// outside of parentheses. The zero value allows nothing.
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
			// Redis accepts such a pattern, but ACL LIST would end the selector at it.
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

// Everything reports whether all commands are allowed.
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

// String returns equivalent rules, in the form of ACL LIST.
func (r *Rights) String() string {
	text := r.root.String()
	for i := range r.more {
		text += " (" + r.more[i].String() + ")"
	}
	return text
}

// Parse parses the output of [Rights.String], also of another node. It skips commands and categories that this release
// lacks, since the entries that the release applies contain none.
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

// ErrParenthesis is the error for an unclosed selector.
var ErrParenthesis = errors.New("Unmatched parenthesis in selector definition.")

// Words splits a line into rules; a parenthesized selector is one rule.
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

// words splits at ASCII blanks only, since others may be part of a pattern.
func words(line string) iter.Seq[string] {
	return strings.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' })
}

// Parts are the parts of a selector in ACL GETUSER.
type Parts struct{ Commands, Keys, Channels string }

// Describe returns the parts of each selector, the root's first.
func (r *Rights) Describe() []Parts {
	parts := []Parts{r.root.parts()}
	for i := range r.more {
		parts = append(parts, r.more[i].parts())
	}
	return parts
}
