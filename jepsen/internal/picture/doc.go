// Package picture draws which clients believed to hold a lock, over time, in runs of one schedule
// of faults against several targets: a panel for each, all above one axis of time.
//
// It promises that a bar is what the checker of exclusion goes by: from the reply that granted the
// lock until the client sent the release, or until the lease was over by the client's own clock.
// The same runs give the same bytes.
//
// Start reading at [Picture].
package picture
