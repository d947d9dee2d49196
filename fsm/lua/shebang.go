package lua

import (
	"fmt"
	"strings"
)

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
