package protocol

// Hints are what the node that encoded a batch knows of it from the parsed words, for the scheduling of the batch. They
// are forwarded with the batch, but are not in the log.
//
// A hint decides when a batch is proposed, and its place among the batches of its entry. None of these has a reply yet,
// so any order is correct. A hint never decides what the batch does. So a wrong or missing hint from another node costs
// only time.
type Hints uint8

const (
	// CreateIfAbsent: the batch is a single SETNX, or SET with NX. It changes nothing while its key exists.
	CreateIfAbsent Hints = 1 << iota
	// MayWait: the batch is a single command that waits or is refused while another client has what it requests.
	MayWait
	// LargeScript: the batch has a script whose source takes long to compile.
	LargeScript
)

// Has reports whether h has all hints of f.
func (h Hints) Has(f Hints) bool { return h&f == f }

// And returns the hints of a batch to which a request with the hints next is added.
func (h Hints) And(next Hints) Hints { return (h | next) & LargeScript }
