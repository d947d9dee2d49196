package acl

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/fsm/rights"
	"github.com/holdfast/holdfast/protocol"
)

// flags returns the flags of ACL GETUSER and ACL LIST in Redis's order.
func (u *User) flags() []string {
	flags := []string{"off"}
	if u.on {
		flags[0] = "on"
	}
	if u.noPass {
		flags = append(flags, "nopass")
	}
	switch u.sanitizes {
	case sanitizeAlways:
		flags = append(flags, "sanitize-payload")
	case sanitizeNever:
		flags = append(flags, "skip-sanitize-payload")
	}
	return flags
}

// Line returns the user's line of ACL LIST.
func (u *User) Line() string {
	words := append([]string{"user", u.Name}, u.flags()...)
	for _, sum := range u.passwords {
		words = append(words, "#"+sum)
	}
	return strings.Join(append(words, u.text), " ")
}

// List returns the reply to ACL LIST.
func (us *Users) List() protocol.Value {
	var lines []string
	for _, name := range us.names {
		lines = append(lines, us.byName[name].Line())
	}
	return protocol.Strings(lines...)
}

// Describe returns the reply to ACL GETUSER.
func (us *Users) Describe(name string) protocol.Value {
	u := us.Find(name)
	if u == nil {
		return protocol.Null
	}
	var flags, selectors []protocol.Value
	for _, flag := range u.flags() {
		flags = append(flags, protocol.Bulk(flag))
	}
	parts := u.rights.Describe()
	for _, p := range parts[1:] {
		selectors = append(selectors, protocol.Map(describe(p)...))
	}
	fields := append([]protocol.Value{
		protocol.Bulk("flags"), protocol.Set(flags...),
		protocol.Bulk("passwords"), protocol.Strings(u.passwords...),
	}, describe(parts[0])...)
	return protocol.Map(append(fields, protocol.Bulk("selectors"), protocol.Array(selectors...))...)
}

func describe(p rights.Parts) []protocol.Value {
	return []protocol.Value{
		protocol.Bulk("commands"), protocol.Bulk(p.Commands),
		protocol.Bulk("keys"), protocol.Bulk(p.Keys),
		protocol.Bulk("channels"), protocol.Bulk(p.Channels),
	}
}

// Categories is the reply to ACL CAT: all categories, or the commands of one.
func Categories(args [][]byte) protocol.Value {
	if len(args) == 0 {
		return protocol.Strings(protocol.ACLCategoryNames()...)
	}
	category := strings.ToLower(string(args[0]))
	if !slices.Contains(protocol.ACLCategoryNames(), category) {
		return protocol.Err("Unknown category '" + string(args[0]) + "'")
	}
	var names []string
	for c := range protocol.Redis().All() {
		if c.InCategory(category) {
			names = append(names, c.Name)
		}
	}
	return protocol.Strings(names...)
}

// DryRun is the reply to ACL DRYRUN with a user's name and a command line.
func (us *Users) DryRun(name string, line [][]byte) protocol.Value {
	u := us.Find(name)
	if u == nil {
		return protocol.Err("User '" + name + "' not found")
	}
	command, _ := protocol.FindIn(protocol.Redis(), line)
	switch {
	case command == nil:
		return protocol.Err("Command '" + string(line[0]) + "' not found")
	case !command.CheckArity(len(line)):
		return protocol.WrongArity(command.Name).Value()
	}
	denial, at := rights.Check(&u.rights, command, line, NewBudget())
	switch denial {
	case rights.Allowed:
		return protocol.OK
	case rights.DeniedCommand:
		return protocol.Bulk("This user has no permissions to run the '" + command.Name + "' command")
	case rights.DeniedKey:
		return protocol.Bulk("This user has no permissions to access the '" + string(line[at]) + "' key")
	}
	return protocol.Bulk("This user has no permissions to access the '" + string(line[at]) + "' channel")
}

// GeneratePassword is the reply to ACL GENPASS.
func GeneratePassword(args [][]byte) protocol.Value {
	bits := int64(256)
	if len(args) > 0 {
		n, ok := protocol.ParseInt(string(args[0]))
		if !ok {
			return protocol.ErrNotInteger.Value()
		}
		bits = n
	}
	if bits <= 0 || bits > 4096 {
		return protocol.Err(
			"ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096")
	}
	digits := int(bits+3) / 4
	random := make([]byte, (digits+1)/2)
	rand.Read(random)
	return protocol.Bulk(hex.EncodeToString(random)[:digits])
}

// NewBudget returns a budget that only malicious patterns exceed in one command.
func NewBudget() *rights.Budget { return &rights.Budget{Steps: 1 << 26} }

// MayRun reports whether the user may run a command with these arguments, or, if there are none, with any.
func (u *User) MayRun(name string, args ...string) bool {
	command, _ := protocol.Lookup(name)
	denial, _ := rights.Check(&u.rights, command, append([]string{name}, args...), NewBudget())
	return denial == rights.Allowed
}

// Refused returns the error for a command line that the user must not run, or nil. reason and object are for the log of
// refusals, which has none of SORT's options.
func Refused[W ~string | ~[]byte](r *rights.Rights, command *protocol.Command, words []W) (cause *protocol.Error,
	reason, object string,
) {
	denial, at := rights.Check(r, command, words, NewBudget())
	switch denial {
	case rights.DeniedCommand:
		return noPermission(fmt.Sprintf("run the '%s' command", command.Name)), denial.String(), command.Name
	case rights.DeniedKey, rights.DeniedChannel:
		return noPermission("access one of the " + denial.String() + "s used as arguments"), denial.String(),
			string(words[at])
	}
	if text := rights.RefusedSort(r, command, words, NewBudget()); text != "" {
		return protocol.NewError(text), "", ""
	}
	return nil, "", ""
}

func noPermission(to string) *protocol.Error {
	return &protocol.Error{Prefix: "NOPERM", Text: "this user has no permissions to " + to}
}
