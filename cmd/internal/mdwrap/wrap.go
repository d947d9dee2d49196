package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// width is the longest line of prose, in characters.
const width = 120

var (
	listItem = regexp.MustCompile(`^\s*(?:[-*+]|\d{1,3}[.)])\s+`)
	// verbatim is a line that is never joined with others: heading, table, comment, quotation, rule, link definition.
	verbatim = regexp.MustCompile(`^\s*(?:#{1,6}\s|\||<|>|(?:-{3,}|\*{3,}|={3,})\s*$|\[[^\]]+\]:)`)
	// section begins a part that a tool writes, up to the same comment with a slash.
	section = regexp.MustCompile(`^<!-- (\w+) -->$`)
	fence   = regexp.MustCompile("^\\s*(?:```|~~~)")
	// meansMore is a word that would begin a list, a heading or a quotation at the start of a line.
	meansMore = regexp.MustCompile(`^(?:[-*+>]|#{1,6}|\d{1,3}[.)]|[-=*]{3,})$|^[|<]`)
)

// wrap fills the paragraphs and list items of a Markdown text to the width. Code, tables, headings
// and sections that a tool writes stay as they are.
func wrap(text string) string {
	var out []string
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	inList := false
	for i := 0; i < len(lines); {
		line := lines[i]
		switch {
		case section.MatchString(line):
			end := i + 1
			for end < len(lines) && lines[end] != strings.Replace(line, "<!-- ", "<!-- /", 1) {
				end++
			}
			out = append(out, lines[i:end]...)
			i = end
		case fence.MatchString(line):
			end := i + 1
			for end < len(lines) && !fence.MatchString(lines[end]) {
				end++
			}
			end = min(end+1, len(lines))
			out = append(out, lines[i:end]...)
			i = end
		case strings.TrimSpace(line) == "":
			out = append(out, "")
			i++
		case verbatim.MatchString(line), !inList && strings.HasPrefix(line, "    "):
			inList = false
			out = append(out, line)
			i++
		default:
			first := listItem.FindString(line)
			inList = first != "" || inList && strings.HasPrefix(line, " ")
			end := i + 1
			for end < len(lines) && continues(lines[end]) {
				end++
			}
			out = append(out, paragraph(lines[i:end], first)...)
			i = end
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// continues reports whether line goes on with the paragraph above it.
func continues(line string) bool {
	return strings.TrimSpace(line) != "" && !fence.MatchString(line) && !verbatim.MatchString(line) &&
		!listItem.MatchString(line)
}

// paragraph fills lines; marker is what begins a list item, and its width the indent of the rest.
func paragraph(lines []string, marker string) []string {
	first := marker
	if marker == "" {
		first = lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " "))]
	}
	indent := strings.Repeat(" ", utf8.RuneCountInString(first))
	words := words(strings.Join(lines, " ")[len(first):])
	var out []string
	line := first
	for i, w := range words {
		switch {
		case i == 0:
			line += w
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) <= width:
			line += " " + w
		default:
			out = append(out, line)
			line = indent + w
		}
	}
	return append(out, line)
}

// words splits text where a line may end: not inside code, and not before a word that means more.
func words(text string) []string {
	var words []string
	glued := false
	for _, w := range strings.Fields(text) {
		if n := len(words); n > 0 && (glued || meansMore.MatchString(w)) {
			words[n-1] += " " + w
		} else {
			words = append(words, w)
		}
		glued = strings.Count(words[len(words)-1], "`")%2 == 1
	}
	return words
}
