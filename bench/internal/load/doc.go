// Package load runs a number of workers against something and measures how long
// their steps take.
//
// It promises:
//   - nothing that happened during the warm-up is in the figures, and nothing is
//     left out because a worker was slow (open loop): with a fixed rate a step's
//     latency counts from the moment an operation should have begun, however late it did;
//   - throughput is what was completed within the window, divided by the window;
//   - an operation that failed is an error in the figures, never a latency.
//
// The package knows nothing of locks or sockets: an [Op] is a function.
//
// Start reading at [Run].
package load
