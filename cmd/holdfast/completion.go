package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Scripts that complete words in a shell. The flags come from the help of the command, so that a script stays right
// for a program that it was not made by. COMMANDS stands for the names of the commands.
const (
	bashCompletion = `# bash completion for holdfast: source <(holdfast completion bash)
_holdfast() {
	local cur=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W 'COMMANDS' -- "$cur"))
	elif [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')" -- "$cur"))
	fi
}
complete -o default -F _holdfast holdfast
`
	zshCompletion = `#compdef holdfast
# zsh completion for holdfast: source <(holdfast completion zsh)
_holdfast() {
	if (( CURRENT == 2 )); then
		compadd -- COMMANDS
	elif [[ $words[CURRENT] == -* ]]; then
		compadd -- ${(uf)"$($words[1] $words[2] --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')"}
	else
		_files
	fi
}
compdef _holdfast holdfast
`
	fishCompletion = `# fish completion for holdfast: holdfast completion fish | source
complete -c holdfast -n __fish_use_subcommand -f -a 'COMMANDS'
complete -c holdfast -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f \
	-a '(holdfast (commandline -opc)[2] --help 2>/dev/null | string match -ar -- "--[a-z][a-z-]*" | sort -u)'
`
)

// completion prints a script for a shell.
func completion(_ context.Context, args []string, stdout, _ io.Writer) error {
	if wantsHelp(args) {
		_, err := io.WriteString(stdout, "usage: holdfast completion bash|zsh|fish\n")
		return err
	}
	scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	if len(args) != 1 {
		return usageError{errors.New("say bash, zsh or fish")}
	}
	script := scripts[args[0]]
	if script == "" {
		return usageError{fmt.Errorf("%q: say bash, zsh or fish", args[0])}
	}
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	_, err := io.WriteString(stdout, strings.ReplaceAll(script, "COMMANDS", strings.Join(names, " ")))
	return err
}
