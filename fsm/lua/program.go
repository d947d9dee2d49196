package lua

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
