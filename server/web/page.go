package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
)

//go:embed page
var pageFiles embed.FS

// contentPolicy lets the page load its own two files and ask this port, and nothing else. What a client of the cluster
// named itself can never become code: the page makes no markup of text.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageParts are the files by their paths.
var pageParts = []struct{ path, file, kind string }{
	{"/{$}", "page.html", "text/html; charset=utf-8"},
	{"/page.css", "page.css", "text/css; charset=utf-8"},
	{"/page.js", "page.js", "text/javascript; charset=utf-8"},
	{"/icon.svg", "icon.svg", "image/svg+xml"},
}

// pageRoutes adds the page, which is drawn from the JSON endpoints.
func (s *Server) pageRoutes(mux *http.ServeMux) {
	for _, p := range pageParts {
		body, err := pageFiles.ReadFile("page/" + p.file)
		if err != nil {
			panic(err) // the file is a part of the program
		}
		sum := sha256.Sum256(body)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		mux.Handle("GET "+p.path, s.known("lock.list", s.near(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("ETag", tag)
			h.Set("Cache-Control", "no-cache")
			harden(h)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			h.Set("Content-Type", p.kind)
			_, _ = w.Write(body)
		}))))
	}
}
