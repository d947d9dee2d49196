//lint:file-ignore ST1005 the texts are those of Redis

// Package acl has the users of a node: their rules from a file as Redis's aclfile, their passwords, what ACL's
// subcommands answer about them, and the log of refusals. What a user may do is decided by fsm/rights.
//
// It promises:
//   - a file is applied completely or not at all, and the error names the wrong lines, up to ten;
//   - the time of an answer reveals nothing about names or passwords;
//   - the file, the users and the log are bounded.
//
// Users are immutable: reading the file again makes new ones.
package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
)

// DefaultUser is the user of a connection that has not named another.
const DefaultUser = "default"

// User is a user with its rules.
type User struct {
	Name   string
	on     bool
	noPass bool
	// sanitizes is the flag that Redis shows, which has no effect here: no command takes a payload.
	sanitizes sanitize
	// passwords are SHA-256 sums in hexadecimal.
	passwords []string
	rights    rights.Rights
	text      string
	quota     *Quota // nil: no limits
}

type sanitize uint8

const (
	sanitizeUnsaid sanitize = iota
	sanitizeAlways
	sanitizeNever
)

// Users are all users of a node by name. There is always a default user.
type Users struct {
	byName map[string]*User
	names  []string // sorted
}

// The bounds of a file.
const (
	maxUsers     = 10_000
	maxSelectors = 32
	// maxRuleBytes bounds the text of a user's rules, which travels in the log with each script.
	maxRuleBytes = 16 << 10
)

// Password is the stored sum of a password.
type Password [sha256.Size]byte

// PasswordOf returns the sum of a password.
func PasswordOf(word string) Password { return sha256.Sum256([]byte(word)) }

// Only returns just the default user, who may do everything. Without passwords, none is required.
func Only(passwords ...Password) *Users { return newUsers([]*User{unbounded(passwords)}) }

// unbounded returns a default user who may do everything.
func unbounded(passwords []Password) *User {
	u := &User{Name: DefaultUser, on: true, noPass: len(passwords) == 0}
	for _, p := range passwords {
		u.passwords = append(u.passwords, hex.EncodeToString(p[:]))
	}
	for _, rule := range []string{"~*", "&*", "+@all"} {
		_ = u.rights.Apply(rule)
	}
	u.text = u.rights.String()
	return u
}

func newUsers(all []*User) *Users {
	us := &Users{byName: make(map[string]*User)}
	for _, u := range all {
		us.byName[u.Name] = u
		us.names = append(us.names, u.Name)
	}
	slices.Sort(us.names)
	return us
}

// Parse reads the users of a file. Empty lines and those that begin with # are notes. A default user that the file does
// not describe may do everything with one of the passwords, and is off if there is none.
func Parse(file, text string, passwords ...Password) (*Users, error) {
	var all []*User
	seen := make(map[string]bool)
	var wrong []error
	for i, line := range lines(text) {
		u, err := parseLine(line)
		switch {
		case err != nil:
		case seen[u.Name]:
			err = fmt.Errorf("Duplicate user '%s' found", u.Name)
		case u.Name == DefaultUser && len(passwords) > 0:
			err = errors.New("the default user has a password by password or password-file as well: leave out that flag, or this line")
		case len(all) == maxUsers:
			return nil, fmt.Errorf("%s has more than %d users", file, maxUsers)
		default:
			seen[u.Name] = true
			all = append(all, u)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s:%d: %w", file, i, err))
		}
	}
	if err := joinFirst(wrong); err != nil {
		return nil, err
	}
	if !seen[DefaultUser] {
		u := unbounded(passwords)
		u.on, u.noPass = len(passwords) > 0, false
		all = append(all, u)
	}
	return newUsers(all), nil
}

// lines are the lines of a file by number, from 1 on, without the notes: empty lines, and those that begin with #.
func lines(text string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.SplitSeq(text, "\n") {
			number++
			line = strings.Trim(line, " \t\r")
			if line != "" && line[0] != '#' && !yield(number, line) {
				return
			}
		}
	}
}

// joinFirst is an error of the first mistakes, nil if there are none.
func joinFirst(wrong []error) error { return errors.Join(wrong[:min(len(wrong), 10)]...) }

func parseLine(line string) (*User, error) {
	words, err := rights.Words(line)
	switch {
	case err != nil:
		return nil, err
	case words[0] != "user" || len(words) < 2:
		return nil, errors.New("should start with user keyword followed by the username")
	}
	if len(words[1]) > protocol.MaxUser {
		return nil, fmt.Errorf("the name of a user has %d bytes at most", protocol.MaxUser)
	}
	u := &User{Name: words[1]}
	for _, rule := range words[2:] {
		if err := u.apply(rule); errors.Is(err, rights.ErrUnknown) {
			return nil, fmt.Errorf("Error in applying operation '%s': %w", rule, err)
		} else if err != nil {
			return nil, err // without the rule, which may be a password
		}
	}
	u.text = u.rights.String()
	switch {
	case len(u.text) > maxRuleBytes:
		return nil, fmt.Errorf("the rules of user '%s' are longer than %d bytes", u.Name, maxRuleBytes)
	case len(u.rights.Describe()) > maxSelectors+1:
		return nil, fmt.Errorf("user '%s' has more than %d selectors", u.Name, maxSelectors)
	}
	return u, nil
}

// The errors have the texts of Redis.
var (
	errNoPassword   = errors.New("The password you are trying to remove from the user does not exist")
	errPasswordHash = errors.New(
		"The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")
)

// apply changes the user by one rule.
func (u *User) apply(rule string) error {
	switch strings.ToLower(rule) {
	case "on":
		u.on = true
	case "off":
		u.on = false
	case "nopass":
		u.noPass, u.passwords = true, nil
	case "resetpass":
		u.noPass, u.passwords = false, nil
	case "sanitize-payload":
		u.sanitizes = sanitizeAlways
	case "skip-sanitize-payload":
		u.sanitizes = sanitizeNever
	case "reset":
		*u = User{Name: u.Name, sanitizes: sanitizeAlways}
	default:
		if strings.ContainsRune("<>#!", rune(rule[0])) {
			return u.applyPassword(rule)
		}
		return u.rights.Apply(rule)
	}
	return nil
}

// applyPassword adds or removes a password, or a sum of one.
func (u *User) applyPassword(rule string) error {
	sum := rule[1:]
	switch rule[0] {
	case '>', '<':
		all := sha256.Sum256([]byte(sum))
		sum = hex.EncodeToString(all[:])
	default:
		if len(sum) != 2*sha256.Size || strings.Trim(sum, "0123456789abcdef") != "" {
			return errPasswordHash
		}
	}
	at := slices.Index(u.passwords, sum)
	switch {
	case (rule[0] == '<' || rule[0] == '!') && at < 0:
		return errNoPassword
	case rule[0] == '<' || rule[0] == '!':
		u.passwords = slices.Delete(u.passwords, at, at+1)
		return nil
	case at < 0:
		u.passwords = append(u.passwords, sum)
	}
	u.noPass = false
	return nil
}

// ErrNoFile is the error of a node without a file of users.
var ErrNoFile = errors.New("This Redis instance is not configured to use an ACL file: start the node with --acl-file")

// Find returns the user of that name, or nil.
func (us *Users) Find(name string) *User { return us.byName[name] }

// Default returns the default user.
func (us *Users) Default() *User { return us.byName[DefaultUser] }

// Names returns the names of all users, sorted.
func (us *Users) Names() []string { return us.names }

// Authenticate returns the user if the password is right, and nil if not, or if the user is off or unknown.
func (us *Users) Authenticate(name, password string) *User {
	u := us.byName[name]
	if u == nil {
		(&User{passwords: []string{nobodys}}).has(password) // takes as long as for an existing user
		return nil
	}
	if right := u.has(password); !right || !u.on {
		return nil
	}
	return u
}

// nobodys is the sum of no password.
var nobodys = strings.Repeat("0", 2*sha256.Size)

// has reports whether a password is the user's. Its time does not depend on how much of a password is right.
func (u *User) has(password string) bool {
	if u.noPass {
		return true
	}
	sum := sha256.Sum256([]byte(password))
	given, right := []byte(hex.EncodeToString(sum[:])), 0
	for _, want := range u.passwords {
		right |= subtle.ConstantTimeCompare([]byte(want), given)
	}
	return right == 1
}

// Open reports whether connections are this user's without a password, if it is the default user.
func (u *User) Open() bool { return u.on && u.noPass }

// On reports whether connections may be this user's.
func (u *User) On() bool { return u.on }

// TakesAny reports whether any password is the user's.
func (u *User) TakesAny() bool { return u.noPass }

// Rights returns the user's rights, or nil if the user may do everything.
func (u *User) Rights() *rights.Rights {
	if u.rights.Everything() {
		return nil
	}
	return &u.rights
}

// Rules returns the rules about commands, keys and channels, as in ACL LIST.
func (u *User) Rules() string { return u.text }

// Keeps reports whether u's connections may stay open when other replaces u: whether neither the rules nor the on flag
// have changed. Changed passwords close no connection.
func (u *User) Keeps(other *User) bool {
	return other != nil && u.on == other.on && u.text == other.text
}
