package fsm

import "strings"

// versionKinds is the first version of the entry with commands for other values than strings. In an
// entry before, a script that calls such a command gets the error that it got then: a replay must not
// write what the first run did not.
const versionKinds = 4

// namesBefore are the commands that releases before versionKinds knew.
var namesBefore = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(`
append auth client client|getname client|help client|id client|info client|kill client|list
client|no-evict client|no-touch client|reply client|setinfo client|setname command command|count
command|docs command|getkeys command|getkeysandflags command|help command|info command|list
config config|get config|help config|resetstat config|rewrite config|set copy dbsize debug decr
decrby del delex delifeq digest discard echo eval eval_ro evalsha evalsha_ro exec exists expire
expireat expiretime flushall flushdb get getdel getex getrange getset hello incr incrby
incrbyfloat info keys lolwut mget move mset msetex msetnx multi object object|encoding
object|help persist pexpire pexpireat pexpiretime ping psetex pttl quit randomkey rename
renamenx reset role scan script script|exists script|flush script|help script|kill script|load
select set setex setnx setrange strlen substr swapdb time touch ttl type unlink unwatch wait
waitaof watch
`) {
		names[name] = true
	}
	return names
}()

// versionLocks is the first version of the entry with native locks.
const versionLocks = 5

// Changes of meaning with version 6 of the entry stand behind a constant of their own, beside the code that asks for
// it: versionOfCluster is the first.

// requestVersions are the first versions of the entry with requests that only nodes write, from versionOfCluster on:
// what protocol's table says of commands.
var requestVersions = map[string]byte{}

// knows reports whether the version of the entry has a command.
func (c *call) knows(name string) bool {
	switch {
	case c.EntryVersion >= versionLocks:
		b := c.lookup(name)
		return b == nil || c.EntryVersion >= b.version
	case c.EntryVersion >= versionKinds:
		return !ofLocks(name)
	}
	return namesBefore[name]
}

// ofLocks reports whether a request came with native locks: a word with a dot, or what nodes write for one.
func ofLocks(name string) bool {
	switch name {
	case "native", "alive", "gone", "giveback":
		return true
	}
	return strings.IndexByte(name, '.') >= 0
}
