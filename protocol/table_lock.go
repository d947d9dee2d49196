package protocol

// ModuleName is the module of the commands that Redis lacks: native locks, sessions and fences.
const ModuleName = "lock"

// ModuleVersion is the version of the module, as MODULE LIST shows it.
const ModuleVersion = 1

// How long the commands take.
const (
	lockWork  = "O(log(N)), N being the number of owners that hold or wait"
	locksWork = "O(K*log(N)), K being the number of keys and N the number of owners that hold or wait"
)

// lease is what a hold is bound to.
func lease() Arg {
	return oneOf("lease", append(duration(), integer("session-id").after("SESSION"))...)
}

// duration is a lease's length.
func duration() []Arg {
	return []Arg{integer("milliseconds").after("PX"), integer("seconds").after("EX")}
}

// patience is how long a request may wait in line.
func patience() Arg {
	return block("patience", integer("milliseconds").after("WAIT"), token("NOTIFY").opt()).opt()
}

func lockDelay() Arg { return integer("delay-milliseconds").after("DELAY").opt() }

// lockWord is a row of the module.
func lockWord(name string, arity int, route Route, flags Flags, summary string) Command {
	c := Command{
		Name: name, Since: HoldfastVersion, Arity: arity, Route: route, Flags: flags,
		Summary: summary, Complexity: lockWork,
	}
	switch route {
	case Write:
		c.Flags |= FlagWrite
	case Read:
		c.Flags |= FlagReadOnly
	}
	return c
}

func (c Command) taking(args ...Arg) Command {
	c.Args = args
	return c
}

func (c Command) withKeys(specs ...KeySpec) Command {
	c.KeySpecs = specs
	return c
}

// fromLog is the version of the log entry with which a command came.
func (c Command) fromLog(version byte) Command {
	c.LogVersion = version
	return c
}

// in adds ACL categories to the ones that follow from the flags of a command.
func (c Command) in(categories ...string) Command {
	c.Categories = categories
	return c
}

func (c Command) costing(complexity string) Command {
	c.Complexity = complexity
	return c
}

// lockCommands are the rows of native locks.
func lockCommands() []Command {
	held := oneKey(1, KeyRW|KeyUpdate)
	return []Command{
		lockWord("lock.acquire", -5, Write, FlagDenyOOM|FlagBlocking|FlagFast,
			"Take a lock for an owner and return the fence; wait in line for it").
			withKeys(oneKey(1, KeyRW|KeyInsert)).
			taking(
				key("key"), text("owner"), lease(),
				oneOf("mode", token("SHARED"), block("places", integer("limit").after("LIMIT"),
					integer("permits").after("PERMITS").opt())).opt(),
				patience(), lockDelay(),
				block("reentry", token("REENTRANT"), text("call-id").after("CALL").opt()).opt(), text("note").after("NOTE").opt(),
			),
		lockWord("lock.acquireall", -6, Write, FlagDenyOOM|FlagBlocking,
			"Take several locks for an owner, all or none, and return the one fence; wait in line for them").
			withKeys(countedKeys(1, 1, KeyRW|KeyInsert)).costing(locksWork).
			taking(
				integer("numkeys"), key("key").many(), text("owner"), lease(), token("SHARED").opt(),
				patience(), lockDelay(), text("note").after("NOTE").opt(),
			),
		lockWord("lock.break", -2, Write, 0, "End holds of a lock, whoever the owner is, or its delay").in(ModuleName,
			"admin", "dangerous").
			withKeys(oneKey(1, KeyRW|KeyDelete)).costing("O(N*log(N)), N being the number of holds that end").
			taking(
				key("key"), text("owner").after("OWNER").opt(), integer("fence").after("FENCE").opt(), lockDelay(),
				text("reason").after("REASON").opt(),
			),
		lockWord("lock.cancel", 3, Write, FlagFast, "Leave the queue of a lock").withKeys(held).taking(key("key"),
			text("owner")),
		lockWord("lock.check", 3, Read, FlagFast, "Return the fence of a hold, if the owner holds the lock").
			withKeys(oneKey(1, KeyRO|KeyAccess)).taking(key("key"), text("owner")),
		lockWord("lock.downgrade", 3, Write, FlagFast, "Make an exclusive hold a shared one").withKeys(held).taking(
			key("key"), text("owner")),
		lockWord("lock.history", -1, Read, 0, "List how locks were lost lately, and who broke them").
			costing("O(N), N being the number of losses kept, about 2000 at most").
			taking(
				pattern("pattern").after("MATCH").opt(), text("owner").after("OWNER").opt(), oneOf("kind", token("NATIVE"),
					token("STOCK")).opt(),
				integer("database").after("DB").opt(), integer("cursor").after("CURSOR").opt(),
				integer("count").after("COUNT").opt(),
			),
		lockWord("lock.info", 2, Read, 0, "Tell who holds a lock, and who waits in which order").
			withKeys(oneKey(1, KeyRO|KeyAccess)).costing("O(N), N being the number of owners that hold or wait").taking(
			key("key")),
		lockWord("lock.list", -1, Read, 0, "List who holds locks and who waits for them").
			costing("O(N) for a whole run, N being the number of holds and waiters").
			taking(
				pattern("pattern").after("MATCH").opt(), text("owner").after("OWNER").opt(),
				integer("session-id").after("SESSION").opt(),
				oneOf("part", token("HELD"), token("WAITING")).opt(), integer("database").after("DB").opt(),
				integer("cursor").after("CURSOR").opt(), integer("count").after("COUNT").opt(),
			),
		lockWord("lock.release", -3, Write, FlagFast, "Give a lock back").
			withKeys(oneKey(1, KeyRW|KeyDelete)).taking(key("key"), text("owner"), token("ALL").opt()),
		lockWord("lock.releaseall", -4, Write, 0, "Give several locks back").
			withKeys(countedKeys(1, 1, KeyRW|KeyDelete)).costing(locksWork).taking(integer("numkeys"), key("key").many(),
			text("owner")),
		lockWord("lock.renew", 5, Write, FlagFast, "Give a hold another lease").
			withKeys(held).taking(key("key"), text("owner"), oneOf("lease", duration()...)),
	}
}

// sessionCommands are the rows of sessions of native locks.
func sessionCommands() []Command {
	const work = "O(log(N)), N being the number of sessions"
	id := integer("session-id")
	return []Command{
		lockWord("session.attach", -2, Write, FlagFast, "Let a session live with this connection").costing(work).
			taking(id, token("HEARTBEAT").opt()),
		lockWord("session.close", 2, Write, FlagFast, "End a session and with it all its holds").costing(work).taking(id),
		lockWord("session.info", 2, Read, FlagFast, "Describe a session").costing(work).taking(id),
		lockWord("session.keepalive", 2, Write, FlagFast, "Renew a session and with it all its holds").costing(work).taking(
			id),
		lockWord("session.list", -1, Read, 0,
			"List the sessions").costing("O(N) for a whole run, N being the number of sessions").
			taking(integer("cursor").after("CURSOR").opt(), integer("count").after("COUNT").opt()),
		lockWord("session.open", -3, Write, FlagDenyOOM|FlagFast, "Begin a session and return its id").costing(work).
			taking(oneOf("lease", duration()...), block("connection", token("CONNECTION"), token("HEARTBEAT").opt()).opt(),
				text("name").after("NAME").opt()),
	}
}

// fenceCommands are the rows of fences.
func fenceCommands() []Command {
	return []Command{
		lockWord("fence.get", 2, Read, FlagFast, "Return the largest fence that passed at a key").costing("O(1)").
			withKeys(oneKey(1, KeyRO|KeyAccess)).taking(key("key")),
		lockWord("fence.pass", 3, Write, FlagDenyOOM|FlagFast,
			"Let a fence pass, unless a larger one passed before").costing("O(1)").
			withKeys(oneKey(1, KeyRW|KeyAccess|KeyUpdate)).taking(key("key"), integer("fence")),
		lockWord("fence.raise", 2, Write, FlagAdmin|FlagFast, "Let no fence of native locks be a number or less").costing(
			"O(1)").
			taking(integer("fence")),
	}
}
