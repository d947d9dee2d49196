package checker

import "testing"

func TestQueuesWrongOnPurposeAreFound(t *testing.T) {
	queue, deliveries := Queue(Clocks{}), Deliveries(Clocks{})
	judge(t, []sample{
		{"a client waits beside a value", queue, `
			0-500  pop  q 500 0 ->
			50-60  push q 1 -> 1
			900-910 left q -> 1`, noOrder},
		{"a client waits beside a value that it does not know of yet", queue, `
			0-500   pop  q 500 0 ->
			490-520 push q 1 -> 1
			900-910 left q -> 1`, ""},
		{"a client waits in vain while nobody pushes", queue, `
			0-500   pop  q 500 0 ->
			600-700 push q 1 -> 1
			900-910 left q -> 1`, ""},
		{"the wait was over while the value was there", queue, `
			0-10    push q 1 -> 1
			20-700  pop  q 500 0 ->
			800-810 pop  q 0 0 -> 1`, noOrder},
		{"a value pushed while a client waits", queue, `
			0-100   pop  q 500 0 -> 1
			90-110  push q 1 -> 1`, ""},
		{"last in, first out", queue, `
			0-10    push q 1 2 -> 2
			20-30   pop  q 0 0 -> 2`, noOrder},
		{"out of the order of pushes", queue, `
			0-10    push q 1 -> 1
			20-30   push q 2 -> 2
			40-50   pop  q 0 0 -> 2`, noOrder},
		{"two waiters, two values", queue, `
			0-100   pop  q 500 0 -> 2
			10-100  pop  q 500 0 -> 1
			50-60   push q 1 2 -> 2`, ""},
		{"delivered twice", queue, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   pop  q 0 0 -> 1`, noOrder},
		{"a length that nobody can have seen", queue, `
			0-10    push q 1 -> 1
			20-30   push q 2 -> 3`, noOrder},
		{"a pop that nobody heard of takes one value", queue, `
			0-10    push q 1 2 -> 2
			20-30   pop  q 0 0 info
			40-50   pop  q 0 0 -> 2`, ""},
		{"a pop that nobody heard of takes no two", queue, `
			0-10    push q 1 2 3 -> 3
			20-30   pop  q 0 0 info
			40-50   pop  q 0 0 -> 3`, noOrder},
		{"left behind, though it was taken", queue, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   left q -> 1`, noOrder},
		{"a push that nobody heard of lands late", queue, `
			0-10    push q 1 info
			20-30   pop  q 0 0 ->
			40-50   pop  q 0 0 -> 1`, ""},

		{"served twice", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   pop  q 0 0 -> 1`, "delivered twice"},
		{"served and still there", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 -> 1
			40-50   left q -> 1`, "delivered twice"},
		{"a waiter got two values, and told of one", deliveries, `
			0-10    push q 1 2 -> 2
			20-30   pop  q 0 0 -> 1
			40-50   left q ->
			40-50   done q ->`, "lost"},
		{"nobody got a value that was acknowledged", deliveries, `
			0-10    push q 1 -> 1
			40-50   left q ->
			40-50   done q ->`, "lost"},
		{"a pop that nobody heard of may have it", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 0 info
			40-50   left q ->
			40-50   done q ->`, ""},
		{"what failed is there", deliveries, `
			0-10    push q 1 fail
			20-30   pop  q 0 0 -> 1`, "what failed"},
		{"out of nowhere", deliveries, `
			20-30   pop  q 0 0 -> 1`, "no client pushed"},
		{"the wait was too short", deliveries, `
			0-400   pop  q 500 0 ->`, "100ms early"},
		{"moved, and not there", deliveries, `
			0-10    push q 1 -> 1
			20-30   pop  q 0 1 -> 1
			40-50   left q ->
			40-50   done q ->`, "moved a value that is not there"},
		{"moved out of order", deliveries, `
			0-10    push q 1 2 -> 2
			40-50   done q -> 2 1`, "moved behind"},
		{"moved out of the order of pushes", deliveries, `
			0-10    push q 1 -> 1
			20-30   push q 2 -> 2
			40-50   done q -> 2 1`, "moved behind"},
		{"moved in order", deliveries, `
			0-10    push q 1 2 -> 2
			0-10    push q 3 -> 1
			20-30   pop  q 0 1 -> 3
			40-50   left q ->
			40-50   done q -> 3 1 2`, ""},
	})
}
