package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Scripts that complete words in a shell. They read the flags from the help of the command, so that they work with
// other releases, too. <commands> is replaced by the names of the commands, and <subcommands> by a line for each
// command that has subcommands.
const (
	bashCompletion = `# bash completion for holdfast: source <(holdfast completion bash)
_holdfast() {
	local cur=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W '<commands>' -- "$cur"))
	elif [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')" -- "$cur"))
	elif [ "$COMP_CWORD" -eq 2 ]; then
		case ${COMP_WORDS[1]} in
<subcommands>		esac
	fi
}
complete -o default -F _holdfast holdfast
`
	zshCompletion = `#compdef holdfast
# zsh completion for holdfast: source <(holdfast completion zsh)
_holdfast() {
	if (( CURRENT == 2 )); then
		compadd -- <commands>
	elif [[ $words[CURRENT] == -* ]]; then
		compadd -- ${(uf)"$($words[1] $words[2] --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')"}
	elif (( CURRENT == 3 )); then
		case $words[2] in
<subcommands>		*) _files;;
		esac
	else
		_files
	fi
}
compdef _holdfast holdfast
`
	fishCompletion = `# fish completion for holdfast: holdfast completion fish | source
complete -c holdfast -n __fish_use_subcommand -f -a '<commands>'
complete -c holdfast -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f \
	-a '(holdfast (commandline -opc)[2] --help 2>/dev/null | string match -ar -- "--[a-z][a-z-]*" | sort -u)'
<subcommands>`
)

// wordLine has, by shell, the line of <subcommands> for one command and its subcommands.
var wordLine = map[string]string{
	"bash": "\t\t%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\"));;\n",
	"zsh":  "\t\t%s) compadd -- %s;;\n",
	"fish": "complete -c holdfast -n 'test (count (commandline -opc)) -eq 2; and test (commandline -opc)[2] = %s' " +
		"-f -a '%s'\n",
}

// subcommands returns each command that has subcommands, followed by them.
func subcommands() [][]string {
	return [][]string{
		append([]string{"cluster"}, clusterNames()...),
		{"locks", "break", "history"},
		{"completion", "bash", "zsh", "fish"},
		append([]string{"docs", "man", "write"}, pages()...),
	}
}

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
	var lines strings.Builder
	for _, words := range subcommands() {
		fmt.Fprintf(&lines, wordLine[args[0]], words[0], strings.Join(words[1:], " "))
	}
	_, err := strings.NewReplacer("<commands>", strings.Join(names, " "), "<subcommands>",
		lines.String()).WriteString(stdout, script)
	return err
}
