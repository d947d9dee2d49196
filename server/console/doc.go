// Package console answers questions of people and scripts about locks and members: what the page of the port for
// monitoring shows, and its JSON endpoints.
//
// The package promises:
//   - all is read from this node's copy of the state, at the cluster time of its newest entry. So there are answers
//     while no leader is known, no other node is troubled, and an answer may be a moment behind the leader's;
//   - entries never wait long for a question: the state is read in pages, each as short as a short read of a client;
//   - however many ask, one survey of the locks runs at a time, those who ask the same meanwhile share it, and the next
//     begins no sooner than ten times as long as the last one took: surveys take a tenth of a processor at most;
//   - what a node knows of its clients is asked of it for a short time, of the clients of so many locks a survey;
//   - an answer has so many locks, holders and waiters at most; sums are of all;
//   - while nobody asks nothing is done, but for the counts of locks, which are noted once a minute.
//
// Goroutines: [Console.Run] notes the counts, until its context ends; a survey runs on its own, for [surveyWithin] at
// most.
//
// Start reading at [Console.Locks].
package console
