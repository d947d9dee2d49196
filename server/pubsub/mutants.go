//go:build !mutant_message_order

package pubsub

// The partition tests build servers that are wrong on purpose, and must notice (jepsen/README.md). Such a
// server has the switch of mutants_on.go.

// keepsOrder is whether messages that wait together are taken to subscribers in their order.
const keepsOrder = true
