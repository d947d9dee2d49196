package fsm

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/protocol/protocoltest"
)

// FuzzApply runs arbitrary words as commands: they never panic, and two machines
// that run them, one of them without being asked for replies and with a
// snapshot in between, end up the same.
//
// Lines are command lines; words are parted by blanks. A line of one digit
// selects a database, one that begins with ! is queued for the next transaction.
func FuzzApply(f *testing.F) {
	f.Add("set a b px 100\nget a\n2\nset c d\n!incr c\n!get c\nexec\neval return(1) 0")
	f.Add("object|encoding a\nscript|load return\nmset a b c\nscan 0 count 1\ncopy a b db 2 replace")
	f.Add("setrange a 4000 x\nincrbyfloat a 1e4000\nexpire a 9223372036854775807 nx gt")
	f.Add("watch a\nexec\nexec a\nexec a b\nswapdb 0 1\nflushall\nrandomkey")
	f.Add("hset h f v\n!hset h g w\n!hdel h f\nexec\ncopy h i\nhset i f x\nrename h j\nhgetall j\nget j\nmove i " +
		"1\npexpire j 10\ndel j")
	f.Add("rpush l a b c\neval redis.call('lpop',KEYS[1])return(redis.call('get',KEYS[1])) 1 l\nlrange l 0 -1\nsadd s " +
		"1 2 x\nsmove s t x\nset s v")
	f.Add("native 1 7 100 lock.acquire a me px 40\nnative 2 8 100 lock.acquire a you px 90 wait 0\nset a b\ndel " +
		"a\nlock.info a\nlock.list\nflushall\nunblock gone 8")
	f.Add("native 1 0 0 session.open px 1000 connection\nnative 1 1 0 lock.acquireall 2 a b me session 1 wait 100 " +
		"delay 50\nalive\nnative 2 0 0 session.attach 1\ngone 1\nsession.list\nsession.close 1\ngone 2")
	f.Add("lock.acquire a me px 100 shared\nlock.acquire a x px 10 limit 3 permits 2\n!lock.release a " +
		"me\n!lock.acquire a y px 1 reentrant call q\nexec\nlock.downgrade a y\nlock.break a delay 100\ngiveback a y 1 " +
		"1\nfence.pass f 3\ndrop n1 1")
	for _, script := range generatedScripts {
		f.Add("eval " + strings.ReplaceAll(script, " ", "\t") + " 1 a b")
	}
	f.Fuzz(func(t *testing.T, text string) {
		loud, quiet := newMachine(), newMachine()
		var queued []byte
		db := 0
		for i, text := range strings.SplitN(text, "\n", 40) {
			words := strings.Split(text, " ")
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "\t", " ")
			}
			var body []byte
			switch {
			case len(text) == 1 && text[0] >= '0' && text[0] <= '9':
				db = int(text[0] - '0')
				continue
			case text != "" && text[0] == '!':
				words[0] = words[0][1:]
				queued = protocoltest.AppendRequest(queued, db, words...)
				continue
			case text == "exec":
				body = protocol.AppendTransaction(nil, db, nil, queued)
				queued = nil
			default:
				body = protocoltest.AppendRequest(nil, db, words...)
			}
			w := protocol.NewEntry(nil, protocol.EntryVersion, int64(i*50), 1_700_000_000_000, 0)
			w.Add(origin, uint64(i), uint64(i), body)
			var r recorder
			require.NoError(t, loud.Apply(w.Bytes(), &r))
			require.Len(t, r.replies, 1)
			checkReply(t, r.replies[0])
			require.NoError(t, quiet.Apply(w.Bytes(), clientless{}))
			if i%8 == 3 {
				quiet = restored(t, quiet)
			}
			_, _, _, _ = loud.Read(string(body), 1, int64(i*50+20), 0, ReadLong)
		}
		require.Equal(t, dump(t, loud), dump(t, quiet))
	})
}

// checkReply checks that a reply can be written as one.
func checkReply(t *testing.T, v protocol.Value) {
	t.Helper()
	if v.Kind == protocol.KindError || v.Kind == protocol.KindSimple {
		require.False(t, strings.ContainsAny(v.Str, "\r\n"), "%q breaks its line", v.Str)
	}
	for _, e := range v.Elems {
		checkReply(t, e)
	}
}

// FuzzRestore reads arbitrary streams: they never panic; what is accepted is
// written again byte for byte, or, of an older version, is the same state when it is read again.
func FuzzRestore(f *testing.F) {
	f.Add(dump(f, newMachine()))
	f.Add(dump(f, furnished(f).m)[:2000])
	small := newDriver(f)
	small.do("set", "a", "b", "px", "5")
	small.do("script", "load", "return 1")
	f.Add(dump(f, small.m))
	older, err := os.ReadFile("testdata/snapshot-v1.bin")
	require.NoError(f, err)
	f.Add(older)
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) >= 32 {
			stream = resum(stream)
		}
		m := newMachine()
		if err := m.Restore(bytes.NewReader(stream)); err != nil {
			require.Equal(t, newMachine().Hash(), m.Hash())
			return
		}
		if again := dump(t, m); stream[len(snapshotMagic)] == snapshotVersion {
			require.Equal(t, stream, again)
		} else {
			require.Equal(t, again, dump(t, restored(t, m)))
		}
	})
}
