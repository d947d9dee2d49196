package protocol

// Hints are what the node that encoded a batch says about the batch, for those that schedule it: nobody searches a body
// for what the frontend saw in the parsed words. Hints travel with a forwarded batch, and are not in the log.
//
// A hint decides when a batch is proposed and where it stands among the batches of its entry, which are all unanswered,
// so that any order is right. It never decides what the batch does. So a hint from another node is believed: a wrong or
// missing one costs time, and nothing else.
type Hints uint8

const (
	// CreateIfAbsent: the batch is a single SETNX, or SET with NX. It changes nothing while its key exists.
	CreateIfAbsent Hints = 1 << iota
	// MayWait: the batch is a single command that waits, or is refused, while another client has what it asks for.
	MayWait
	// LargeScript: a script in the batch has a source that takes long to compile.
	LargeScript
)

// Has reports whether h has all hints of f.
func (h Hints) Has(f Hints) bool { return h&f == f }

// And returns the hints of a batch to which a request with the hints next is added.
func (h Hints) And(next Hints) Hints { return (h | next) & LargeScript }
