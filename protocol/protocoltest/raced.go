//go:build race

package protocoltest

// Raced: the race detector is on. It makes all slow, and empties pools at random.
const Raced = true
