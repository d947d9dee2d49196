package api

import (
	"strconv"
	"unicode/utf8"

	"github.com/holdfast/holdfast/protocol"
)

// Format is the number of the shape of all documents.
const Format = 1

// fields are a map of a reply.
type fields map[string]protocol.Value

func fieldsOf(v protocol.Value) fields {
	f := make(fields, len(v.Elems)/2)
	for i := 0; i+1 < len(v.Elems); i += 2 {
		f[v.Elems[i].Str] = v.Elems[i+1]
	}
	return f
}

// isMap reports whether the value may be a map: in RESP2 a map is an array.
func isMap(v protocol.Value) bool {
	return (v.Kind == protocol.KindMap || v.Kind == protocol.KindArray) && len(v.Elems)%2 == 0
}

func (f fields) number(name string) int64 {
	v := f[name]
	if v.Kind == protocol.KindBulk {
		n, _ := strconv.ParseInt(v.Str, 10, 64)
		return n
	}
	return v.Num
}

// limited is a number; a negative one means that there is none.
func (f fields) limited(name string) *int64 {
	n := f.number(name)
	if _, said := f[name]; !said || n < 0 {
		return nil
	}
	return &n
}

func (f fields) flag(name string) bool { return f.number(name) != 0 }

func (f fields) text(name string) string { return f[name].Str }

func (f fields) texts(name string) []string {
	texts := make([]string, len(f[name].Elems))
	for i, v := range f[name].Elems {
		texts[i] = v.Str
	}
	return texts
}

// raw is the bytes of a text that JSON cannot have; nil: it can.
func raw(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}
