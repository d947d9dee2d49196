package frontend

import (
	"crypto/sha1"
	"sync"

	"github.com/holdfast/holdfast/fsm"
)

// largeSource is the size from which sources are compiled one at a time. The largest source takes a
// tenth of a second, and a hundred connections must not take all cores.
const largeSource = fsm.LargeSource

// compileCacheSize is the least number of remembered sources. At most twice as many are remembered.
const compileCacheSize = 1024

// compiler is what a compileCache needs of the [Backend].
type compiler interface {
	Compile(source string) error
	Compiled(source string) bool
}

// compileCache remembers by SHA-1 which Lua sources compiled on this node, so that EVAL does not
// compile a known source again. A source that does not compile is not remembered, so the sender
// waits for the compiler each time. Of large sources the backend remembers the programs: the log must not wait for one.
type compileCache struct {
	compiler  compiler
	largeTurn chan struct{} // has room for one compilation of a large source

	mu sync.Mutex
	// When recent is full, recent becomes former, and the old former is forgotten.
	recent, former map[[sha1.Size]byte]struct{}
}

func newCompileCache(c compiler) *compileCache {
	return &compileCache{compiler: c, largeTurn: make(chan struct{}, 1), recent: make(map[[sha1.Size]byte]struct{})}
}

// check returns why source does not compile; nil when it does.
func (s *compileCache) check(source []byte) error {
	if len(source) >= largeSource {
		return s.checkLarge(string(source))
	}
	sum := sha1.Sum(source)
	if s.has(sum) {
		return nil
	}
	if err := s.compiler.Compile(string(source)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(sum)
	return nil
}

func (s *compileCache) checkLarge(source string) error {
	if s.compiler.Compiled(source) {
		return nil
	}
	s.largeTurn <- struct{}{}
	defer func() { <-s.largeTurn }()
	return s.compiler.Compile(source)
}

func (s *compileCache) has(sum [sha1.Size]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.recent[sum]; ok {
		return true
	}
	if _, ok := s.former[sum]; !ok {
		return false
	}
	s.add(sum)
	return true
}

func (s *compileCache) add(sum [sha1.Size]byte) {
	if len(s.recent) >= compileCacheSize {
		s.recent, s.former = make(map[[sha1.Size]byte]struct{}), s.recent
	}
	s.recent[sum] = struct{}{}
}
