package checker

import "testing"

func TestMessagesWrongOnPurposeAreFound(t *testing.T) {
	judge(t, []sample{
		{"in order", Messages, `
			0-10  publish c 0 1
			20-30 publish c 0 2
			50-50 heard   c 1 0 0 -> 1 2`, ""},
		{"two publish at a time, and all hear one order", Messages, `
			0-30  publish c 0 1
			0-30  publish c 1 2
			50-50 heard   c 3 0 0 -> 2 1
			50-50 heard   c 3 0 0 -> 2 1
			50-50 heard   c 1 0 0 -> 1`, ""},
		{"two orders", Messages, `
			0-30  publish c 0 1
			0-30  publish c 0 2
			50-50 heard   c 1 0 0 -> 1 2
			50-50 heard   c 1 0 0 -> 2 1`, "before and behind itself"},
		{"two orders of two channels", Messages, `
			0-30  publish c 0 1
			0-30  publish c 1 2
			50-50 heard   c 3 0 0 -> 1 2
			50-50 heard   c 3 0 0 -> 2 1`, "before and behind itself"},
		{"one hears what another missed", Messages, `
			0-90  publish c 0 1
			0-90  publish c 0 2
			0-90  publish c 0 3
			95-95 heard   c 1 0 0 -> 1 2 3
			95-95 heard   c 1 0 0 -> 1 3`, "behind 1 came 2 for one"},
		{"one hears something before, which another missed", Messages, `
			0-90  publish c 0 1 info
			0-90  publish c 0 2
			0-90  publish c 0 3
			95-95 heard   c 1 0 0 -> 1 3
			95-95 heard   c 1 0 0 -> 2 3`, "before 3 came 1 for one"},
		{"one listens to a channel, another to both", Messages, `
			0-90  publish c 0 1
			0-90  publish c 1 2
			0-90  publish c 0 3
			95-95 heard   c 3 0 0 -> 1 2 3
			95-95 heard   c 1 0 0 -> 1 3`, ""},
		{"acknowledged before the other was published", Messages, `
			0-10  publish c 0 1
			20-30 publish c 0 2
			50-50 heard   c 1 0 0 -> 2 1`, "though it was acknowledged before"},
		{"nobody knows when", Messages, `
			0-10  publish c 0 1 info
			20-30 publish c 0 2
			50-50 heard   c 1 0 0 -> 2 1`, ""},
		{"the other way round than sent", Messages, `
			0-10  publish c 0 1 2
			50-50 heard   c 1 0 0 -> 2 1`, "too early"},
		{"a gap", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			50-60 publish c 0 3
			70-70 heard   c 1 0 0 -> 1 3`, "2 was not heard"},
		{"a gap before the first", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 5000000 0 -> 2`, "1 was not heard"},
		{"published before the subscription", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 15000000 0 -> 2`, ""},
		{"behind what was heard last", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 0 0 -> 1`, ""},
		{"behind what was heard last, though there was time", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2
			70-70 heard   c 1 0 60000000 -> 1`, "2 was not heard"},
		{"nobody knows whether it was published", Messages, `
			10-20 publish c 0 1
			30-40 publish c 0 2 info
			50-60 publish c 0 3
			70-70 heard   c 1 0 60000000 -> 1 3
			70-70 heard   c 1 0 60000000 -> 1 3`, ""},
		{"twice", Messages, `
			10-20 publish c 0 1
			70-70 heard   c 1 0 0 -> 1 1`, "heard twice"},
		{"failed", Messages, `
			10-20 publish c 0 1 fail
			70-70 heard   c 1 0 0 -> 1`, "what failed"},
		{"out of nowhere", Messages, `
			70-70 heard   c 1 0 0 -> 1`, "no client published"},
		{"another channel", Messages, `
			10-20 publish c 1 1
			70-70 heard   c 1 0 0 -> 1`, "another channel"},
	})
}
