package main

import (
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	// nameInComment matches what a comment can only mean as a name: a file, names with dots between them, and a word with
	// a capital inside.
	nameInComment = regexp.MustCompile(`[\w/.-]*\w\.(?:` + fileTypes + `)\b|\b[A-Za-z]\w*(?:\.[A-Za-z]\w*)+|` +
		`\b(?:[a-z]|[A-Za-z]\w*[a-z0-9])[A-Z]\w*`)
	fileInComment = regexp.MustCompile(`\.(?:` + fileTypes + `)$`)
	wordInText    = regexp.MustCompile(`\w+(?:\.\w+)*`)
	// foreignName matches a name behind the program that has it, such as Redis's lookupKeyRead.
	foreignName = regexp.MustCompile(`(?:Redis|Redisson|systemd|Kafka)'s [\w.]+`)
)

const fileTypes = "go|md|txt|lua|sh|json|jsonl|yaml|js|tla"

// notNames are words of comments that only look like names.
var notNames = map[string]bool{
	"BitOp": true, "DevTools": true, "GiB": true, "GitHub": true, "JavaScript": true, "KiB": true, "MiB": true, "NaN": true,
	"PostgreSQL": true, "RedisInsight": true, "SplitMix64": true, "jepsen.independent": true, "xHH": true,
}

// vocabulary is what comments about the Go files of one folder may name.
type vocabulary struct {
	words    map[string]bool // identifiers of its code, and words of its texts
	declared map[string]bool // by the package, outside of functions
}

func (v vocabulary) add(file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Ident:
			v.words[node.Name] = true
		case *ast.BasicLit:
			if node.Kind == token.STRING {
				for _, text := range wordInText.FindAllString(node.Value, -1) {
					v.words[text] = true
					for w := range strings.SplitSeq(text, ".") {
						v.words[w] = true
					}
				}
			}
		}
		return true
	})
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			v.declared[d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					v.declared[spec.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						v.declared[name.Name] = true
					}
				}
			}
		}
	}
}

// commentCheck is what is known of the tree when comments are read.
type commentCheck struct {
	folders  map[string]vocabulary
	packages map[string][]vocabulary // by the package's name
	foreign  map[string]bool         // names of packages that are not ours
	texts    map[string]bool         // names with dots in texts, anywhere
	files    map[string]bool         // by each end of a path that follows a slash, and whole behind a slash
}

func newCommentCheck(t *testing.T, all []source) commentCheck {
	k := commentCheck{
		map[string]vocabulary{},
		map[string][]vocabulary{},
		map[string]bool{},
		map[string]bool{},
		map[string]bool{},
	}
	for _, s := range all {
		dir := path.Dir(s.path)
		v, ok := k.folders[dir]
		if !ok {
			v = vocabulary{map[string]bool{}, map[string]bool{}}
			k.folders[dir] = v
			k.packages[path.Base(dir)] = append(k.packages[path.Base(dir)], v)
		}
		v.add(s.file)
		for _, i := range s.imports() {
			if !strings.HasPrefix(i, module) {
				k.foreign[path.Base(i)] = true
			}
		}
	}
	for _, v := range k.folders {
		for w := range v.words {
			k.texts[w] = k.texts[w] || strings.Contains(w, ".")
		}
	}
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		end := filepath.ToSlash(rel)
		for k.files["/"+end] = true; strings.Contains(end, "/"); _, end, _ = strings.Cut(end, "/") {
			k.files[end] = true
		}
		return err
	}))
	return k
}

// isThere reports whether a comment in s may have the name.
func (k commentCheck) isThere(s source, name string) bool {
	dir := path.Dir(s.path)
	known := func(name string) bool {
		has := k.folders[dir].words[name] || notNames[name]
		for _, i := range s.imports() {
			to, ours := strings.CutPrefix(i, module)
			has = has || ours && k.folders[to].words[name] && unicode.IsUpper(rune(name[0]))
		}
		return has
	}
	if fileInComment.MatchString(name) {
		beside := k.files["/"+path.Join(dir, name)]
		return beside || strings.Contains(name, "/") && k.files[name] || known(name) && path.Ext(name) != ".go"
	}
	first, rest, dotted := strings.Cut(name, ".")
	switch {
	case known(name):
		return true
	case !dotted:
		return false
	case strings.ToUpper(name) == name: // a command
		return true
	case k.foreign[first] && unicode.IsUpper(rune(rest[0])):
		return true
	case k.packages[first] != nil && unicode.IsUpper(rune(rest[0])):
		second, _, _ := strings.Cut(rest, ".")
		for _, v := range k.packages[first] {
			if v.declared[second] {
				return true
			}
		}
	}
	if k.texts[name] {
		return true
	}
	for part := range strings.SplitSeq(name, ".") {
		if !known(part) {
			return false
		}
	}
	return true
}

// TestCommentsNameWhatIsThere: a name in a comment is of the package or of what the file imports. The name of another
// package stands before the name, as in replica.Config, and the folder before a file of another folder.
func TestCommentsNameWhatIsThere(t *testing.T) {
	all := sources(t)
	k := newCommentCheck(t, all)
	for _, s := range all {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				text := foreignName.ReplaceAllString(c.Text, "")
				for _, name := range nameInComment.FindAllString(text, -1) {
					if !k.isThere(s, name) {
						t.Errorf("%s: there is no %s: name what is there, with its package or folder if that is another",
							s.set.Position(c.Pos()), name)
					}
				}
			}
		}
	}
}
