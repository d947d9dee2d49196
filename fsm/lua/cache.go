package lua

import (
	"cmp"
	"fmt"
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

// Flags are what a script's first line ("#!lua flags=no-writes") declares.
type Flags uint8

// The flags of Redis 7.
const (
	FlagNoWrites Flags = 1 << iota
	FlagAllowOOM
	FlagAllowStale
	FlagNoCluster
	FlagAllowCrossSlotKeys
)

// Program is a compiled script. It is immutable.
type Program struct {
	source  string
	shebang bool
	flags   Flags
	// main is the function of the whole source. It captures nothing, and no script gets hold of main, so
	// one serves all runs.
	main *closure
}

// Source is the text that was compiled.
func (p *Program) Source() string { return p.source }

// Flags are the flags of the script's first line.
func (p *Program) Flags() Flags { return p.flags }

// HasShebang reports whether the script begins with a "#!lua" line. Without one Redis assumes no flags and
// the behaviour before Redis 7.
func (p *Program) HasShebang() bool { return p.shebang }

// Compile reads a script. The time is linear in the length of the source, and the nesting is limited, so
// Compile is safe for any source. The proposing node calls Compile before it puts a source into the
// log. The error is a [*CompileError] with the text of the error reply.
func Compile(source string, limits Limits) (*Program, error) {
	limits = limits.withDefaults()
	if len(source) > limits.SourceBytes {
		return nil, sourceTooLong(len(source), limits.SourceBytes)
	}
	header, err := parseShebang(source)
	if err != nil {
		return nil, err
	}
	main, err := compileChunk(source[header.length:], "@user_script", shared)
	if err != nil {
		return nil, &CompileError{Text: "ERR Error compiling script (new function): " + err.Error()}
	}
	return &Program{source: source, shebang: header.present, flags: header.flags, main: &closure{proto: main}}, nil
}

// shebang is the content of a script's first line.
type shebang struct {
	present bool
	// length is the length of the line without the line break, so that line numbers in messages stay true.
	length int
	flags  Flags
}

// flagNames are the words Redis knows after "flags=".
var flagNames = map[string]Flags{
	"no-writes":             FlagNoWrites,
	"allow-oom":             FlagAllowOOM,
	"allow-stale":           FlagAllowStale,
	"no-cluster":            FlagNoCluster,
	"allow-cross-slot-keys": FlagAllowCrossSlotKeys,
}

// parseShebang reads the "#!lua flags=…" line, where there is one.
func parseShebang(source string) (shebang, error) {
	if !strings.HasPrefix(source, "#!") {
		return shebang{}, nil
	}
	line, _, found := strings.Cut(source, "\n")
	if !found {
		return shebang{}, &CompileError{Text: "ERR Invalid script shebang"}
	}
	parts := strings.Fields(line)
	if parts[0] != "#!lua" {
		return shebang{}, &CompileError{Text: "ERR Unexpected engine in script shebang: " + parts[0]}
	}
	header := shebang{present: true, length: len(line)}
	for _, part := range parts[1:] {
		list, isFlags := strings.CutPrefix(part, "flags=")
		if !isFlags {
			return shebang{}, &CompileError{Text: "ERR Unknown lua shebang option: " + part}
		}
		for name := range strings.SplitSeq(list, ",") {
			if list == "" {
				break
			}
			flag, known := flagNames[name]
			if !known {
				return shebang{}, &CompileError{Text: "ERR Unexpected flag in script shebang: " + name}
			}
			header.flags |= flag
		}
	}
	return header, nil
}

func sourceTooLong(length, limit int) error {
	return &CompileError{Text: fmt.Sprintf(
		"ERR Error compiling script (new function): the source has %d bytes, the limit is %d", length, limit)}
}
