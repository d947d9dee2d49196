package fsm

import (
	"bytes"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// LargeSource is the least length, in bytes, of a source that is compiled ahead of its entry. The budget of an entry
// bounds the others: 262,144 bytes, which take some 30 ms.
const LargeSource = 16 << 10

// sourceWords are the commands with a source, as a request spells them, behind their length.
var sourceWords = [...]string{"\x04eval", "\x07eval_ro", "\x0bscript|load"}

// HasSource reports whether the body of a batch may have a large source of a script, which takes long to compile.
func HasSource(body []byte) bool {
	if len(body) < LargeSource {
		return false
	}
	for _, word := range sourceWords {
		if bytes.Contains(body, []byte(word)) {
			return true
		}
	}
	return false
}

func (m *machine) Prepare(data []byte) {
	if !HasSource(data) {
		return
	}
	entry, err := protocol.DecodeEntry(string(data))
	if err != nil {
		return // as Apply will say
	}
	p := preparation{m: m}
	var b protocol.Batch
	for {
		if more, err := entry.Next(&b); err != nil || !more {
			return
		}
		p.body(b.Body)
	}
}

func (m *machine) PrepareBatch(body []byte) {
	if HasSource(body) {
		p := preparation{m: m}
		p.body(string(body))
	}
}

// prepareRead is PrepareBatch for a body of reads.
func (m *machine) prepareRead(body string) {
	if len(body) >= LargeSource && strings.Contains(body, sourceWords[1]) {
		p := preparation{m: m}
		p.body(body)
	}
}

// preparation compiles the sources that an entry has the budget to compile: the first, and what fits.
type preparation struct {
	m     *machine
	bytes int
}

func (p *preparation) body(body string) {
	var r protocol.Request
	for body != "" {
		var err error
		if body, err = protocol.NextRequest(body, &r); err != nil {
			return
		}
		switch {
		case len(r.Args) < 2:
		case r.Args[0] == "eval", r.Args[0] == "eval_ro", r.Args[0] == "script|load":
			p.source(r.Args[1])
		case r.Args[0] == "exec" && len(r.Args) == 3:
			p.body(r.Args[2])
		}
	}
}

func (p *preparation) source(source string) {
	if len(source) < LargeSource || p.bytes > 0 && int64(p.bytes+len(source)) > p.m.budgets.entry/compileWork {
		return
	}
	p.bytes += len(source)
	_ = p.m.Compile(source) // what does not compile is found out again
}

func (m *machine) Compile(source string) error {
	if len(source) >= LargeSource && m.Compiled(source) {
		return nil
	}
	_, err := m.programs.Compile(source)
	return err
}

func (m *machine) Compiled(source string) bool {
	if m.programs.Has(source) {
		return true
	}
	sha := scriptSHA(source)
	m.mu.RLock()
	s := m.st.scripts.find(sha)
	m.mu.RUnlock()
	return s != nil && s.program != nil && s.source == source
}
