package protocol

import (
	"strings"
)

// flagNames has the flags in the order of COMMAND INFO.
var flagNames = []struct {
	flag Flags
	name string
}{
	{FlagWrite, "write"},
	{FlagReadOnly, "readonly"},
	{FlagDenyOOM, "denyoom"},
	{FlagAdmin, "admin"},
	{FlagPubSub, "pubsub"},
	{FlagNoScript, "noscript"},
	{FlagBlocking, "blocking"},
	{FlagLoading, "loading"},
	{FlagStale, "stale"},
	{FlagSkipMonitor, "skip_monitor"},
	{FlagSkipSlowlog, "skip_slowlog"},
	{FlagFast, "fast"},
	{FlagNoAuth, "no_auth"},
	{FlagNoMandatoryKeys, "no_mandatory_keys"},
	{FlagNoAsyncLoading, "no_async_loading"},
	{FlagNoMulti, "no_multi"},
	{FlagAllowBusy, "allow_busy"},
}

// keyFlagNames has the flags of a key spec in the order of COMMAND INFO.
var keyFlagNames = []struct {
	flag KeyFlags
	name string
}{
	{KeyRW, "RW"},
	{KeyRO, "RO"},
	{KeyOW, "OW"},
	{KeyRM, "RM"},
	{KeyAccess, "access"},
	{KeyUpdate, "update"},
	{KeyInsert, "insert"},
	{KeyDelete, "delete"},
	{KeyNotKey, "not_key"},
	{KeyVariableFlags, "variable_flags"},
}

// CountCommands returns the reply to COMMAND COUNT.
func (t *Table) CountCommands() Value { return Integer(int64(len(t.rows))) }

// DescribeCommands returns the reply to COMMAND INFO with these names. Without names it is that of COMMAND, for all
// commands. The reply for an unknown name is null.
func (t *Table) DescribeCommands(names [][]byte) Value {
	rows := t.rows
	if len(names) == 0 {
		elems := make([]Value, len(rows))
		for i := range rows {
			elems[i] = rows[i].describe()
		}
		return Array(elems...)
	}
	elems := make([]Value, len(names))
	describe := once((*Command).describe)
	for i, name := range names {
		elems[i] = Null
		if row, ok := t.LookupBytes(name); ok {
			elems[i] = describe(row)
		}
	}
	return Array(elems...)
}

// describe returns the row in the form of COMMAND INFO.
func (c *Command) describe() Value {
	first, last, step := c.Range()
	specs := make([]Value, len(c.KeySpecs))
	for i := range c.KeySpecs {
		specs[i] = c.KeySpecs[i].describe()
	}
	subcommands := Set() // Redis has an empty set, or else an array
	if len(c.Subcommands) > 0 {
		subcommands.Kind = KindArray
	}
	for i := range c.Subcommands {
		subcommands.Elems = append(subcommands.Elems, c.Subcommands[i].describe())
	}
	categories := c.ACLCategories()
	for i, category := range categories {
		categories[i] = "@" + category
	}
	return Array(
		Bulk(c.Name),
		Integer(int64(c.Arity)),
		simpleSet(c.flagNames()),
		Integer(int64(first)),
		Integer(int64(last)),
		Integer(int64(step)),
		simpleSet(categories),
		bulkSet(c.Tips),
		Set(specs...),
		subcommands,
	)
}

func (c *Command) flagNames() []string {
	var names []string
	for _, f := range flagNames {
		if c.Has(f.flag) {
			names = append(names, f.name)
		}
		if f.flag == FlagDenyOOM && c.Group == GroupModule {
			names = append(names, "module")
		}
	}
	if c.MovableKeys() {
		names = append(names, "movablekeys")
	}
	return names
}

func (f KeyFlags) names() []string {
	var names []string
	for _, n := range keyFlagNames {
		if f&n.flag != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// describe returns the spec in the form of COMMAND INFO: how to find the first key (or the number of keys), and then
// the others.
func (s *KeySpec) describe() Value {
	var elems []Value
	if s.Notes != "" {
		elems = append(elems, Bulk("notes"), Bulk(s.Notes))
	}
	begin := Map(
		Bulk("type"), Bulk("index"),
		Bulk("spec"), Map(Bulk("index"), Integer(int64(s.Index))))
	find := Map(
		Bulk("type"), Bulk("range"),
		Bulk("spec"), Map(
			Bulk("lastkey"), Integer(int64(s.Last)),
			Bulk("keystep"), Integer(int64(s.Step)),
			Bulk("limit"), Integer(0)))
	if s.Counted {
		find = Map(
			Bulk("type"), Bulk("keynum"),
			Bulk("spec"), Map(
				Bulk("keynumidx"), Integer(0),
				Bulk("firstkey"), Integer(1),
				Bulk("keystep"), Integer(int64(s.Step))))
	}
	if s.Hidden {
		begin = Map(Bulk("type"), Bulk("unknown"), Bulk("spec"), Map())
		find = begin
	}
	return Map(append(elems,
		Bulk("flags"), simpleSet(s.Flags.names()),
		Bulk("begin_search"), begin,
		Bulk("find_keys"), find)...)
}

// ListCommands returns the reply to COMMAND LIST with these arguments: none, or FILTERBY and MODULE, ACLCAT or PATTERN
// with a value.
func (t *Table) ListCommands(args [][]byte) Value {
	keep := func(*Command) bool { return true }
	if len(args) != 0 {
		if len(args) != 3 || !strings.EqualFold(string(args[0]), "filterby") {
			return Err("syntax error")
		}
		value := string(args[2])
		switch strings.ToLower(string(args[1])) {
		case "module":
			keep = func(c *Command) bool { return c.Group == GroupModule && value == ModuleName }
		case "aclcat":
			keep = func(c *Command) bool { return c.InCategory(strings.ToLower(value)) }
		case "pattern":
			keep = func(c *Command) bool { return Match(value, c.Name, true) }
		default:
			return Err("syntax error")
		}
	}
	var names []string
	for c := range t.All() {
		if keep(c) {
			names = append(names, c.Name)
		}
	}
	return Strings(names...)
}

func simpleSet(names []string) Value {
	elems := make([]Value, len(names))
	for i, name := range names {
		elems[i] = Simple(name)
	}
	return Set(elems...)
}

func bulkSet(names []string) Value { return Set(Strings(names...).Elems...) }
