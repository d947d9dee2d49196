package secrets

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// reader returns the content of a file.
type reader func(file string) ([]byte, error)

// maxFileBytes bounds a file, so that a wrong name cannot fill the memory. 10,000 users fit.
const maxFileBytes = 4 << 20

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFileBytes)
	}
	return text, err
}

// part is a set of files that must match one another, and are replaced together.
type part struct {
	name  string // in log lines
	files []string
	load  func(c Config, read reader, to *credentials) error
	reading
}

// reading is the last reading of a part.
type reading struct {
	infos []fs.FileInfo // of each file before it was read, nil if it is missing
	// readOnce is set if a file cannot be read again, such as a pipe.
	readOnce bool
	// ambiguous is set if a file had changed so recently that a later change may not alter its modification time.
	ambiguous bool
	sum       [sha256.Size]byte
	failure   string // why the files are invalid, or ""
}

// granularity is longer than the resolution of modification times on any file system.
const granularity = 2 * time.Second

// changed reports whether the files must be read again. After a failure they must, as its cause, such as a file's mode,
// may be corrected without a new modification time.
func (p *part) changed() bool {
	if p.readOnce || len(p.files) == 0 {
		return false
	}
	if p.ambiguous || p.failure != "" {
		return true
	}
	for i, file := range p.files {
		// Stat follows links, so a link with a new target is a change.
		if info, _ := os.Stat(file); !same(info, p.infos[i]) {
			return true
		}
	}
	return false
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// read loads the part into a copy of old. fresh reports whether the contents of the files differ from the last reading.
func (p *part) read(c Config, old *credentials, first bool) (next *credentials, fresh bool, err error) {
	now := time.Now()
	found, hash := reading{readOnce: p.readOnce, sum: p.sum}, sha256.New()
	for _, file := range p.files {
		info, _ := os.Stat(file)
		found.infos = append(found.infos, info)
		switch {
		case info == nil:
		case !info.Mode().IsRegular() && first:
			found.readOnce = true
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a file", file) // opening it could block forever
		case now.Sub(info.ModTime()) < granularity:
			found.ambiguous = true
		}
	}
	next = old.clone()
	if err == nil {
		err = p.load(c, func(file string) ([]byte, error) {
			text, err := readFile(file)
			sum := sha256.Sum256(text)
			hash.Write(sum[:])
			return text, err
		}, next)
	}
	if err == nil && !first {
		err = next.outOfDate(old, now)
	}
	if err != nil {
		found.failure = err.Error()
		p.reading = found
		return old, false, err
	}
	hash.Sum(found.sum[:0])
	fresh = found.sum != p.sum
	p.reading = found
	return next, fresh, nil
}
