// Package holdertest has nodes for tests of clients of native locks: one lock table without a log, behind
// as many addresses as a test wants. A node can be killed and frozen.
//
// It promises of native locks what package holder and `holdfast lock` use: sessions that live with a
// connection, a queue, notices, fences that grow. Leases are counted by the machine's clock.
package holdertest
