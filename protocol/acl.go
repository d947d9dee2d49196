package protocol

import "slices"

// categoryNames has the ACL categories in Redis's order, including those of types that Holdfast does not have. The
// category of the module comes last.
var categoryNames = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string",
	"bitmap", "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow",
	"blocking", "dangerous", "connection", "transaction", "scripting",
	ModuleName,
}

// ACLCategoryNames returns the names of all categories, without @, in Redis's order.
func ACLCategoryNames() []string { return slices.Clone(categoryNames) }

// groupCategories has the categories of the rows of a group that name none.
var groupCategories = map[Group]string{
	GroupString:       "string",
	GroupList:         "list",
	GroupSortedSet:    "sortedset",
	GroupBitmap:       "bitmap",
	GroupHash:         "hash",
	GroupSet:          "set",
	GroupGeneric:      "keyspace",
	GroupScripting:    "scripting",
	GroupTransactions: "transaction",
	GroupConnection:   "connection",
	GroupModule:       ModuleName,
}

// ACLCategories returns the row's categories, without @, in Redis's order.
func (c *Command) ACLCategories() []string {
	var names []string
	for _, name := range categoryNames {
		if c.InCategory(name) {
			names = append(names, name)
		}
	}
	return names
}

// InCategory reports whether the row is in an ACL category, by Redis's rules that derive categories from flags.
func (c *Command) InCategory(name string) bool {
	switch name {
	case "write":
		return c.Has(FlagWrite)
	case "read":
		return c.Has(FlagReadOnly) && c.Group != GroupScripting
	case "pubsub":
		return c.Has(FlagPubSub)
	case "blocking":
		return c.Has(FlagBlocking)
	case "fast":
		return c.Has(FlagFast)
	case "slow":
		return !c.Has(FlagFast)
	case "admin":
		return c.Has(FlagAdmin) || slices.Contains(c.Categories, name)
	case "dangerous":
		return c.Has(FlagAdmin) || slices.Contains(c.Categories, name)
	}
	if c.Categories != nil {
		return slices.Contains(c.Categories, name)
	}
	// A container does nothing itself, so only its subcommands are in categories.
	return c.Subcommands == nil && name != "" && groupCategories[c.Group] == name
}

// Channels returns the positions of the first and the last channel of a command, for ACLs, or zeros if there is none. A
// negative last counts from the end of the line. pattern is set if the words are patterns.
func (c *Command) Channels() (first, last int, pattern bool) {
	switch c.Name {
	case "publish", "spublish":
		return 1, 1, false
	case "subscribe", "ssubscribe":
		return 1, -1, false
	case "psubscribe":
		return 1, -1, true
	}
	return 0, 0, false
}
