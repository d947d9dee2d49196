package protocol

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"
)

// maxName exceeds the names of all rows. Longer words name no command.
const maxName = 32

// Table is an immutable set of rows: the commands that one kind of client may send.
type Table struct {
	rows   []*Command          // sorted by name, with subcommands inside their containers
	byName map[string]*Command // containers and subcommands
}

// theTable returns the commands of Redis, and theRows its rows.
var (
	theTable = sync.OnceValue(func() *Table { return newTable(theRows()) })
	theRows  = sync.OnceValue(buildRows)
)

func buildRows() []Command {
	rows := slices.Concat(
		inGroup(GroupString, stringCommands()), inGroup(GroupBitmap, bitmapCommands()),
		inGroup(GroupHash, hashCommands()), inGroup(GroupSet, setCommands()),
		inGroup(GroupList, listCommands(), blockingListCommands()),
		inGroup(GroupSortedSet, sortedSetCommands(), blockingSortedSetCommands()),
		inGroup(GroupGeneric, keysCommands(), sortCommands()),
		inGroup(GroupScripting, scriptingCommands()), inGroup(GroupTransactions, transactionsCommands()),
		inGroup(GroupPubSub, pubsubCommands()), inGroup(GroupConnection, connectionCommands()),
		inGroup(GroupServer, serverCommands(), moduleCommands(), observeCommands(), raftCommands(), backupCommands(),
			aclCommands()),
		inGroup(GroupCluster, clusterCommands()),
		inGroup(GroupModule, lockCommands(), sessionCommands(), fenceCommands()))
	sortRows(rows)
	for i := range rows {
		sortRows(rows[i].Subcommands)
	}
	number(rows, 0)
	return rows
}

// inGroup sets the group of rows and subcommands that name none.
func inGroup(group Group, tables ...[]Command) []Command {
	rows := slices.Concat(tables...)
	for i := range rows {
		rows[i].Group = cmp.Or(rows[i].Group, group)
		rows[i].Subcommands = inGroup(group, rows[i].Subcommands)
	}
	return rows
}

// helpRow returns the row of a container's HELP.
func helpRow(container, since string) Command {
	return Command{
		Name: container + "|help", Since: since, Arity: 2, Route: Local, Flags: FlagLoading | FlagStale,
		Summary: "Print this help", Complexity: "O(1)",
	}
}

// newTable returns a table of rows that are sorted.
func newTable(rows []Command) *Table {
	t := &Table{byName: make(map[string]*Command)}
	for i := range rows {
		t.add(&rows[i])
	}
	return t
}

func (t *Table) add(row *Command) {
	t.rows = append(t.rows, row)
	t.byName[row.Name] = row
	for i := range row.Subcommands {
		t.byName[row.Subcommands[i].Name] = &row.Subcommands[i]
	}
}

// All yields the table's rows, containers before their subcommands.
func (t *Table) All() iter.Seq[*Command] {
	return func(yield func(*Command) bool) {
		for _, row := range t.rows {
			if !yield(row) {
				return
			}
			for i := range row.Subcommands {
				if !yield(&row.Subcommands[i]) {
					return
				}
			}
		}
	}
}

// Redis returns the table of all commands of a node's port for clients.
func Redis() *Table { return theTable() }

func sortPointers(rows []*Command) {
	slices.SortFunc(rows, func(a, b *Command) int { return strings.Compare(a.Name, b.Name) })
}

func sortRows(rows []Command) {
	slices.SortFunc(rows, func(a, b Command) int { return strings.Compare(a.Name, b.Name) })
}

// Commands returns the rows of the table, sorted by name, with subcommands inside their containers. The caller must not
// change them.
func Commands() []Command { return theRows() }

// Lookup returns the row with a full name in lower case: "set", "script", "script|load".
func Lookup(name string) (*Command, bool) {
	c, ok := theTable().byName[name]
	return c, ok
}

// LookupBytes finds a row by the full name in any case, without allocating.
func (t *Table) LookupBytes(name []byte) (*Command, bool) {
	if len(name) > maxName {
		return nil, false
	}
	var folded [maxName]byte
	n := fold(folded[:], name)
	c, ok := t.byName[string(folded[:n])]
	return c, ok
}

// Find finds the row of a command line: the subcommand's row if the first word is a container and the
// second word a subcommand. container is the row of the first word. Both are nil if the first word
// names no command; command alone is nil if the second word names no subcommand. The row of a
// container without a second word is the container's. Find does not allocate.
func Find[W ~string | ~[]byte](words []W) (command, container *Command) {
	return FindIn(theTable(), words)
}
