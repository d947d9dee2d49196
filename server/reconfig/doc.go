// Package reconfig changes who the members of the cluster are, one step at a time, on the leader.
//
// It promises:
//   - [Next] alone decides: from what the leader sees and what is asked follows one step, that all is done, or a
//     refusal in one line;
//   - what was half done when a leader was lost is completed by asking again, as each step is decided from what is,
//     never from what was done before;
//   - no step is taken on a configuration other than the one that the step was decided on;
//   - without force no step leaves fewer voters that answer than a majority of the voters needs; the last voter stays,
//     also with force;
//   - a leader hands over before it loses its vote;
//   - a member gets a vote only after it kept up with the log for several rounds;
//   - at most 32 nodes are members.
//
// The package knows neither raft nor connections: [Cluster] is the leader's raft, [Peers] are the other nodes. There
// are no goroutines. A single lock lets one request at a time work on a node; it is held over I/O, and waiting for the
// lock ends with the request's context.
//
// Start reading at policy.go, then policy_test.go, whose tables can be read aloud; executor.go takes the steps, and
// service.go finds the leader.
package reconfig
