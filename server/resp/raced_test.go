//go:build race

package resp

// raced: the race detector is on; it makes pools forget at random.
const raced = true
