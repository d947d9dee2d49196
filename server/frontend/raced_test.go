//go:build race

package frontend

// raced: the race detector is on, which empties pools at random.
const raced = true
