package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/api"
)

const docsUsage = `usage: holdfast docs [PAGE[#HEADING] | HEADING | man | write FOLDER]

Without words it lists the pages. A page is named by its last word, its path or its address, and a heading may be the
name of an alert: 'docs troubles', 'docs install#tls', 'docs HoldfastDown'. 'write' saves all pages to a folder.
`

// docs lists the pages of the binary, prints one of them, a chapter or the man page, or writes all to a folder.
func docs(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var text string
	switch {
	case wantsHelp(args):
		text = docsUsage
	case len(args) == 0:
		for _, path := range pages() {
			title, _, _ := strings.Cut(page(path), "\n")
			text += fmt.Sprintf("%-34s %s\n", strings.TrimSuffix(path, ".md"), strings.TrimPrefix(title, "# "))
		}
	case args[0] == "write" && len(args) == 2:
		return writePages(args[1])
	case len(args) > 1:
		return fmt.Errorf("%w: a heading of several words stands in quotes", unexpected(args[1]))
	case args[0] == "man":
		text = manPage(ctx)
	default:
		if text = findPage(args[0]); text == "" {
			return usageError{fmt.Errorf("%q: no page and no heading has this name; 'holdfast docs' lists the pages", args[0])}
		}
	}
	_, err := io.WriteString(stdout, text)
	return err
}

// pages returns the paths of the pages in the repository, in order.
func pages() (paths []string) {
	_ = fs.WalkDir(holdfast.Pages, ".", func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	return paths
}

// repository is the address of this release's files.
const repository = "https://github.com/holdfast/holdfast/blob/v" + protocol.HoldfastVersion + "/"

// pageLink matches the relative address of a link or an image.
var pageLink = regexp.MustCompile(`(\]\(|src=")([^)"#\s]+)`)

// page returns a page. Its links to files that are not pages are changed to the repository.
func page(name string) string {
	text, _ := holdfast.Pages.ReadFile(name)
	return pageLink.ReplaceAllStringFunc(string(text), func(link string) string {
		m := pageLink.FindStringSubmatch(link)
		to := path.Join(path.Dir(name), m[2])
		if _, err := holdfast.Pages.ReadFile(to); err == nil || strings.Contains(m[2], "://") {
			return link
		}
		return m[1] + repository + to
	})
}

// findPage returns the page or chapter with a name or an address.
func findPage(name string) string {
	file, anchor, _ := strings.Cut(strings.ToLower(name), "#")
	file = "/" + strings.TrimSuffix(strings.TrimLeft(file, "./"), ".md") + ".md"
	for _, path := range pages() {
		at := "/" + strings.ToLower(path)
		switch {
		case !strings.HasSuffix(at, file) && !strings.HasSuffix(file, at):
		case anchor == "":
			return page(path)
		default:
			return pageChapter(page(path), anchor)
		}
	}
	for _, path := range pages() {
		if text := pageChapter(page(path), headingAnchor(name)); text != "" {
			return text
		}
	}
	return ""
}

// pageChapter returns the part of a page under the heading with the anchor.
func pageChapter(text, anchor string) string {
	var b strings.Builder
	level, fenced := 0, false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		heading := strings.TrimLeft(line, "#")
		if depth := len(line) - len(heading); depth > 0 && !fenced {
			if level > 0 && depth <= level {
				break
			}
			if level == 0 && headingAnchor(heading) == anchor {
				level = depth
			}
		}
		if level > 0 {
			b.WriteString(line)
		}
	}
	return b.String()
}

var notInAnchors = regexp.MustCompile(`[^\w\s-]`)

// headingAnchor returns GitHub's anchor of a heading.
func headingAnchor(heading string) string {
	plain := notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
	return strings.ReplaceAll(plain, " ", "-")
}

// writePages writes the pages into a folder, at paths with which the links between them work.
func writePages(folder string) error {
	for _, path := range pages() {
		file := filepath.Join(folder, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(page(path)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manPage returns holdfast(1), which has the help of each command.
func manPage(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		".TH HOLDFAST 1 \"\" \"holdfast %s\"\n.SH NAME\nholdfast \\- a lock server that speaks the Redis protocol\n",
		protocol.HoldfastVersion)
	preformatted(&b, "SYNOPSIS", usage)
	for _, c := range commands() {
		if c.name == "help" {
			continue
		}
		var help strings.Builder
		_ = c.run(ctx, []string{"--help"}, &help, &help) // the error is flag.ErrHelp or the like
		preformatted(&b, "holdfast "+c.name, help.String())
	}
	return b.String()
}

// preformatted appends a section of a man page with preformatted text.
func preformatted(b *strings.Builder, title, text string) {
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")
	fmt.Fprintf(b, ".SH %s\n.nf\n%s\n.fi\n", escape.Replace(strings.ToUpper(title)),
		strings.TrimPrefix(escape.Replace("\n"+strings.TrimSpace(text)), "\n"))
}

// version prints the release, its source revision, and the version of its log entries.
func version(_ context.Context, args []string, stdout, _ io.Writer) error {
	switch {
	case wantsHelp(args):
		_, err := io.WriteString(stdout, "usage: holdfast version [--json]\n")
		return err
	case len(args) > 1:
		return unexpected(args[1])
	case len(args) == 1 && args[0] != "--json" && args[0] != "-json":
		return unexpected(args[0])
	}
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	if len(args) == 1 {
		return writeJSON(stdout, versionDocument{api.Format, protocol.HoldfastVersion, revision, protocol.EntryVersion})
	}
	_, err := fmt.Fprintf(stdout, "holdfast %s (%s), log format %d\n", protocol.HoldfastVersion,
		cmp.Or(revision, "unknown revision"), protocol.EntryVersion)
	return err
}
