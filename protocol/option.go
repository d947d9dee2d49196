package protocol

import "strings"

// EachOption calls visit with the options of a command line, by the grammar of its row, until visit returns false.
// words are those after the name; at is the option's position among them, and values are the option's words. EachOption
// ends at the first word after the leading arguments that is no option, and at an option without its values. The layer
// that runs the command refuses both.
func EachOption[W ~string | ~[]byte](c *Command, words []W, visit func(at int, option *Arg, values []W) bool) {
	eachOption(c, words, func(at int, o option) bool { return visit(at, o.Arg, words[at+1:at+1+o.values]) })
}

// LaterOption returns the first option of a command line that a version of the log does not have, or nil. at is its
// position among words, which are those after the name. from is the version that introduced it.
func LaterOption[W ~string | ~[]byte](c *Command, words []W, version byte) (at int, later *Arg, from byte) {
	eachOption(c, words, func(i int, o option) bool {
		if o.version > version {
			at, later, from = i, o.Arg, o.version
		}
		return later == nil
	})
	return at, later, from
}

// NewestVersion returns the first version of the log entry that has the command and all its options.
func (c *Command) NewestVersion() byte { return max(c.LogVersion, newestOf(c.Args)) }

func newestOf(args []Arg) (newest byte) {
	for i := range args {
		newest = max(newest, args[i].LogVersion, newestOf(args[i].Args))
	}
	return newest
}

// option is an argument with a token.
type option struct {
	*Arg
	values  int  // the number of its words after the token
	version byte // that of the argument, or of an argument that contains it
}

func eachOption[W ~string | ~[]byte](c *Command, words []W, visit func(at int, o option) bool) {
	for at := leading(c.Args, words); at < len(words); {
		o := findOption(c.Args, words[at], false)
		if o.Arg == nil || at+o.values >= len(words) || !visit(at, o) {
			return
		}
		at += 1 + o.values
	}
}

// leading returns the number of words of the arguments before all options.
func leading[W ~string | ~[]byte](args []Arg, words []W) (n int) {
	for i := range args {
		a := &args[i]
		switch {
		case a.Optional, a.Token != "", a.Type == ArgOneOf:
			return n
		case !a.Multiple:
			n += valuesOf(a)
		case i > 0 && strings.HasPrefix(args[i-1].Name, "num") && n <= len(words):
			count, _ := ParseInt(string(words[n-1]))
			n += int(min(max(count, 0), int64(len(words)))) * valuesOf(a)
		default:
			return len(words)
		}
	}
	return n
}

// findOption returns the option with a token; its Arg is nil if there is none. If inBlock is set, all arguments after
// the token belong to it.
func findOption[W ~string | ~[]byte](among []Arg, word W, inBlock bool) (found option) {
	for i := range among {
		a := &among[i]
		if a.Token != "" && len(a.Token) == len(word) && strings.EqualFold(a.Token, string(word)) {
			found = option{a, valuesOf(a), a.LogVersion}
			if inBlock {
				found.values += followers(among[i+1:])
			}
			return found
		}
		if found = findOption(a.Args, word, a.Type == ArgBlock); found.Arg != nil {
			found.version = max(found.version, a.LogVersion)
			return found
		}
	}
	return found
}

// valuesOf returns the number of an argument's words after its token.
func valuesOf(a *Arg) int {
	switch a.Type {
	case ArgPureToken, ArgOneOf:
		return 0
	case ArgBlock:
		return followers(a.Args)
	}
	return 1
}

// followers returns the number of words of the arguments before the next one that has a token or is optional.
func followers(args []Arg) (n int) {
	for i := range args {
		if a := &args[i]; a.Token != "" || a.Optional || a.Type == ArgOneOf {
			break
		}
		n += valuesOf(&args[i])
	}
	return n
}
