// Package report writes what a run leaves behind, in store/<time>/:
//
//	verdict.txt    the verdict, the seed, and the line that reproduces the run
//	report.html    the same, with plots of latency and service, faults shaded
//	results.json   the same for programs
//	history.jsonl  every operation and fault
//	history.edn    the same as Jepsen keeps it
//	schedule.txt   what was to be broken when
//	timeline-*.html  porcupine's page for the key that tells most
//	n1.log …       what the processes wrote
//
// Verdicts come from package checker. Start reading at [Report].
package report
