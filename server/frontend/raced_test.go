//go:build race

package frontend

// raced: the race detector is on; it makes pools forget at random.
const raced = true
