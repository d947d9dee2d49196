package fsm

// The work of commands on the elements of collections.
const (
	// elementWork is an element that a reply has, or that is changed.
	elementWork = 128
	// passWork is an element that a search passes.
	passWork = 16
	// maxElementsWork bounds the work of one command. Beyond that the command is an error: nothing
	// else waits for a list of ten million elements.
	maxElementsWork = 1 << 28
)

// works charges for so many elements, before the command touches them. If it reports false, the reply is
// errOverWork.
func (c *call) works(elements int, each int64) bool {
	work := int64(elements) * each
	if work > maxElementsWork || !c.fits(work) {
		return false
	}
	c.spend(work)
	return true
}

// search charges for one search after another, until a search is too long.
type search struct {
	c    *call
	left int64
}

func (c *call) search() search { return search{c, maxElementsWork} }

// passes charges for an element that is compared with a word, and reports whether the search may go on.
func (s *search) passes(element, word string) bool {
	work := int64(passWork)
	if len(element) == len(word) {
		work += int64(len(word)) / 8
	}
	s.left -= work
	s.c.spend(work)
	return s.left >= 0 && s.c.fits(0)
}
