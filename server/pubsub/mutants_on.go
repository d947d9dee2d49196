//go:build mutant_message_order

package pubsub

// keepsOrder is off: see mutants.go.
const keepsOrder = false
