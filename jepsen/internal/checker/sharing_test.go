package checker

import (
	"testing"
	"time"
)

func TestSharingWrongOnPurposeIsFound(t *testing.T) {
	sharing, wakes := Sharing(Clocks{}), Wakes(TTLBounds{Late: time.Second, Settle: time.Second})
	judge(t, []sample{
		{"readers together", sharing, `
			0-10    share l 1 1000 -> 1
			20-30   share l 2 1000 -> 1
			40-50   acquire l 3 1000 -> 0
			60-70   release-shared l 1 -> 1
			80-90   release-shared l 2 -> 1
			95-99   acquire l 3 1000 -> 1`, ""},
		{"a writer beside a reader", sharing, `
			0-10    share l 1 1000 -> 1
			40-50   acquire l 3 1000 -> 1`, "two holders"},
		{"a reader beside a writer", sharing, `
			0-10    acquire l 1 1000 -> 1
			40-50   share l 3 1000 -> 1`, "two holders"},
		{"a reader beside a writer, whom a longer reader hides", sharing, `
			0-10    acquire l 1 1000 -> 1
			40-50   share l 2 9000 -> 1
			60-70   share l 3 1000 -> 1`, "double grants 2"},
		{"two writers", sharing, `
			0-10    acquire l 1 1000 -> 1
			40-50   acquire l 3 1000 -> 1`, "two holders"},
		{"the writer of a reader that is over", sharing, `
			0-10     share l 1 1000 -> 1
			999-1050 acquire l 3 1000 -> 1`, ""},
		{"a reader's lease without its last millisecond", sharing, `
			0-10    share l 1 1000 -> 1
			990-999 acquire l 3 1000 -> 1`, ""},
		{"a reader's lease without its last two milliseconds", sharing, `
			0-10    share l 1 1000 -> 1
			990-998 acquire l 3 1000 -> 1`, "two holders"},
		{"a writer's lease without its last millisecond", sharing, `
			0-10    acquire l 1 1000 -> 1
			990-999 share l 3 1000 -> 1`, "two holders"},
		{"a longer lease was lost", sharing, `
			0-10     share l 1 1000 -> 1
			500-510  extend-shared l 1 1000 -> 1
			999-1050 acquire l 3 1000 -> 1`, "two holders"},
		{"a lease that was over is no longer", sharing, `
			0-10     share l 1 1000 -> 1
			990-1010 extend-shared l 1 1000 -> 1
			999-1050 acquire l 3 1000 -> 1`, ""},
		{"a reader's lease lost", sharing, `
			0-10     share l 1 1000 -> 1
			500-510  release-shared l 1 -> 0`, "lost a lease"},
		{"a writer's lease lost", sharing, `
			0-10     acquire l 1 1000 -> 1
			500-510  extend l 1 1000 -> 0`, "lost a lease"},
		{"given back", sharing, `
			0-10     acquire l 1 1000 -> 1
			20-90    release l 1 info
			50-60    acquire l 2 1000 -> 1`, ""},

		{"woken", wakes, `
			20-30     release l 1 -> 1
			60-60     wait l 2 0 -> 1`, ""},
		{"not woken", wakes, `
			20-30     release l 1 -> 1
			1600-1600 wait l 2 0 -> 0`, "1.57s behind"},
		{"not woken yet", wakes, `
			20-30     release l 1 -> 1
			600-600   wait l 2 0 -> 0`, ""},
		{"not woken, as something is broken", wakes, `
			fault 10-900
			20-30     release l 1 -> 1
			1600-1600 wait l 2 0 -> 0`, ""},
		{"given back before the client listened", wakes, `
			20-30     release l 1 -> 1
			1600-1600 wait l 2 25000000 -> 0`, ""},
		{"given back by somebody who had it no more", wakes, `
			20-30     release l 1 -> 0
			1600-1600 wait l 2 0 -> 0`, ""},
	})
}
