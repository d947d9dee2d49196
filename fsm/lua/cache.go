package lua

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Cache has the programs that a node has compiled recently. It affects the time of a compilation and never the result.
// A cache is safe for concurrent use, and its zero value is empty.
//
// The key is the source and not its SHA-1: two sources with the same SHA-1 exist, and nodes with different caches would
// run different programs.
type Cache struct {
	mu sync.Mutex
	// recent and former are maps by source. When recent is full, it replaces former.
	recent, former map[string]*compilation
	bytes          int // the counted bytes of recent
}

const (
	// maxRecentBytes limits Cache.bytes, unless recent has only one source. A program takes up to 40 times the memory of
	// its source, so a cache takes up to 40 MB, or 80 MB for two of the longest sources.
	maxRecentBytes = 512 << 10
	// sourceOverhead is added to the bytes of each source.
	sourceOverhead = 32
)

// compilation is the future result of compiling a source.
type compilation struct {
	source  string
	once    sync.Once
	done    atomic.Bool
	program *Program
	err     error
}

// Compile is the function Compile with the default limits and the cache. Concurrent calls with the same source compile
// it once. The program shares no memory with source.
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

// Has reports whether the cache has the compiled program of a source.
func (c *Cache) Has(source string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := cmp.Or(c.recent[source], c.former[source])
	return made != nil && made.done.Load()
}

// find returns the compilation of a source, and adds one that has not begun if the source is new.
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
	size := sourceOverhead + len(source)
	if c.recent == nil || c.bytes > 0 && c.bytes+size > maxRecentBytes {
		c.recent, c.former, c.bytes = make(map[string]*compilation), c.recent, 0
	}
	c.recent[made.source] = made
	c.bytes += size
	return made
}

// forget removes a source that does not compile.
func (c *Cache) forget(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.recent[source]; there {
		c.bytes -= sourceOverhead + len(source)
	}
	delete(c.recent, source)
	delete(c.former, source)
}

// Flags has the flags of a script's first line, such as "#!lua flags=no-writes".
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
	// main is the function of the whole source. All runs share it, since it captures nothing and no script can refer to
	// it.
	main *closure
}

// Source returns the source of the program.
func (p *Program) Source() string { return p.source }

// Flags returns the flags of the script's first line.
func (p *Program) Flags() Flags { return p.flags }

// HasShebang reports whether the script begins with a "#!lua" line. Without the line, Redis treats the script as a
// release before Redis 7 does.
func (p *Program) HasShebang() bool { return p.shebang }

// Compile compiles a script. It is safe for any source: its time is linear in the length of the source, and the nesting
// is limited. The error is a [*CompileError] with the text of the error reply.
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

// shebang is a script's first line if the line begins with "#!".
type shebang struct {
	present bool
	// length is the length of the line without the line break. The compiler reads the line break and counts the line.
	length int
	flags  Flags
}

// flagNames has the flags that may follow "flags=".
var flagNames = map[string]Flags{
	"no-writes":             FlagNoWrites,
	"allow-oom":             FlagAllowOOM,
	"allow-stale":           FlagAllowStale,
	"no-cluster":            FlagNoCluster,
	"allow-cross-slot-keys": FlagAllowCrossSlotKeys,
}

// parseShebang parses the "#!lua flags=…" line of a source, if there is one.
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
