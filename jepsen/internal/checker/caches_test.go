package checker

import (
	"testing"
	"time"
)

func TestCachesWrongOnPurposeAreFound(t *testing.T) {
	caches := Caches(TTLBounds{Late: time.Second, Settle: time.Second})
	judge(t, []sample{
		{"read again when told", caches, `
			0-10    raise k 1
			20-30   read  k -> 1
			40-50   raise k 2
			60-60   cached k -> 1
			70-80   read  k -> 2
			90-90   cached k -> 2`, ""},
		{"a change that the client was not told of", caches, `
			0-10    raise k 1
			20-30   read  k -> 1
			40-50   raise k 2
			1090-1090 cached k -> 1`, "older than"},
		{"read before the write, and behind the news", caches, `
			0-10    raise k 1
			20-60   raise k 2
			30-50   read  k -> 1
			1090-1090 cached k -> 1`, "older than"},
		{"a change on its way", caches, `
			0-10    raise k 1
			20-60   raise k 2
			990-990 cached k -> 1`, ""},
		{"a change on its way for too long", caches, `
			0-10    raise k 1
			20-60   raise k 2
			1990-1990 cached k -> 1`, "older than"},
		{"a change on its way for long, as something is broken", caches, `
			fault 10-20
			0-10    raise k 1
			20-60   raise k 2
			1990-1990 cached k -> 1`, ""},
		{"a stale read", caches, `
			0-10    raise k 1
			20-30   read  k ->`, "stale"},
		{"an old write lands late", caches, `
			0-10    raise k 2
			20-30   raise k 1
			40-50   read  k -> 2`, ""},
		{"nobody knows whether it was written", caches, `
			0-10    raise k 1
			20-30   raise k 2 info
			40-50   read  k -> 1
			60-70   read  k -> 2`, ""},
		{"what failed is there", caches, `
			20-30   raise k 2 fail
			40-50   read  k -> 2`, "no client wrote"},
	})
}
