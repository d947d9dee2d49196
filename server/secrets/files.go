package secrets

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// reader returns what is in a file.
type reader func(file string) ([]byte, error)

// maxFileBytes is more than any of these files has, 10,000 users too; a wrong name must not fill the memory.
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

// part is what is replaced as a whole: files that must fit one another.
type part struct {
	name  string // in log lines
	files []string
	load  func(c Config, read reader, to *credentials) error
	reading
}

// reading is what the last reading of a part found.
type reading struct {
	infos []fs.FileInfo // of the files, from before; nil: not there
	// once says that a file cannot be read again, such as a pipe.
	once bool
	// young says that a file was changed so shortly before that a change after the reading may have left no trace.
	young   bool
	sum     [sha256.Size]byte
	failure string // why what is there was not taken; empty: it was
}

// granularity is more than the times of files are apart at least.
const granularity = 2 * time.Second

// changed reports whether the files must be read again. A failure may be over without a trace in the files' times, as
// when their mode is mended.
func (p *part) changed() bool {
	if p.once || len(p.files) == 0 {
		return false
	}
	if p.young || p.failure != "" {
		return true
	}
	for i, file := range p.files {
		// Stat follows links, so a link that leads elsewhere is a change.
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

// read loads the part into a copy of old. fresh is false when the files say what they said before.
func (p *part) read(c Config, old *credentials, first bool) (next *credentials, fresh bool, err error) {
	now := time.Now()
	found, hash := reading{once: p.once, sum: p.sum}, sha256.New()
	for _, file := range p.files {
		info, _ := os.Stat(file)
		found.infos = append(found.infos, info)
		switch {
		case info == nil:
		case !info.Mode().IsRegular() && first:
			found.once = true
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is not a file", file) // to open it could wait for ever
		case now.Sub(info.ModTime()) < granularity:
			found.young = true
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
