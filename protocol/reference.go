package protocol

import "strings"

// Usage returns the row's syntax in one line: "EXPIRE key seconds [NX | XX | GT | LT]".
func (c *Command) Usage() string {
	name := strings.ToUpper(strings.ReplaceAll(c.Name, "|", " "))
	if c.Subcommands != nil {
		if c.Arity == -1 {
			return name
		}
		return name + " subcommand [argument ...]"
	}
	return strings.TrimSuffix(name+" "+joinUsage(c.Args, " "), " ")
}

func joinUsage(args []Arg, separator string) string {
	words := make([]string, len(args))
	for i := range args {
		words[i] = args[i].usage()
	}
	return strings.Join(words, separator)
}

// usage returns an argument in the notation of the Redis documentation: [x] is optional, <a | b> a choice, and "x [x
// ...]" at least one x.
func (a *Arg) usage() string {
	var s string
	switch a.Type {
	case ArgPureToken:
		s = a.Token
	case ArgOneOf:
		s = joinUsage(a.Args, " | ")
	case ArgBlock:
		s = joinUsage(a.Args, " ")
	default:
		s = a.Name
	}
	brackets := a.Optional && !a.Multiple && (a.Token == "" || a.Type == ArgPureToken)
	if a.Type == ArgOneOf && !brackets {
		s = "<" + s + ">"
	}
	token := ""
	if a.Type != ArgPureToken && a.Token != "" {
		token = a.Token + " "
	}
	again := s
	switch {
	case a.Type == ArgOneOf:
		again = "<...>" // a choice is long, and precedes
	case a.MultipleToken:
		again = token + s
	}
	s = token + s
	if a.Multiple {
		s += " [" + again + " ...]"
	}
	if a.Optional {
		s = "[" + s + "]"
	}
	return s
}

// helpWidth is the width to which HELP texts are wrapped.
const helpWidth = 78

// Help returns the reply to a container's HELP subcommand in the layout of Redis: each subcommand with its arguments,
// and its summary below.
func (c *Command) Help() Value {
	lines := []Value{
		Simple(strings.ToUpper(c.Name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
	}
	if c.CheckArity(1) {
		lines = append(lines, Simple("(no subcommand)"))
		lines = appendHelp(lines, c.Summary)
	}
	var last []Value // HELP, which Redis lists last
	for i := range c.Subcommands {
		sub := &c.Subcommands[i]
		syntax := strings.TrimPrefix(sub.Usage(), strings.ToUpper(c.Name)+" ")
		text := appendHelp([]Value{Simple(syntax)}, sub.Summary)
		if syntax == "HELP" {
			last = text
			continue
		}
		lines = append(lines, text...)
	}
	return Array(append(lines, last...)...)
}

// appendHelp appends the summary as an indented sentence of wrapped lines.
func appendHelp(lines []Value, summary string) []Value {
	const indent = "   "
	line := indent
	for word := range strings.FieldsSeq(summary + ".") {
		if line != indent && len(line)+1+len(word) > helpWidth {
			lines = append(lines, Simple(line))
			line = indent
		}
		line += " " + word
	}
	return append(lines, Simple(line))
}

// groupTitles has the groups in the order of the reference.
var groupTitles = []struct {
	group Group
	title string
}{
	{GroupString, "Strings and counters"},
	{GroupList, "Lists"},
	{GroupSortedSet, "Sorted sets"},
	{GroupBitmap, "Bits of strings"},
	{GroupHash, "Hashes"},
	{GroupSet, "Sets"},
	{GroupGeneric, "Keys"},
	{GroupScripting, "Scripts"},
	{GroupPubSub, "Messages"},
	{GroupTransactions, "Transactions"},
	{GroupConnection, "Connection"},
	{GroupServer, "Server"},
	{GroupModule, "Native locks, the module " + ModuleName},
	{GroupCluster, "Clients of Redis Cluster"},
	{GroupSentinel, "Clients of Sentinel, on a port of their own"},
}

// Reference returns the table of all commands in Markdown.
func Reference() string {
	var b strings.Builder
	for i, g := range groupTitles {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString("## " + g.title + "\n\n| command | what it does | since |\n|---|---|---|\n")
		table := Redis()
		if g.group == GroupSentinel {
			table = Sentinel()
		}
		for c := range table.All() {
			isContainer := c.Subcommands != nil && !c.CheckArity(1)
			if c.Group == g.group && !isContainer {
				usage := strings.ReplaceAll(c.Usage(), "|", `\|`)
				b.WriteString("| `" + usage + "` | " + c.Summary + " | " + c.Since + " |\n")
			}
		}
	}
	return b.String() + reachReference()
}
