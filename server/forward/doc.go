// Package forward carries clients' batches from followers to the leader, and the replies back.
package forward
