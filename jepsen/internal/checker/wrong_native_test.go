package checker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/jepsen/internal/history"
)

var (
	native   = Linear("native", NativeLock(Clocks{}), NativeFunctions)
	capacity = Capacity(Clocks{})
	bounds   = TTLBounds{Late: 500 * time.Millisecond, Settle: time.Second}
	waits    = Waits(WaitBounds{Late: bounds.Late, Settle: bounds.Settle, Vain: 2000})
	notices  = Notices(bounds)
	deserted = NoneDeserted(bounds)
)

// The inputs of an acquire are owner, ttl, mode (0: exclusive, 1: shared, 2: counted), limit, permits, wait (-1: none),
// delay, call, strict.
var nativeHistories = []sample{
	// The owner-aware lock.
	{"two owners", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  acquire l 2 1000 -> 1 8`, noOrder},
	{"another owner's release", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  release l 2 -> 1 0`, noOrder},
	{"a release undone", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  release l 1 -> 1 0
		40-50  check l 1 -> 1 7`, noOrder},
	{"refused though free", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  release l 1 -> 1 0
		40-50  acquire l 2 1000 0 0 0 -1 0 0 1 -> 0`, noOrder},
	{"refused behind a queue", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  release l 1 -> 1 0
		40-50  acquire l 2 1000 0 0 0 -1 0 0 0 -> 0`, ""},
	{"a lease ends early", native, `
		0-10     acquire l 1 1000 -> 1 7
		900-990  acquire l 2 1000 -> 1 8`, noOrder},
	{"a lease is over", native, `
		0-10      acquire l 1 1000 -> 1 7
		990-1001  acquire l 2 1000 -> 1 8
		1002-1003 extend  l 1 1000 -> 0`, ""},
	{"a lease begins anew with the question", native, `
		0-10      acquire l 1 1000 -> 1 7
		500-510   acquire l 1 1000 -> 1 7
		1100-1200 acquire l 2 1000 -> 1 8`, noOrder},
	{"a hold comes back", native, `
		0-10      acquire l 1 1000 -> 1 7
		1200-1210 extend l 1 1000 -> 0
		1220-1230 check  l 1 -> 1 7`, noOrder},
	{"what is unknown may land late, and be given back", native, `
		0-10    acquire l 1 1000 info
		20-30   acquire l 2 1000 -> 1 7
		40-50   release l 2 -> 1 0
		60-70   check   l 1 -> 1 8
		80-90   acquire l 3 1000 -> 1 9`, ""},
	{"asked again, it is sure", native, `
		0-10    acquire l 1 1000 info
		20-30   acquire l 1 1000 -> 1 7
		40-50   acquire l 2 1000 -> 1 8`, noOrder},
	{"asked again, and another fence", native, `
		0-10    acquire l 1 1000 -> 1 7
		20-30   acquire l 1 1000 -> 1 8`, noOrder},

	// The fenced lock.
	{"fences go back", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  release l 1 -> 1 0
		40-50  acquire l 2 1000 -> 1 6`, noOrder},
	{"a fence taken twice", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  release l 1 -> 1 0
		40-50  acquire l 1 1000 -> 1 7`, noOrder},
	{"the unknown grant had the smaller fence", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  release l 1 -> 1 0
		40-50  acquire l 2 1000 info
		60-70  check l 2 -> 1 8
		80-90  release l 2 -> 1 0
		95-99  acquire l 3 1000 -> 1 8`, noOrder},

	// The reentrant lock, fenced or not.
	{"reentrant: counted", native, `
		0-10   acquire l 1 1000 0 0 0 -1 0 1 -> 1 7
		20-30  acquire l 1 1000 0 0 0 -1 0 2 -> 1 7
		40-50  release l 1 -> 1 1
		60-70  release l 1 -> 1 0
		80-90  acquire l 2 1000 -> 1 8`, ""},
	{"reentrant: free too early", native, `
		0-10   acquire l 1 1000 0 0 0 -1 0 1 -> 1 7
		20-30  acquire l 1 1000 0 0 0 -1 0 2 -> 1 7
		40-50  release l 1 -> 1 0`, noOrder},
	{"reentrant: a repeated call counts", native, `
		0-10   acquire l 1 1000 0 0 0 -1 0 1 -> 1 7
		20-30  acquire l 1 1000 0 0 0 -1 0 2 info
		40-50  acquire l 1 1000 0 0 0 -1 0 2 -> 1 7
		60-70  release l 1 -> 1 2`, noOrder},
	{"reentrant: another fence", native, `
		0-10   acquire l 1 1000 0 0 0 -1 0 1 -> 1 7
		20-30  acquire l 1 1000 0 0 0 -1 0 2 -> 1 8`, noOrder},
	{"reentrant: all at once", native, `
		0-10   acquire l 1 1000 0 0 0 -1 0 1 -> 1 7
		20-30  acquire l 1 1000 0 0 0 -1 0 2 -> 1 7
		40-50  release l 1 1 -> 1 0
		60-70  acquire l 2 1000 -> 1 8`, ""},

	// Shared and exclusive.
	{"shared beside shared", native, `
		0-10   acquire l 1 1000 1 -> 1 7
		20-30  acquire l 2 1000 1 -> 1 8
		40-50  release l 1 -> 1 0
		60-70  acquire l 3 1000 1 -> 1 9`, ""},
	{"exclusive beside shared", native, `
		0-10   acquire l 1 1000 1 -> 1 7
		20-30  acquire l 2 1000 1 -> 1 8
		40-50  release l 1 -> 1 0
		60-70  acquire l 3 1000 0 -> 1 9`, noOrder},
	{"downgraded", native, `
		0-10   acquire l 1 1000 0 -> 1 7
		20-30  downgrade l 1 -> 1 7
		60-70  acquire l 3 1000 1 -> 1 9`, ""},
	{"shared before the downgrade", native, `
		0-10   acquire l 1 1000 0 -> 1 7
		15-18  acquire l 3 1000 1 -> 1 9
		20-30  downgrade l 1 -> 1 7`, noOrder},

	// Permits.
	{"permits", native, `
		0-10   acquire l 1 1000 2 3 2 -> 1 7
		20-30  acquire l 2 1000 2 3 1 -> 1 8
		40-50  acquire l 3 1000 2 3 1 -1 0 0 1 -> 0`, ""},
	{"permits: one too many", native, `
		0-10   acquire l 1 1000 2 3 2 -> 1 7
		20-30  acquire l 2 1000 2 3 2 -> 1 8`, noOrder},
	{"permits: refused though there are some", native, `
		0-10   acquire l 1 1000 2 3 2 -> 1 7
		40-50  acquire l 3 1000 2 3 1 -1 0 0 1 -> 0`, noOrder},
	{"permits: one of two leases is over", native, `
		0-10      acquire l 1 5000 2 2 1 -> 1 7
		20-30     acquire l 2 1000 2 2 1 -> 1 8
		1100-1110 acquire l 3 1000 2 2 1 -> 1 9
		1120-1130 check l 1 -> 1 7
		1140-1150 check l 2 -> 0`, ""},

	// Delays and breaks.
	{"a delay is kept", native, `
		0-10      acquire l 1 1000 0 0 0 -1 500 -> 1 7
		1400-1510 acquire l 2 1000 -> 1 8`, ""},
	{"a delay ends early", native, `
		0-10      acquire l 1 1000 0 0 0 -1 500 -> 1 7
		1300-1400 acquire l 2 1000 -> 1 8`, noOrder},
	{"a release does not delay", native, `
		0-10   acquire l 1 1000 0 0 0 -1 500 -> 1 7
		20-30  release l 1 -> 1 0
		40-50  acquire l 2 1000 -> 1 8`, ""},
	{"broken", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  break l 1 7 -> 1
		40-50  acquire l 2 1000 -> 1 8
		60-70  extend l 1 1000 -> 0`, ""},
	{"a session ended", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-50  close l 1
		30-40  acquire l 2 1000 -> 1 8`, ""},
	{"before the session ended", native, `
		0-10   acquire l 1 1000 -> 1 7
		45-50  close l 1
		30-40  acquire l 2 1000 -> 1 8`, noOrder},
	{"another hold was broken", native, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  break l 1 6 -> 1`, noOrder},

	// The direct checks.
	{"exclusion: two owners", capacity, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  acquire l 2 1000 -> 1 8`, "too many holders for 970ms"},
	{"exclusion: a connection that ends", capacity, `
		0-10   acquire l 1 1000 -> 1 7
		15-15  close   l 1
		20-30  acquire l 2 1000 -> 1 8`, ""},
	{"exclusion: shared beside exclusive", capacity, `
		0-10   acquire l 1 1000 0 -> 1 7
		20-30  acquire l 2 1000 1 -> 1 8`, "too many holders"},
	{"exclusion: after a downgrade", capacity, `
		0-10   acquire l 1 1000 0 -> 1 7
		20-30  downgrade l 1 -> 1 7
		22-40  acquire l 2 1000 1 -> 1 8
		50-60  acquire l 3 1000 0 -> 1 9`, "too many holders"},
	{"exclusion: permits", capacity, `
		0-10   acquire l 1 1000 2 3 2 -> 1 7
		20-30  acquire l 2 1000 2 3 1 -> 1 8
		40-50  acquire l 3 1000 2 3 1 -> 1 9`, "too many holders"},
	{"exclusion: half given back", capacity, `
		0-10   acquire l 1 1000 0 0 0 -1 0 1 -> 1 7
		20-30  acquire l 1 1000 0 0 0 -1 0 2 -> 1 7
		40-50  release l 1 -> 1 1
		60-70  acquire l 2 1000 -> 1 8`, "too many holders"},
	{"exclusion: lost", capacity, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  check l 1 -> 0`, "lost a hold"},
	{"exclusion: broken, not lost", capacity, `
		0-10   acquire l 1 1000 -> 1 7
		15-40  break l 1 7 -> 1
		20-30  check l 1 -> 0`, ""},
	{"fences: two owners", Fences, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  acquire m 2 1000 -> 1 7`, "was given twice"},
	{"fences: not larger than that of another lock", Fences, `
		0-10   acquire l 1 1000 -> 1 7
		20-30  acquire m 2 1000 -> 1 6`, "is not larger"},
	{"fences: several locks of one request", Fences, `
		0-10   acquire l 1 1000 -> 1 7
		0-10   acquire m 1 1000 -> 1 7`, ""},
	{"fences: who asked before may have an old one", Fences, `
		0-10   acquire l 1 1000 info
		20-30  acquire m 2 1000 -> 1 7
		40-50  acquire l 1 1000 -> 1 6`, ""},
	{"in line: overtaken", InLine, `
		0-100   acquire l 1 1000 -> 1 9 5000000
		10-50   acquire l 2 1000 -> 1 8 12000000`, "overtaken"},
	{"in line: both asked at once", InLine, `
		0-100   acquire l 1 1000 -> 1 9 15000000
		10-50   acquire l 2 1000 -> 1 8 12000000`, ""},
	{"in line: who asked before has an older place", InLine, `
		0-1     acquire l 2 1000 info
		2-100   acquire l 1 1000 -> 1 9 5000000
		10-50   acquire l 2 1000 -> 1 8 12000000`, ""},
	{"none deserted: granted at the same moment", deserted, `
		0-10      acquire l 1 1000 -> 1 7
		20-100    acquire l 2 1000 left
		105-110   release l 1 -> 1 0
		1200-1210 check l 2 -> 1 8`, ""},
	{"none deserted: granted later", deserted, `
		0-10      acquire l 1 1000 -> 1 7
		20-100    acquire l 2 1000 left
		805-810   release l 1 -> 1 0
		1200-1210 check l 2 -> 1 8`, "granted to one who had left"},
	{"waits: early", waits, `0-999 acquire l 1 1000 0 0 0 1000 -> 0`, "ended early"},
	{"waits: on time", waits, `0-1200 acquire l 1 1000 0 0 0 1000 -> 0`, ""},
	{"waits: late", waits, `0-1600 acquire l 1 1000 0 0 0 1000 -> 0`, "ended late"},
	{"waits: in vain", waits, `0-2100 acquire l 1 1000 0 0 0 2000 -> 0`, "in vain"},
	{"waits: late under a fault", waits, `
		fault 100-1000
		0-2700 acquire l 1 1000 0 0 0 1000 -> 0`, ""},
	{"notices: false", notices, `
		0-10  acquire l 1 1000 -> 1 7
		30-30 lost l 1 7 1`, "a false notice"},
	{"notices: false, as it is still there", notices, `
		0-10      acquire l 1 1000 -> 1 7
		1030-1030 lost l 1 7 1
		1040-1050 check l 1 -> 1 7`, "a false notice"},
	{"notices: true", notices, `
		0-10      acquire l 1 1000 -> 1 7
		1030-1030 lost l 1 7 1
		1040-1050 check l 1 -> 0`, ""},
	{"notices: broken", notices, `
		0-10  acquire l 1 1000 -> 1 7
		20-50 break l 1 7 -> 1
		30-30 lost l 1 7 3`, ""},
	{"notices: released meanwhile, and the node does not know", notices, `
		0-10  acquire l 1 1000 -> 1 7
		20-50 release l 1 -> 1 0
		60-60 lost l 1 7 5`, ""},
	{"notices: twice", notices, `
		0-10      acquire l 1 1000 -> 1 7
		1030-1030 lost l 1 7 1
		1040-1040 lost l 1 7 1`, "told twice"},
	{"notices: none", notices, `
		0-10        acquire l 1 1000 -> 1 7
		12040-12050 check l 1 -> 0
		14000-14000 untold l 1 7`, "was not told"},
	{"one library's holder after the other", Held, `
		0-10  held l 1 7
		10-20 held l 2 8`, ""},
	{"two holders, one of them for long", Held, `
		0-90  held l 1 7
		10-20 held l 2 8
		30-40 held l 3 9`, "two holders for 10"},
	{"a library says nothing of a loss", Held, `0-10 untold l 1 7`, "a loss was not told"},
	{"a session ends under its connection", Kept(bounds), `0-10 unkept l 1 7 0`, "though its connection stood"},
	{"a session ends under its connection by a fault", Kept(bounds), `
		fault 2-4
		0-10 unkept l 1 7 0`, ""},
	{"a session ends under its connection in the middle of a fault, in one instant", Kept(bounds), `
		fault 2-40
		20-20 unkept l 1 7 20000000`, ""},
	{"a session ends under its connection after a fault, in one instant", Kept(bounds), `
		fault 2-4
		9000-9000 unkept l 1 7 9000000000`, "though its connection stood"},
	{"nothing left", Leftovers, `0-10 left native:left -> 0 0 0 0`, ""},
	{"a session is left", Leftovers, `0-10 left native:left -> 0 0 1 0`, "left behind"},
}

func TestNativeHistoriesWrongOnPurposeAreFound(t *testing.T) {
	judge(t, nativeHistories)
	for _, check := range []Func{native, capacity, Fences, InLine, deserted, waits, notices, Leftovers} {
		require.Equal(t, Unknown, check(&history.History{}).Verdict)
	}
}
