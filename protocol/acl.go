package protocol

import "slices"

// categoryNames are the ACL categories in Redis's order, of all types, also types that Holdfast lacks. The
// category of the module comes last.
var categoryNames = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string",
	"bitmap", "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow",
	"blocking", "dangerous", "connection", "transaction", "scripting",
	ModuleName,
}

// ACLCategoryNames are the names of all categories, without @, in Redis's order.
func ACLCategoryNames() []string { return slices.Clone(categoryNames) }

// groupCategories are the categories of a group's rows that name none.
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

// ACLCategories are the row's categories, without @, in Redis's order.
func (c *Command) ACLCategories() []string {
	var names []string
	for _, name := range categoryNames {
		if c.InCategory(name) {
			names = append(names, name)
		}
	}
	return names
}

// InCategory reports whether the row is in an ACL category, by the rules with which
// Redis derives categories from flags.
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
	// A container does nothing by itself: the subcommands are in categories.
	return c.Subcommands == nil && name != "" && groupCategories[c.Group] == name
}

// Channels are the first and the last word of a command that an ACL takes for a channel, all zero if there is none; a
// negative last counts from the end of the line. pattern: the words are patterns.
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
