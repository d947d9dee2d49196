package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/event"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// workCase is the most expensive form of a request: with many keys, or on large values.
type workCase struct {
	// line is the request, with words separated by blanks. "#" is the number of the request, "{n p}" the words p0 to
	// p(n-1).
	line string
	// before runs before each entry, free of charge.
	before []string
	// times is the number of such requests in a pipeline; 0 means one.
	times int
}

// each returns the parts n times, with the numbers from 0 to n-1 in place of "#".
func each(n int, parts ...string) string {
	var b strings.Builder
	for i := range n {
		for j, part := range parts {
			if i+j > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strings.ReplaceAll(part, "#", strconv.Itoa(i)))
		}
	}
	return b.String()
}

const aMegabyte = 1 << 20

// workCases are the cases by command.
func workCases() map[string][]workCase {
	big, keys := strings.Repeat("v", aMegabyte), each(1000, "absent:#")
	cases := map[string][]workCase{
		"append": {{line: "append s:# " + strings.Repeat("v", 1000), times: 100}, {line: "append tmp " + big}},
		"decr":   {{line: "decr n:#", times: 1000}},
		"decrby": {{line: "decrby n:# 7", times: 1000}},
		"delex": {
			{line: "delex tmp:# ifeq x", before: []string{"mset " + each(1000, "tmp:#", "x")}, times: 1000},
			{line: "delex tmp ifdeq 0123456789abcdef", before: []string{"set tmp " + big}},
		},
		"delifeq":  {{line: "delifeq tmp:# x", before: []string{"mset " + each(1000, "tmp:#", "x")}, times: 1000}},
		"digest":   {{line: "digest big"}},
		"get":      {{line: "get s:#", times: 1000}},
		"getdel":   {{line: "getdel tmp:#", before: []string{"mset " + each(1000, "tmp:#", "x")}, times: 1000}},
		"getex":    {{line: "getex s:# px 100000", times: 1000}},
		"getrange": {{line: "getrange big 1 -2", times: 100}},
		"getset":   {{line: "getset s:# x", times: 1000}},
		"incr":     {{line: "incr n:#", times: 1000}},
		"incrby":   {{line: "incrby n:# 7", times: 1000}},
		"incrbyfloat": {{line: "incrbyfloat f:# 1.5", times: 1000}, {
			line:   "incrbyfloat digits 1",
			before: []string{"set digits " + strings.Repeat("7", 4000)},
		}},
		"mget":   {{line: "mget " + each(1000, "s:#")}, {line: "mget " + keys}},
		"mset":   {{line: "mset " + each(1000, "s:#", "x")}},
		"msetex": {{line: "msetex 1000 " + each(1000, "s:#", "x") + " px 100000"}},
		"msetnx": {{line: "msetnx " + each(1000, "tmp:#", "x"), before: []string{"del " + each(1000, "tmp:#")}}},
		"psetex": {{line: "psetex s:# 100000 x", times: 1000}},
		"set": {
			{line: "set s:# x px 100000", times: 1000},
			{line: "set tmp " + big},
			{line: "set s:# x nx px 100000", times: 1000},
		},
		"setex":    {{line: "setex s:# 100 x", times: 1000}},
		"setnx":    {{line: "setnx s:# x", times: 1000}},
		"setrange": {{line: "setrange tmp 1048570 x", before: []string{"set tmp " + big}}},
		"strlen":   {{line: "strlen s:#", times: 1000}},
		"substr":   {{line: "substr big 1 -2", times: 100}},

		"bitcount": {{line: "bitcount big"}},
		"bitfield": {{
			line:   "bitfield tmp " + strings.TrimSpace(strings.Repeat("incrby u8 1000 1 ", 1000)),
			before: []string{"set tmp " + big},
		}},
		"bitfield_ro": {{line: "bitfield_ro big " + strings.TrimSpace(strings.Repeat("get u8 1000 ", 1000))}},
		"bitop": {
			{line: "bitop and tmp big big2"},
			{line: "bitop xor tmp " + strings.TrimSpace(strings.Repeat("big ", 10))},
		},
		"bitpos": {{line: "bitpos zeros 1", before: []string{"setrange zeros 1048576 x"}}},
		"getbit": {{line: "getbit big 1000#", times: 1000}},
		"lcs": {{line: "lcs ab ba", before: []string{"mset ab " + strings.Repeat("ab", 1000) + " ba " +
			strings.Repeat("bba", 700)}}, {line: "lcs ab ba idx", before: []string{"mset ab " + strings.Repeat("ab", 1000) +
			" ba " + strings.Repeat("bba", 700)}}},
		"setbit": {{line: "setbit tmp 1000# 1", before: []string{"set tmp " + big}}, {
			line:   "setbit tmp 8000000 1",
			before: []string{"del tmp"},
		}},

		"sort":    {{line: "sort list10k alpha store tmp"}, {line: "sort list10k by w:* get o:* alpha store tmp"}},
		"sort_ro": {{line: "sort_ro list10k alpha"}, {line: "sort_ro set10k by nosort get #"}},

		"hdel": {
			{line: "hdel tmp " + each(1000, "f#"), before: []string{"copy hash tmp replace"}},
			{line: "hdel tmp " + each(100, "f#"), before: []string{"copy smallhash tmp replace"}},
		},
		"hexists":      {{line: "hexists hash f#", times: 1000}},
		"hget":         {{line: "hget hash f#", times: 1000}, {line: "hget smallhash f99", times: 1000}},
		"hgetall":      {{line: "hgetall hash10k"}},
		"hincrby":      {{line: "hincrby hash f# 1", times: 1000}},
		"hincrbyfloat": {{line: "hincrbyfloat hash f# 1.5", times: 1000}},
		"hkeys":        {{line: "hkeys hash10k"}},
		"hlen":         {{line: "hlen hash", times: 1000}},
		"hmget":        {{line: "hmget hash " + each(1000, "f#")}, {line: "hmget smallhash " + each(1000, "f#")}},
		"hmset":        {{line: "hmset tmp " + each(1000, "f#", "x"), before: []string{"copy hash tmp replace"}}},
		"hrandfield": {
			{line: "hrandfield hash 1000 withvalues"},
			{line: "hrandfield hash10k -1000"},
			{line: "hrandfield hash10k 9000"},
			{line: "hrandfield smallhash -1000"},
		},
		"hscan": {{line: "hscan hash 0 count 10000"}, {line: "hscan hash 0 count 10000 match *a*b*"}},
		"hset": {
			{line: "hset tmp " + each(1000, "g#", "x"), before: []string{"copy hash tmp replace"}},
			{line: "hset tmp " + each(1000, "g#", "x"), before: []string{"del tmp"}},
			{line: "hset tmp " +
				each(100, "f#", "yy"), before: []string{"copy smallhash tmp replace"}},
		},
		"hsetnx":  {{line: "hsetnx tmp new# 1", times: 1000, before: []string{"copy hash tmp replace"}}},
		"hstrlen": {{line: "hstrlen hash f#", times: 1000}},
		"hvals":   {{line: "hvals hash10k"}},

		"blmove": {
			{line: "wait-for-key # blmove list tmp left right 0", times: 1000},
			{line: "wait-for-key 9# blmove absent tmp left right 0", times: 1000},
		},
		"blmpop":     {{line: "wait-for-key # blmpop 0 1000 " + keys + " left"}},
		"blpop":      {{line: "wait-for-key # blpop " + keys + " 0", times: 10}},
		"brpop":      {{line: "wait-for-key # brpop " + keys + " 0", times: 10}},
		"brpoplpush": {{line: "wait-for-key # brpoplpush list tmp 0", times: 1000}},
		"lindex":     {{line: "lindex list 50000", times: 1000}},
		"linsert":    {{line: "linsert tmp before e9000 x", before: []string{"copy list10k tmp replace"}}},
		"llen":       {{line: "llen list", times: 1000}},
		"lmove":      {{line: "lmove tmp tmp left right", times: 1000, before: []string{"copy list tmp replace"}}},
		"lmpop":      {{line: "lmpop 1 tmp left count 10000", before: []string{"copy list tmp replace"}}},
		"lpop":       {{line: "lpop tmp 10000", before: []string{"copy list tmp replace"}}},
		"lpos":       {{line: "lpos list10k e9999 rank -1 count 0"}, {line: "lpos list10k absent"}},
		"lpush":      {{line: "lpush tmp " + each(1000, "e#"), before: []string{"copy list tmp replace"}}},
		"lpushx":     {{line: "lpushx tmp " + each(1000, "e#"), before: []string{"copy list tmp replace"}}},
		"lrange":     {{line: "lrange list 0 9999"}},
		"lrem":       {{line: "lrem tmp 0 e77", before: []string{"copy list10k tmp replace"}}},
		"lset":       {{line: "lset tmp 5000 x", times: 100, before: []string{"copy list10k tmp replace"}}},
		"ltrim":      {{line: "ltrim tmp 10000 20000", before: []string{"copy list tmp replace"}}},
		"rpop":       {{line: "rpop tmp 10000", before: []string{"copy list tmp replace"}}},
		"rpoplpush":  {{line: "rpoplpush tmp tmp", times: 1000, before: []string{"copy list tmp replace"}}},
		"rpush":      {{line: "rpush tmp " + each(1000, "e#"), before: []string{"copy list tmp replace"}}},
		"rpushx":     {{line: "rpushx tmp " + each(1000, "e#"), before: []string{"copy list tmp replace"}}},

		"sadd": {
			{line: "sadd tmp " + each(1000, "g#"), before: []string{"copy set tmp replace"}},
			{line: "sadd tmp " + each(1000, "#000"), before: []string{"del tmp"}},
		},
		"scard":       {{line: "scard set", times: 1000}},
		"sdiff":       {{line: "sdiff set10k set"}, {line: "sdiff set10k absent"}, {line: "sdiff ints10k ints"}},
		"sdiffstore":  {{line: "sdiffstore tmp set10k half10k"}},
		"sinter":      {{line: "sinter set10k set"}},
		"sintercard":  {{line: "sintercard 2 set10k set"}},
		"sinterstore": {{line: "sinterstore tmp set10k set"}},
		"sismember":   {{line: "sismember set m#", times: 1000}},
		"smembers":    {{line: "smembers set10k"}},
		"smismember":  {{line: "smismember set " + each(1000, "m#")}},
		"smove": {{line: "smove tmp tmp2 m#", times: 1000, before: []string{
			"copy set tmp replace",
			"copy half10k tmp2 replace",
		}}},
		"spop": {
			{line: "spop tmp 5000", before: []string{"copy set10k tmp replace"}},
			{line: "spop tmp 9999", before: []string{"copy set10k tmp replace"}},
		},
		"srandmember": {{line: "srandmember set10k 5000"}, {line: "srandmember set -1000"}},
		"srem":        {{line: "srem tmp " + each(1000, "m#"), before: []string{"copy set tmp replace"}}},
		"sscan":       {{line: "sscan set 0 count 10000"}},
		"sunion":      {{line: "sunion set10k half10k"}},
		"sunionstore": {{line: "sunionstore tmp set10k half10k"}},

		"bzmpop":   {{line: "wait-for-key # bzmpop 0 1000 " + keys + " min"}},
		"bzpopmax": {{line: "wait-for-key # bzpopmax " + keys + " 0", times: 10}},
		"bzpopmin": {{line: "wait-for-key # bzpopmin " + keys + " 0", times: 10}},
		"zadd": {
			{line: "zadd tmp " + each(1000, "#.5", "g#"), before: []string{"copy zset tmp replace"}},
			{line: "zadd tmp " + each(100, "#.5", "m#"), before: []string{"copy smallzset tmp replace"}},
		},
		"zcard":       {{line: "zcard zset", times: 1000}},
		"zcount":      {{line: "zcount zset 10 90000", times: 100}},
		"zdiff":       {{line: "zdiff 2 zset10k zset"}, {line: "zdiff 2 zset10k absent withscores"}},
		"zdiffstore":  {{line: "zdiffstore tmp 2 zset10k absent"}},
		"zincrby":     {{line: "zincrby tmp 7 m#", times: 1000, before: []string{"copy zset tmp replace"}}},
		"zinter":      {{line: "zinter 2 zset10k zset withscores"}},
		"zintercard":  {{line: "zintercard 2 zset10k zset"}},
		"zinterstore": {{line: "zinterstore tmp 2 zset10k zset"}},
		"zlexcount":   {{line: "zlexcount lex [a [m50000", times: 100}},
		"zmpop":       {{line: "zmpop 1 tmp min count 10000", before: []string{"copy zset tmp replace"}}},
		"zmscore":     {{line: "zmscore zset " + each(1000, "m#")}},
		"zpopmax":     {{line: "zpopmax tmp 10000", before: []string{"copy zset tmp replace"}}},
		"zpopmin":     {{line: "zpopmin tmp 10000", before: []string{"copy zset tmp replace"}}},
		"zrandmember": {{line: "zrandmember zset10k 5000 withscores"}, {line: "zrandmember zset -1000"}},
		"zrange":      {{line: "zrange zset 0 9999 withscores"}, {line: "zrange zset 50000 60000 byscore"}},
		"zrangebylex": {{line: "zrangebylex lex [m0 [m9 limit 0 10000"}, {line: "zrangebylex lex [a [z limit 90000 1"}},
		"zrangebyscore": {
			{line: "zrangebyscore zset 10 10000 withscores"},
			{line: "zrangebyscore zset 0 100000 limit 90000 1"},
		},
		"zrangestore":      {{line: "zrangestore tmp zset 0 9999"}},
		"zrank":            {{line: "zrank zset m#", times: 1000}},
		"zrem":             {{line: "zrem tmp " + each(1000, "m#"), before: []string{"copy zset tmp replace"}}},
		"zremrangebylex":   {{line: "zremrangebylex tmp [a [m2", before: []string{"copy lex tmp replace"}}},
		"zremrangebyrank":  {{line: "zremrangebyrank tmp 0 9999", before: []string{"copy zset tmp replace"}}},
		"zremrangebyscore": {{line: "zremrangebyscore tmp 0 9999", before: []string{"copy zset tmp replace"}}},
		"zrevrange":        {{line: "zrevrange zset 0 9999"}},
		"zrevrangebylex":   {{line: "zrevrangebylex lex [m9 [m0 limit 0 10000"}},
		"zrevrangebyscore": {{line: "zrevrangebyscore zset 10000 10"}},
		"zrevrank":         {{line: "zrevrank zset m#", times: 1000}},
		"zscan":            {{line: "zscan zset 0 count 10000"}},
		"zscore":           {{line: "zscore zset m#", times: 1000}},
		"zunion":           {{line: "zunion 2 zset10k zset10k weights 2 3"}},
		"zunionstore":      {{line: "zunionstore tmp 2 zset10k zset10k"}},

		"copy": {
			{line: "copy big tmp replace"},
			{line: "copy hash tmp replace", times: 100},
			{line: "copy smallhash tmp replace", times: 100},
		},
		"dbsize": {{line: "dbsize", times: 1000}},
		"del": {
			{line: "del " + each(1000, "tmp:#"), before: []string{"mset " + each(1000, "tmp:#", "x")}},
			{line: "del hash zset set list", before: []string{"ping"}},
		},
		"exists":          {{line: "exists " + each(1000, "s:#")}},
		"expire":          {{line: "expire s:# 1000", times: 1000}},
		"expireat":        {{line: "expireat s:# 1900000000", times: 1000}},
		"expiretime":      {{line: "expiretime s:#", times: 1000}},
		"flushall":        {{line: "flushall", times: 10}},
		"flushdb":         {{line: "flushdb", times: 10}},
		"keys":            {{line: "keys *"}, {line: "keys *a*b*"}},
		"move":            {{line: "move tmp:# 5", before: []string{"mset " + each(1000, "tmp:#", "x")}, times: 1000}},
		"object|encoding": {{line: "object encoding s:#", times: 1000}},
		"object|freq":     {{line: "object freq s:#", times: 1000}},
		"object|idletime": {{line: "object idletime s:#", times: 1000}},
		"object|refcount": {{line: "object refcount s:#", times: 1000}},
		"persist": {{
			line: "persist s:#", before: []string{"msetex 1000 " + each(1000, "s:#", "x") + " px 100000"},
			times: 1000,
		}},
		"pexpire":     {{line: "pexpire s:# 100000", times: 1000}},
		"pexpireat":   {{line: "pexpireat s:# 1900000000000", times: 1000}},
		"pexpiretime": {{line: "pexpiretime s:#", times: 1000}},
		"pttl":        {{line: "pttl s:#", times: 1000}},
		"randomkey":   {{line: "randomkey", times: 1000}},
		"rename":      {{line: "rename tmp:# tmp:0", before: []string{"mset " + each(1000, "tmp:#", "x")}, times: 1000}},
		"renamenx": {{line: "renamenx tmp:# tmp2:#", before: []string{"mset " + each(1000, "tmp:#", "x"), "del " +
			each(1000, "tmp2:#")}, times: 1000}},
		"scan": {
			{line: "scan 0 count 10000"},
			{line: "scan 0 count 10000 match *a*b*"},
			{line: "scan 0 count 10000 type string"},
		},
		"swapdb": {{line: "swapdb 3 4", times: 1000}},
		"time":   {{line: "time", times: 1000}},
		"touch":  {{line: "touch " + each(1000, "s:#")}},
		"ttl":    {{line: "ttl s:#", times: 1000}},
		"type":   {{line: "type s:#", times: 1000}},
		"unlink": {{line: "unlink " + each(1000, "tmp:#"), before: []string{"mset " + each(1000, "tmp:#", "x")}}},
		"watch":  {{line: "watch " + each(1000, "s:#")}},

		"eval": {
			{line: "eval for~i=1,100000~do~end 0"},
			{line: "eval for~i=1,1000~do~redis.call('set',KEYS[1],'x')~end 1 tmp"},
			{line: "eval return~1--" +
				strings.Repeat("x", 100_000) + " 0", before: []string{"script flush"}},
		},
		"eval_ro": {{line: "eval_ro for~i=1,1000~do~redis.call('get',KEYS[1])~end 1 s:1"}},
		"evalsha": {{
			line:   "evalsha " + scriptSHA("for i=1,1000 do redis.call('incr',KEYS[1]) end") + " 1 n:1",
			before: []string{"script load for~i=1,1000~do~redis.call('incr',KEYS[1])~end"},
		}},
		"evalsha_ro": {{
			line: "evalsha_ro " + scriptSHA("return 1") + " 0", before: []string{"script load return~1"},
			times: 100,
		}},
		"script|exists": {{line: "script exists " + each(1000, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa#")}},
		"script|flush":  {{line: "script flush", times: 100}},
		"script|load":   {{line: "script load " + strings.Repeat("local~a~=~{1,2,3}~", 100) + "--#", times: 10}},

		"publish":           {{line: "publish channel x", times: 1000}, {line: "publish channel " + big}},
		"spublish":          {{line: "spublish channel x", times: 1000}},
		"set-notifications": {{line: "set-notifications KEA", times: 100}},
		"echo":              {{line: "echo " + big}},

		"cluster|countkeysinslot": {{line: "cluster countkeysinslot 5"}},
		"cluster|getkeysinslot":   {{line: "cluster getkeysinslot 5 1000"}},
		"memory|usage":            {{line: "memory usage hash", times: 100}, {line: "memory usage big", times: 100}},
		"ping":                    {{line: "ping", times: 1000}},
		"select":                  {{line: "select 1", times: 1000}},
	}
	for name, of := range lockCases() {
		cases[name] = append(cases[name], of...)
	}
	return cases
}

// native returns a lock command of a connection, as nodes propose it.
func native(line string) string { return "lock-command 7 # 2000 " + line }

func lockCases() map[string][]workCase {
	many := each(128, "w#")
	hold := "lock.acquireall 2 w0 w127 other px 100000000"
	stand := func(n int) (lines []string) { // n clients wait for all keys of many
		lines = append(lines, hold)
		for i := range n {
			lines = append(lines, fmt.Sprintf("lock-command 7 9%d 2000 lock.acquireall 128 %s o%d px 100000 wait 0", i, many, i))
		}
		return lines
	}
	shared := func(n int) (lines []string) { // n clients hold a lock
		for i := range n {
			lines = append(lines, fmt.Sprintf("lock.acquire sh o%d px 100000000 shared note note", i))
		}
		return lines
	}
	sessions := []string{"lock-command 7 0 2000 session.open px 100000 connection"}
	return map[string][]workCase{
		"lock.acquire": {
			{line: native("lock.acquire l# me px 100000"), times: 1000},
			{line: native("lock.acquire l# other px 100000"), times: 1000, before: []string{"lock.acquire l0 me px 100000"}},
			{
				line: native("lock.acquire hot o# px 100000 wait 0"), times: 1000,
				before: []string{"lock.acquire hot me px 100000000", "unblock gone " + each(1000, "#")},
			},
			{line: native("lock.acquire sh o# px 100000 shared"), times: 1000},
		},
		"lock.acquireall": {
			{line: native("lock.acquireall 128 " + many + " me px 100000"), times: 10},
			{
				line: native("lock.acquireall 128 " + many + " o# px 100000 wait 0"), times: 100,
				before: []string{hold, "unblock gone " + each(100, "#")},
			},
			{line: native("lock.acquireall 128 " + many + " me px 100000"), times: 10, before: []string{hold}},
			{
				line: native("lock.acquireall 128 " + many + " p# px 100000 wait 0"), times: 100,
				before: append(stand(3000), "unblock gone "+each(100, "#")),
			},
		},
		"lock.break":     {{line: "lock.break sh", before: shared(1000)}},
		"lock.cancel":    {{line: "lock.cancel w5 o#", times: 100, before: stand(100)}},
		"lock.check":     {{line: "lock.check sh o#", times: 1000, before: shared(1000)}},
		"lock.downgrade": {{line: "lock.downgrade l# me", times: 1000, before: []string{}}},
		"lock.history":   {{line: "lock.history count 1000", before: append(shared(1000), "lock.break sh")}},
		"lock.info": {{line: "lock.info sh", times: 10, before: shared(1000)}, {
			line: "lock.info w5", times: 10,
			before: stand(100),
		}, {line: "lock.info stock", times: 100, before: []string{"set stock x nx px 1000000"}}},
		"lock.list": {{line: "lock.list count 1000", before: shared(1000)}, {
			line:   "lock.list count 1000 waiting",
			before: stand(100),
		}, {line: "lock.list match nothing count 1000", before: stand(100)}},
		"lock.release": {{line: "lock.release sh o#", times: 1000, before: shared(1000)}},
		"lock.releaseall": {{line: "lock.releaseall 128 " + many + " me", before: []string{"lock.acquireall 128 " + many +
			" me px 100000"}}},
		"lock.renew":        {{line: "lock.renew sh o# px 100000", times: 1000, before: shared(1000)}},
		"session.attach":    {{line: native("session.attach 1"), times: 1000, before: sessions}},
		"session.close":     {{line: "session.close 1", before: append(sessions, heldBySession()...)}},
		"session.info":      {{line: "session.info 1", times: 100, before: append(sessions, heldBySession()...)}},
		"session.keepalive": {{line: "session.keepalive 1", times: 1000, before: sessions}},
		"session.list": {{
			line:   "session.list count 1000",
			before: slices.Repeat([]string{"session.open px 100000 name nobody"}, 1000),
		}},
		"session.open": {{line: native("session.open px 100000"), times: 900}},
		"lockranks":    {{line: "lockranks count 1000", before: shared(1000)}},
		"lockrow":      {{line: "lockrow sh 1000", times: 10, before: shared(1000)}},
		"fence.get":    {{line: "fence.get f", times: 1000}},
		"fence.pass":   {{line: "fence.pass f 5", times: 1000}},
		"fence.raise":  {{line: "fence.raise 5#", times: 1000}},

		"node-keepalive":  {{line: "node-keepalive", times: 100, before: sessions}},
		"end-connections": {{line: "end-connections 7", before: append(sessions, heldBySession()...)}},
		"return-grant":    {{line: "return-grant k owner 1 7", times: 100}},
		"lock-command":    {{line: native("lock.release l# me"), times: 1000}},
		"wait-for-key":    {{line: "wait-for-key # blpop absent 0", times: 1000}},
		"unblock": {
			{line: "unblock gone " + each(100, "9#"), before: stand(100)},
			{line: "unblock gone " + each(1000, "9#"), before: waitingFor(1000, "hot")},
			{line: "unblock gone " + each(100, "8#"), before: popping(100)},
		},
		"drop": {{line: "drop n1 1", times: 100, before: stand(10)}},
		"exec": {{line: "exec set tmp:# x"}},
	}
}

func heldBySession() (lines []string) {
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("lock.acquire held%d me session 1", i))
	}
	return lines
}

func waitingFor(n int, key string) (lines []string) {
	lines = append(lines, "lock.acquire "+key+" me px 100000000")
	for i := range n {
		lines = append(lines, fmt.Sprintf("lock-command 7 9%d 2000 lock.acquire %s o%d px 100000 wait 0", i, key, i))
	}
	return lines
}

func popping(n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("wait-for-key 8%d blpop %s 0", i, each(128, "absent:#")))
	}
	return lines
}

// workState returns a machine with the keys of workCases, whose clients listen to everything.
func workState(tb testing.TB) *driver {
	d := newDriver(tb)
	d.m.SeedReads(origin)
	d.m.Listen(event.InMessages | event.InChanges)
	d.m.budgets.entry, d.m.budgets.reads = 1<<40, 1<<40
	d.do("set", "big", strings.Repeat("v", aMegabyte))
	d.do("set", "big2", strings.Repeat("w", aMegabyte))
	for _, line := range []string{
		"mset " + each(1000, "s:#", "x"), "mset " + each(1000, "n:#", "1"), "mset " + each(1000, "f:#", "1.5"),
		"hset smallhash " + each(100, "f#", "x"), "zadd smallzset " + each(100, "#", "m#"),
	} {
		d.doLine(line)
	}
	for name, n := range map[string]int{"": 100_000, "10k": 10_000} {
		for i := 0; i < n; i += 1000 {
			at := func(parts ...string) string {
				return strings.ReplaceAll(each(1000, parts...), "@", strconv.Itoa(i/1000))
			}
			d.doLine("rpush list" + name + " " + at("e@#"))
			d.doLine("hset hash" + name + " " + strings.ReplaceAll(at("f@#", "1"), "f0", "f"))
			d.doLine("sadd set" + name + " " + at("m@#"))
			d.doLine("sadd ints" + name + " " + at("1@#"))
			d.doLine("zadd zset" + name + " " + at("@#", "m@#"))
			if name == "" {
				d.doLine("zadd lex " + at("0", "m@#"))
				d.doLine("mset " + at("more:@#", "x"))
			}
			if name == "10k" && i < n/2 {
				d.doLine("sadd half10k " + at("m@#"))
			}
		}
	}
	return d
}

// charged returns the work charged for the newest entry.
func (d *driver) charged() int64 {
	c := &d.m.call
	spent := func(p *budget, own int64) int64 { return p.total + own - p.left }
	return spent(&c.writeBudget, c.bounds.batch) + spent(&c.readBudget, c.bounds.batch) + spent(&c.wakeBudget, 0) +
		c.bounds.lockChanges - c.lockWorkLeft
}

// TestEveryRequestIsMeasured: BenchmarkWork has a case for each request of the machine.
func TestEveryRequestIsMeasured(t *testing.T) {
	cases := workCases()
	for name := range newBindings() {
		require.NotEmpty(t, cases[name], "add the dearest forms of %q to workCases", name)
		delete(cases, name)
	}
	require.Empty(t, cases, "no such requests")
}

// TestWorkOfTranscripts: the costs of the transcripts' commands are unchanged. The requests that fit into an entry are
// part of the log's meaning: other costs need a new version of the entry, unless the newest is unreleased.
func TestWorkOfTranscripts(t *testing.T) {
	var rows []string
	for _, transcript := range protocoltest.ReadTranscripts(t, "testdata/ops/*.txt") {
		work, requests := map[string]int64{}, map[string]int{}
		playWith(t, transcript.Data, func(d *driver, words []string) {
			name := strings.ToLower(words[0])
			work[name] += d.charged()
			requests[name]++
		})
		for _, name := range slices.Sorted(maps.Keys(work)) {
			rows = append(rows, fmt.Sprintf("%s %s: %d requests, %d", transcript.Name, name, requests[name], work[name]))
		}
	}
	slices.Sort(rows)
	text := strings.Join(rows, "\n") + "\n"
	protocoltest.SameLines(t, protocoltest.Golden(t, "testdata/work.txt", text), text)
}

// BenchmarkWork measures the cost of a unit of work, about a nanosecond. See DESIGN.md, Budgets.
func BenchmarkWork(b *testing.B) {
	cases := workCases()
	names := make([]string, 0, len(cases))
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var d *driver
		for i, w := range cases[name] {
			b.Run(fmt.Sprintf("%s/%d", name, i), func(b *testing.B) {
				if d == nil {
					d = workState(b)
				}
				d.t = b
				w.measure(b, d)
			})
		}
	}
}

func (w *workCase) body(line string, times int) (body []byte) {
	if queued, isExec := strings.CutPrefix(line, "exec "); isExec {
		return protocol.AppendTransaction(nil, 0, nil, w.body(queued, 1000))
	}
	for i := range max(times, 1) {
		words := strings.Fields(line)
		for j := range words {
			words[j] = strings.ReplaceAll(strings.ReplaceAll(words[j], "#", strconv.Itoa(i)), "~", " ")
		}
		body = request(body, 0, words...)
	}
	return body
}

func (w *workCase) measure(b *testing.B, d *driver) {
	body := w.body(w.line, w.times)
	var work int64
	best, cost := 0.0, 0.0
	for range b.N {
		b.StopTimer()
		for _, line := range w.before {
			d.apply(w.body(line, 0))
		}
		d.seq++
		entry := protocol.NewEntry(nil, d.version, d.nowMillis, d.wallOffset, d.limits)
		entry.Add(origin, d.seq, d.seq, body)
		var r recorder
		began := cpuNanos()
		b.StartTimer()
		err := d.m.Apply(entry.Bytes(), &r)
		b.StopTimer()
		took := float64(cpuNanos() - began)
		require.NoError(b, err)
		require.Len(b, r.replies, max(1, w.times))
		work = d.charged()
		if ratio := took / float64(work); best == 0 || ratio < best {
			best, cost = ratio, took
		}
		require.False(b, r.replies[len(r.replies)-1].IsError() && !strings.HasPrefix(w.line, "object freq"),
			r.replies[len(r.replies)-1].Str)
		b.StartTimer()
	}
	b.ReportMetric(best, "ns/work")
	b.ReportMetric(cost/float64(max(1, w.times)), "ns/request")
}
