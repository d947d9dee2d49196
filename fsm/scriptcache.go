package fsm

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	"github.com/tidwall/btree"

	"github.com/holdfast/holdfast/fsm/lua"
	"github.com/holdfast/holdfast/protocol"
)

// The limits of the script cache. They are constants, since all nodes must have the same limits.
const (
	// maxRemembered and maxRememberedBytes bound the sources of EVAL. Beyond them the least recently used are removed, so
	// a client that writes its arguments into its scripts uses bounded memory.
	maxRemembered      = 500
	maxRememberedBytes = 8 << 20
	// maxLoaded and maxLoadedBytes limit the sources of SCRIPT LOAD, which stay until SCRIPT FLUSH. Beyond them SCRIPT
	// LOAD returns an error.
	maxLoaded      = 10_000
	maxLoadedBytes = 64 << 20
)

// script is a source with its program. A cached script is immutable, except for releases and claims.
type script struct {
	sha    string // 40 hexadecimal digits in lower case
	source string
	// program is the compiled source. It is not part of the state. If the source does not compile, program is nil and
	// problem is the reply.
	program *lua.Program
	problem protocol.Value
	turn    uint64 // orders the scripts of EVAL by their last use, or 0 for a script of SCRIPT LOAD
	// releases is set if a run on this node has released a stock lock, and claims if a run has taken one. They are not
	// part of the state.
	releases, claims bool
}

// scriptCache is the replicated cache of Lua sources, in two copy-on-write trees.
//
// Invariant: byTurn has the scripts of bySHA whose turn is not 0.
type scriptCache struct {
	bySHA  *btree.Map[string, *script]
	byTurn *btree.Map[uint64, *script]
	turns  uint64 // the last turn that was issued
	// loadedBytes and rememberedBytes are the sums of the lengths of the sources of SCRIPT LOAD and of EVAL.
	loadedBytes, rememberedBytes int
}

func newScriptCache() scriptCache {
	return scriptCache{
		bySHA:  btree.NewMap[string, *script](0),
		byTurn: btree.NewMap[uint64, *script](0),
	}
}

// newScript returns the script of a source. err is the error of the compilation, or nil.
func newScript(source, sha string, turn uint64, program *lua.Program, err error) *script {
	s := &script{sha: sha, source: source, turn: turn, program: program}
	if err != nil {
		s.problem = protocol.ErrValue(err.Error())
	}
	return s
}

// compile returns the compiled script of a source.
func compile(source, sha string, turn uint64) *script {
	program, err := lua.Compile(source, lua.DefaultLimits())
	return newScript(source, sha, turn, program, err)
}

func scriptSHA(source string) string {
	h := sha1.New()
	h.Write([]byte(source))
	return hex.EncodeToString(h.Sum(nil))
}

func (sc *scriptCache) copy() scriptCache {
	c := *sc
	c.bySHA, c.byTurn = sc.bySHA.IsoCopy(), sc.byTurn.IsoCopy()
	return c
}

func (sc *scriptCache) find(sha string) *script {
	s, _ := sc.bySHA.Get(sha)
	return s
}

// loaded counts the scripts of SCRIPT LOAD.
func (sc *scriptCache) loaded() int { return sc.bySHA.Len() - sc.byTurn.Len() }

// add adds s to the cache. It replaces a script with the same hash.
func (sc *scriptCache) add(s *script) {
	if old, replaced := sc.bySHA.Set(s.sha, s); replaced {
		sc.forget(old)
	}
	if s.turn == 0 {
		sc.loadedBytes += len(s.source)
		return
	}
	sc.rememberedBytes += len(s.source)
	sc.byTurn.Set(s.turn, s)
}

// forget undoes add, except that s stays in bySHA.
func (sc *scriptCache) forget(s *script) {
	if s.turn == 0 {
		sc.loadedBytes -= len(s.source)
		return
	}
	sc.rememberedBytes -= len(s.source)
	sc.byTurn.Delete(s.turn)
}

// needsRecord reports whether a run of a cached script must be recorded. A run of a script that was used recently is
// not, since each EVALSHA would otherwise change the state.
func (sc *scriptCache) needsRecord(s *script) bool {
	return s.turn != 0 && sc.turns-s.turn >= maxRemembered/2
}

// remember records a run of s, and caches s if it is new.
func (sc *scriptCache) remember(s *script) {
	sc.turns++
	sc.add(s.withTurn(sc.turns))
}

// forgetOldest removes the source of EVAL that was used least recently.
func (sc *scriptCache) forgetOldest() {
	_, oldest, _ := sc.byTurn.Min()
	sc.bySHA.Delete(oldest.sha)
	sc.forget(oldest)
}

func (s *script) withTurn(turn uint64) *script {
	c := *s
	c.turn = turn
	return &c
}

// LargeSource is the length in bytes from which a source is compiled before its entry is applied. The budget of an
// entry limits the shorter sources of an entry to 262,144 bytes, whose compilation takes about 30 ms.
const LargeSource = 16 << 10

func (m *machine) Prepare(data []byte) {
	entry, err := protocol.DecodeEntry(string(data))
	if err != nil {
		return // Apply returns the error
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
	p := preparation{m: m}
	p.body(string(body))
}

// prepareRead is PrepareBatch for a body of reads. Such a body has no hint, so prepareRead searches the name EVAL_RO.
func (m *machine) prepareRead(body string) {
	if len(body) >= LargeSource && strings.Contains(body, "\x07eval_ro") {
		p := preparation{m: m}
		p.body(body)
	}
}

// preparation compiles the large sources of an entry. It compiles the first one, and others while the budget of the
// entry suffices for all of them.
type preparation struct {
	m     *machine
	bytes int // the length of the sources so far
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
	_ = p.m.Compile(source) // Apply finds the error again
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
