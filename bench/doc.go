// Command bench measures lock servers against each other. Holdfast is known only by
// a socket: of this module bench imports package protocol and nothing else.
//
//	go run ./bench --targets redis=127.0.0.1:6379,holdfast=127.0.0.1:6380+127.0.0.1:6381
//	go run ./bench --peers holdfast,redis-always --workloads uncontended,reads --rounds 3
//
// It promises that targets are measured by turns, in one run, on one machine, so that
// ratios hold where absolute figures do not. bench/README.md says how to read them.
//
// Start reading at matrix.go: the order of the runs; then internal/workload.
package main
