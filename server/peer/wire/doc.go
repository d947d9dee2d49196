// Package wire is what all streams between nodes have in common: frames and their fields,
// writes that end when the other side takes nothing, and the loop that accepts connections.
//
// It promises:
//   - no room is made for bytes that have not come, whatever length a frame announces;
//   - reading fields of any bytes ends, without a panic;
//   - a write to a [Steady] connection fails only when the other side takes nothing for a while;
//   - [Accept] returns when all goroutines that it started have ended.
//
// What the messages in a frame mean is known to the packages that own a stream.
//
// Goroutines: one for each connection that [Accept] serves. There are no locks.
package wire
