// Package locks is the lock table: who holds which lock, who waits in line, sessions, and the fences.
package locks
