package fsm

import (
	"slices"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// binding is a row of the command table with the function behind.
type binding struct {
	name string
	run  op
	row  *protocol.Command // nil: a request that only nodes write
	// version is the first version of the entry that has the command, if that is later than versionLocks.
	version byte
	// subcommand is 1 if the row's name stands for two words, else 0.
	subcommand int
	// writes: the request may change the state.
	writes bool
	// overwrites: the command may store a key whatever was there.
	overwrites bool
	// blocks: the command may wait, if a node asks so by "block".
	blocks bool
	// grows: the request may make the state grow, and is refused while memory is full: Redis's
	// denyoom.
	grows bool
	// counts: the keys that the command looks for count as hits and misses.
	counts bool
}

// takes reports whether the command may have n words in a request.
func (b *binding) takes(n int) bool {
	return b.row == nil || b.row.CheckArity(n+b.subcommand)
}

// bindings are the behaviours of all commands, by the full names of their rows.
type bindings map[string]*binding

var families = []map[string]op{
	stringOps, bitOps, sortOps, hashOps, listOps, setOps, sortedSetOps, keyOps, messageOps, clusterOps, usageOps,
	scriptOps, scriptLocals,
	lockOps, fenceOps,
}

// newBindings joins the behaviours with the rows of protocol's table.
func newBindings() bindings {
	t := bindings{
		"exec":   {name: "exec", run: execOp, writes: true},
		"notify": {name: "notify", run: notifyOp, writes: true},
	}
	for _, requests := range []map[string]op{waitOps, lockRequests} {
		for name, run := range requests { // unordered: fills another map
			t[name] = &binding{name: name, run: run, writes: true, version: requestVersions[name]}
		}
	}
	for name, run := range lockReads { // unordered: fills another map
		t[name] = &binding{name: name, run: run}
	}
	for _, family := range families {
		for name, run := range family { // unordered: fills another map
			row, _ := protocol.Lookup(name)
			b := &binding{name: name, run: run, row: row, subcommand: strings.Count(name, "|")}
			if row != nil {
				b.version = row.LogVersion
				script := row.Route == protocol.Script && row.Flags&protocol.FlagReadOnly == 0
				b.writes = script || row.Route == protocol.Write
				b.overwrites = slices.ContainsFunc(row.KeySpecs, func(k protocol.KeySpec) bool {
					return (k.Flags|k.Plain)&protocol.KeyOW != 0
				})
				b.grows = row.Flags&protocol.FlagDenyOOM != 0
				b.counts = row.Flags&protocol.FlagReadOnly != 0 || countingWrites[name]
				b.blocks = b.writes && row.Flags&protocol.FlagBlocking != 0 && row.Group != protocol.GroupModule
				if isGuarded(row) {
					b.run = guarded(row, run)
				}
			}
			t[name] = b
		}
	}
	return t
}

// stringOps are the strings and counters.
var stringOps = map[string]op{
	"append":      appendOp,
	"decr":        decrOp,
	"decrby":      decrbyOp,
	"delex":       delexOp,
	"delifeq":     delifeqOp,
	"digest":      digestOp,
	"get":         getOp,
	"getdel":      getdelOp,
	"getex":       getexOp,
	"getrange":    getrangeOp,
	"getset":      getsetOp,
	"incr":        incrOp,
	"incrby":      incrbyOp,
	"incrbyfloat": incrbyfloatOp,
	"mget":        mgetOp,
	"mset":        msetOp,
	"msetex":      msetexOp,
	"msetnx":      msetnxOp,
	"psetex":      psetexOp,
	"set":         setOp,
	"setex":       setexOp,
	"setnx":       setnxOp,
	"setrange":    setrangeOp,
	"strlen":      strlenOp,
	"substr":      getrangeOp,
}

// bitOps are the bits of strings.
var bitOps = map[string]op{
	"bitcount":    bitcountOp,
	"bitfield":    bitfieldOp,
	"bitfield_ro": bitfieldReadOnlyOp,
	"bitop":       bitopOp,
	"bitpos":      bitposOp,
	"getbit":      getbitOp,
	"lcs":         lcsOp,
	"setbit":      setbitOp,
}

// sortOps are the sorting of collections.
var sortOps = map[string]op{
	"sort":    sortOp,
	"sort_ro": sortReadOnlyOp,
}

// hashOps are the hashes.
var hashOps = map[string]op{
	"hdel":         hdelOp,
	"hexists":      hexistsOp,
	"hget":         hgetOp,
	"hgetall":      hgetallOp,
	"hincrby":      hincrbyOp,
	"hincrbyfloat": hincrbyfloatOp,
	"hkeys":        hkeysOp,
	"hlen":         hlenOp,
	"hmget":        hmgetOp,
	"hmset":        hmsetOp,
	"hrandfield":   hrandfieldOp,
	"hscan":        hscanOp,
	"hset":         hsetOp,
	"hsetnx":       hsetnxOp,
	"hstrlen":      hstrlenOp,
	"hvals":        hvalsOp,
}

// listOps are the lists.
var listOps = map[string]op{
	"blmove":     blmoveOp,
	"blmpop":     blmpopOp,
	"blpop":      blpopOp,
	"brpop":      brpopOp,
	"brpoplpush": brpoplpushOp,
	"lindex":     lindexOp,
	"linsert":    linsertOp,
	"llen":       llenOp,
	"lmove":      lmoveOp,
	"lmpop":      lmpopOp,
	"lpop":       lpopOp,
	"lpos":       lposOp,
	"lpush":      lpushOp,
	"lpushx":     lpushxOp,
	"lrange":     lrangeOp,
	"lrem":       lremOp,
	"lset":       lsetOp,
	"ltrim":      ltrimOp,
	"rpop":       rpopOp,
	"rpoplpush":  rpoplpushOp,
	"rpush":      rpushOp,
	"rpushx":     rpushxOp,
}

// setOps are the sets.
var setOps = map[string]op{
	"sadd":        saddOp,
	"scard":       scardOp,
	"sdiff":       sdiffOp,
	"sdiffstore":  sdiffstoreOp,
	"sinter":      sinterOp,
	"sintercard":  sintercardOp,
	"sinterstore": sinterstoreOp,
	"sismember":   sismemberOp,
	"smembers":    smembersOp,
	"smismember":  smismemberOp,
	"smove":       smoveOp,
	"spop":        spopOp,
	"srandmember": srandmemberOp,
	"srem":        sremOp,
	"sscan":       sscanOp,
	"sunion":      sunionOp,
	"sunionstore": sunionstoreOp,
}

// sortedSetOps are the sorted sets.
var sortedSetOps = map[string]op{
	"bzmpop":           bzmpopOp,
	"bzpopmax":         bzpopmaxOp,
	"bzpopmin":         bzpopminOp,
	"zadd":             zaddOp,
	"zcard":            zcardOp,
	"zcount":           zcountOp,
	"zdiff":            zdiffOp,
	"zdiffstore":       zdiffstoreOp,
	"zincrby":          zincrbyOp,
	"zinter":           zinterOp,
	"zintercard":       zintercardOp,
	"zinterstore":      zinterstoreOp,
	"zlexcount":        zlexcountOp,
	"zmpop":            zmpopOp,
	"zmscore":          zmscoreOp,
	"zpopmax":          zpopmaxOp,
	"zpopmin":          zpopminOp,
	"zrandmember":      zrandmemberOp,
	"zrange":           zrangeOp,
	"zrangebylex":      zrangebylexOp,
	"zrangebyscore":    zrangebyscoreOp,
	"zrangestore":      zrangestoreOp,
	"zrank":            zrankOp,
	"zrem":             zremOp,
	"zremrangebylex":   zremrangebylexOp,
	"zremrangebyrank":  zremrangebyrankOp,
	"zremrangebyscore": zremrangebyscoreOp,
	"zrevrange":        zrevrangeOp,
	"zrevrangebylex":   zrevrangebylexOp,
	"zrevrangebyscore": zrevrangebyscoreOp,
	"zrevrank":         zrevrankOp,
	"zscan":            zscanOp,
	"zscore":           zscoreOp,
	"zunion":           zunionOp,
	"zunionstore":      zunionstoreOp,
}

// keyOps are the commands for keys of any kind, for databases, and for the clock.
var keyOps = map[string]op{
	"copy":            copyOp,
	"dbsize":          dbsizeOp,
	"del":             delOp,
	"exists":          existsOp,
	"expire":          expireOp,
	"expireat":        expireatOp,
	"expiretime":      expiretimeOp,
	"flushall":        flushallOp,
	"flushdb":         flushdbOp,
	"keys":            keysOp,
	"move":            moveOp,
	"object|encoding": objectEncodingOp,
	"object|freq":     objectFreqOp,
	"object|idletime": objectIdletimeOp,
	"object|refcount": objectRefcountOp,
	"persist":         persistOp,
	"pexpire":         pexpireOp,
	"pexpireat":       pexpireatOp,
	"pexpiretime":     pexpiretimeOp,
	"pttl":            pttlOp,
	"randomkey":       randomkeyOp,
	"rename":          renameOp,
	"renamenx":        renamenxOp,
	"scan":            scanOp,
	"swapdb":          swapdbOp,
	"time":            timeOp,
	"touch":           existsOp,
	"ttl":             ttlOp,
	"type":            typeOp,
	"unlink":          delOp,
	"watch":           watchOp,
}

// scriptOps are scripts and their cache.
var scriptOps = map[string]op{
	"eval":          evalOp,
	"eval_ro":       evalReadOnlyOp,
	"evalsha":       evalshaOp,
	"evalsha_ro":    evalshaReadOnlyOp,
	"script|exists": scriptExistsOp,
	"script|flush":  scriptFlushOp,
	"script|load":   scriptLoadOp,
}

// messageOps are messages to subscribers.
var messageOps = map[string]op{
	"publish":  publishOp,
	"spublish": spublishOp,
}

// scriptLocals are commands that package server answers itself, and that scripts and transactions may
// contain.
var scriptLocals = map[string]op{
	"echo":   echoOp,
	"ping":   pingOp,
	"select": selectOp,
}

func echoOp(c *call) protocol.Value { return protocol.Bulk(c.args[1]) }

func pingOp(c *call) protocol.Value {
	switch len(c.args) {
	case 1:
		return protocol.Simple("PONG")
	case 2:
		return protocol.Bulk(c.args[1])
	}
	return errArity(c.args[0])
}

// selectOp selects a database until the end of the script or the request.
func selectOp(c *call) protocol.Value {
	db, problem, ok := databaseNumber(c.args[1])
	if !ok {
		return problem
	}
	c.db = db
	return protocol.OK
}

func unknownCommand(args []string) protocol.Value {
	var b strings.Builder
	b.WriteString("unknown command '" + cut(args[0]) + "', with args beginning with: ")
	for _, a := range args[1:] {
		if b.Len() > 128 {
			break
		}
		b.WriteString("'" + cut(a) + "' ")
	}
	return errQuoting(b.String())
}

// cut shortens a word that is quoted in an error.
func cut(word string) string { return word[:min(len(word), 128)] }

func errArity(name string) protocol.Value {
	return errQuoting("wrong number of arguments for '" + cut(name) + "' command")
}
