// Command mdwrap breaks the lines of the tree's Markdown, as gofumpt does of its Go: make fmt runs it.
// Prose is filled to 120 characters; tables, code and headings stay as they are.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	write := flag.Bool("w", false, "write the files; else only list those that differ")
	flag.Parse()
	differ, err := run(".", *write)
	for _, path := range differ {
		fmt.Println(path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mdwrap:", err)
		os.Exit(1)
	}
}

// run lists the Markdown files below root that are not wrapped, and wraps them if write is set.
func run(root string, write bool) (differ []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && skipped(d.Name()):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		wrapped := wrap(string(text))
		if wrapped == string(text) {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		differ = append(differ, filepath.ToSlash(rel))
		if write {
			return os.WriteFile(path, []byte(wrapped), 0o644)
		}
		return nil
	})
	return differ, err
}

// skipped are folders whose Markdown is data, or not the project's.
func skipped(name string) bool {
	return slices.Contains([]string{"testdata", "node_modules", "bench-results"}, name) ||
		strings.HasPrefix(name, ".") && name != ".ci" && name != ".github"
}
