package lua

import (
	"cmp"
	"strings"
	"sync"
	"sync/atomic"
)

// A Cache keeps the programs that a node compiled lately, for all who compile there. Compile gives the same result
// with an empty cache, only later. A cache is safe for concurrent use, and its zero value is empty.
//
// Refused: to know a source by its SHA-1. There are pairs of sources with one SHA-1, and nodes with other caches would
// then run other programs.
type Cache struct {
	mu sync.Mutex
	// recent and former are by source. When recent is full, recent becomes former, and the old former is forgotten.
	recent, former map[string]*compilation
	bytes          int // of the sources in recent
}

const (
	// cachedBytes is how much recent counts for at most, unless it has one source alone. A program takes 40 times its
	// source at most, so a cache takes 40 MB, or 80 MB for two of the longest sources.
	cachedBytes = 512 << 10
	// cachedEach is what a source counts for beside its bytes.
	cachedEach = 32
)

// compilation is a program, or why there is none.
type compilation struct {
	source  string
	once    sync.Once
	done    atomic.Bool
	program *Program
	err     error
}

// Compile is the function Compile with the default limits. Who asks for a source that is being compiled waits for that.
// The program shares no memory with source.
func (c *Cache) Compile(source string) (*Program, error) {
	made := c.find(source)
	made.once.Do(func() {
		made.program, made.err = Compile(made.source, DefaultLimits())
		made.done.Store(true)
	})
	switch {
	case made.program != nil:
		return made.program, nil
	case made.err == nil: // the compiler panicked under another caller
		return Compile(made.source, DefaultLimits())
	}
	c.forget(source)
	return nil, made.err
}

// Has reports whether Compile has a source at once.
func (c *Cache) Has(source string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := cmp.Or(c.recent[source], c.former[source])
	return made != nil && made.done.Load()
}

// find returns the compilation of a source, which has not begun yet if the source is new.
func (c *Cache) find(source string) *compilation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if made := c.recent[source]; made != nil {
		return made
	}
	made := c.former[source]
	if made == nil {
		made = &compilation{source: strings.Clone(source)}
	}
	size := cachedEach + len(source)
	if c.recent == nil || c.bytes > 0 && c.bytes+size > cachedBytes {
		c.recent, c.former, c.bytes = make(map[string]*compilation), c.recent, 0
	}
	c.recent[made.source] = made
	c.bytes += size
	return made
}

// forget drops a source that does not compile.
func (c *Cache) forget(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.recent[source]; there {
		c.bytes -= cachedEach + len(source)
	}
	delete(c.recent, source)
	delete(c.former, source)
}
