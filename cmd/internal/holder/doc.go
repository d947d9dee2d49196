// Package holder is the client's side of one native lock: a session that lives with a connection, a place
// in line, and a hold that is proved again and again.
//
// It promises that [Holder.Keep] returns while the lock is still the owner's, unless the lock was taken
// away before its end by LOCK.BREAK or a closed session: when no node can be reached, the session cannot
// have ended yet. So a caller has time to stop what the lock protects. A node that dies costs no lock: the
// session is attached to another node, and the lock asked for again by the same owner.
//
// Start reading at holder.go; conn.go has the connection and which errors are worth another try.
package holder
