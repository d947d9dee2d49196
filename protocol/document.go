package protocol

// DocumentCommands returns the reply to COMMAND DOCS with these names, or without names for all commands. It leaves
// unknown names out.
func (t *Table) DocumentCommands(names [][]byte) Value {
	var elems []Value
	if len(names) == 0 {
		rows := t.rows
		for i := range rows {
			elems = append(elems, Bulk(rows[i].Name), rows[i].document())
		}
		return Map(elems...)
	}
	document := once((*Command).document)
	for _, name := range names {
		if row, ok := t.LookupBytes(name); ok {
			elems = append(elems, Bulk(row.Name), document(row))
		}
	}
	return Map(elems...)
}

// once returns a function that caches f's reply for each row, since a client may request the same row tens of thousands
// of times in one command.
func once(f func(*Command) Value) func(*Command) Value {
	made := make(map[*Command]Value)
	return func(row *Command) Value {
		v, ok := made[row]
		if !ok {
			v = f(row)
			made[row] = v
		}
		return v
	}
}

// document returns the row in the form of COMMAND DOCS.
func (c *Command) document() Value {
	elems := []Value{
		Bulk("summary"), Bulk(c.Summary),
		Bulk("since"), Bulk(c.Since),
		Bulk("group"), Bulk(string(c.Group)),
		Bulk("complexity"), Bulk(c.Complexity),
	}
	if c.Group == GroupModule {
		elems = append(elems, Bulk("module"), Bulk(ModuleName))
	}
	if c.Deprecated != nil {
		elems = append(elems,
			Bulk("doc_flags"), simpleSet([]string{"deprecated"}),
			Bulk("deprecated_since"), Bulk(c.Deprecated.Since),
			Bulk("replaced_by"), Bulk(c.Deprecated.ReplacedBy))
	}
	if len(c.Args) > 0 {
		var keys int64
		elems = append(elems, Bulk("arguments"), documentArgs(c.Args, &keys))
	}
	if len(c.Subcommands) > 0 {
		var subcommands []Value
		for i := range c.Subcommands {
			sub := &c.Subcommands[i]
			subcommands = append(subcommands, Bulk(sub.Name), sub.document())
		}
		elems = append(elems, Bulk("subcommands"), Map(subcommands...))
	}
	return Map(elems...)
}

// documentArgs describes arguments. keys counts the key arguments so far: the first has the row's first key spec, and
// so on.
func documentArgs(args []Arg, keys *int64) Value {
	elems := make([]Value, len(args))
	for i := range args {
		elems[i] = args[i].document(keys)
	}
	return Array(elems...)
}

func (a *Arg) document(keys *int64) Value {
	elems := []Value{
		Bulk("name"), Bulk(a.Name),
		Bulk("type"), Bulk(string(a.Type)),
	}
	switch {
	case a.KeySpec > 0:
		elems = append(elems, Bulk("key_spec_index"), Integer(int64(a.KeySpec-1)))
	case a.Type == ArgKey:
		elems = append(elems, Bulk("key_spec_index"), Integer(*keys))
		*keys++
	}
	if a.Token != "" {
		elems = append(elems, Bulk("token"), Bulk(a.Token))
	}
	if a.Since != "" {
		elems = append(elems, Bulk("since"), Bulk(a.Since))
	}
	var flags []string
	if a.Optional {
		flags = append(flags, "optional")
	}
	if a.Multiple {
		flags = append(flags, "multiple")
	}
	if a.MultipleToken {
		flags = append(flags, "multiple_token")
	}
	if flags != nil {
		elems = append(elems, Bulk("flags"), simpleSet(flags))
	}
	if len(a.Args) > 0 {
		elems = append(elems, Bulk("arguments"), documentArgs(a.Args, keys))
	}
	return Map(elems...)
}
