package protocol

import (
	"strings"
	"sync"
)

// Reach is the effect of commands beyond the keys and channels among their words. A user's rules apply to it.
type Reach struct {
	What string // empty if the reply concerns only the connection, or is the same for all users
	// Guard is the rule that denies the command.
	Guard string
	// ByRights is set if the state machine judges by the user's rights, which the request then has.
	ByRights bool
}

// dangerous is the guard of commands in that category.
const dangerous = "`-@dangerous`"

// reaches has the commands of each reach. Each row must have one: [number] panics if a command is missing.
var reaches = []struct {
	Reach
	commands string
}{
	{Reach{}, `
append bitcount bitfield bitfield_ro bitop bitpos blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin copy
decr decrby del delex delifeq digest exists expire expireat expiretime fence.get fence.pass get getbit getdel getex
getrange getset hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx
hstrlen hvals incr incrby incrbyfloat lcs lindex linsert llen lmove lmpop lock.break lock.cancel lock.check
lock.downgrade lock.info lock.release lock.releaseall lock.renew lpop lpos lpush lpushx lrange lrem lset ltrim
memory|usage mget move mset msetex msetnx object|encoding object|freq object|idletime object|refcount persist pexpire
pexpireat pexpiretime psetex pttl rename renamenx rpop rpoplpush rpush rpushx sadd scard sdiff sdiffstore set setbit
setex setnx setrange sinter sintercard sinterstore sismember smembers smismember smove spop srandmember srem sscan
strlen substr sunion sunionstore touch ttl type unlink watch zadd zcard zcount zdiff zdiffstore zincrby zinter
zintercard zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore
zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore
zrevrank zscan zscore zunion zunionstore

acl acl|cat acl|deluser acl|genpass acl|help acl|save acl|setuser acl|whoami asking auth client client|caching
client|getname client|getredir client|help client|id client|info client|no-evict client|no-touch client|reply
client|setinfo client|setname client|trackinginfo cluster cluster|help cluster|keyslot command command|count
command|docs command|getkeys command|getkeysandflags command|help command|info command|list config config|help
config|rewrite config|set discard echo exec latency latency|help memory memory|help memory|purge module module|help
multi object object|help ping publish pubsub pubsub|help punsubscribe quit readonly readwrite reset script script|help
script|kill select sentinel sentinel|help slowlog slowlog|help spublish sunsubscribe unsubscribe unwatch`},

	{Reach{What: "the nodes: addresses, versions, settings and figures", Guard: "nothing: all users hear the same"}, `
cluster|count-failure-reports cluster|info cluster|links cluster|myid cluster|myshardid cluster|nodes cluster|replicas
cluster|shards cluster|slaves cluster|slots config|get hello info latency|doctor latency|graph latency|histogram
latency|history latency|latest lolwut memory|doctor memory|malloc-stats memory|stats module|list raft.members
raft.status role sentinel|ckquorum sentinel|get-master-addr-by-name sentinel|master sentinel|masters sentinel|myid
sentinel|pending-scripts sentinel|replicas sentinel|reset sentinel|sentinels sentinel|slaves slowlog|len time wait
waitaof`},
	{Reach{What: "how many keys or subscribers there are", Guard: "nothing, as in Redis"}, `
cluster|countkeysinslot dbsize pubsub|numpat pubsub|numsub pubsub|shardnumsub`},
	{Reach{What: "the names of all keys, not what is in them", Guard: "nothing, as in Redis: `-scan -keys -randomkey`"}, `
keys randomkey scan`},
	{Reach{
		What:  "names of keys, and what locks hold: owners, which of stock locks are values, notes, clients",
		Guard: "left out are keys that the user may not read (`~`, `%R~`)", ByRights: true,
	}, `
cluster|getkeysinslot lock.history lock.list`},
	{Reach{
		What:  "names of keys that change, and of channels that are listened to",
		Guard: "left out are keys that the user may not read, and channels `__lock@…` and `__keyspace@…` of such keys",
	}, `
client|tracking pubsub|channels pubsub|shardchannels`},
	{Reach{What: "keys that a script names", Guard: "each call is judged as a command is", ByRights: true}, `
eval eval_ro evalsha evalsha_ro`},
	{Reach{What: "keys that values name, by `BY` and `GET`", Guard: "only who may read every key"}, `
sort sort_ro`},
	{Reach{What: "sessions by id, and the locks that they hold", Guard: "a session is its user's"}, `
lock.acquire lock.acquireall session.attach session.close session.info session.keepalive session.list session.open`},
	{Reach{
		What:  "what happens to keys and locks: `__keyspace@…`, `__keyevent@…`, `__lock@…` tell names and owners",
		Guard: "the channels of the rules, as in Redis: `&*` hears of all keys",
	}, `
psubscribe ssubscribe subscribe`},
	{Reach{What: "the script cache, which users share", Guard: "nothing, as in Redis"}, `
script|exists script|flush script|load`},
	{Reach{What: "what others send, store and may do", Guard: dangerous}, `
acl|dryrun acl|getuser acl|list acl|log acl|users client|list monitor raft.backup slowlog|get`},
	{Reach{What: "all keys, or the fences of all locks: they change", Guard: dangerous}, `
fence.raise flushall flushdb swapdb`},
	{Reach{What: "the nodes, their figures and others' connections: they change", Guard: dangerous}, `
acl|load client|kill client|unblock config|resetstat debug latency|reset raft.demote raft.promote raft.remove
raft.repair raft.replace raft.transfer slowlog|reset`},
}

// reachOf returns the reaches by command.
var reachOf = sync.OnceValue(func() map[string]*Reach {
	of := make(map[string]*Reach)
	for i := range reaches {
		for name := range strings.FieldsSeq(reaches[i].commands) {
			of[name] = &reaches[i].Reach
		}
	}
	return of
})

// reachReference returns the table of reaches in Markdown.
func reachReference() string {
	var b strings.Builder
	b.WriteString("\n## What commands reach beyond their words\n\n" +
		"Users' rules judge the keys and the channels among a command's words. " +
		"What else a command tells or changes is here; a\ncommand that is not here reaches nothing else.\n\n" +
		"| beyond the words | what keeps a user off | commands |\n|---|---|---|\n")
	for _, r := range reaches[1:] {
		var names []string
		for name := range strings.FieldsSeq(r.commands) {
			names = append(names, "`"+strings.ToUpper(strings.ReplaceAll(name, "|", " "))+"`")
		}
		b.WriteString("| " + r.What + " | " + r.Guard + " | " + strings.Join(names, ", ") + " |\n")
	}
	return b.String()
}
