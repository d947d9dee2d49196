package replica

// Propose has an entry proposed that says it was stamped for term.
func (r *Replica) Propose(term uint64, entry []byte) { r.propose(term, entry) }
