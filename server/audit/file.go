package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// output is where lines go. write takes whole lines.
type output interface {
	write(lines []byte) error
	close()
}

// pipe is an output that somebody else looks after.
type pipe struct{ w io.Writer }

func (p *pipe) write(lines []byte) error {
	_, err := p.w.Write(lines)
	return err
}

func (p *pipe) close() {}

// fileCount is how many files there are at most.
const fileCount = 8

// files are the file that is written and the older ones. Only the goroutine that writes uses them.
type files struct {
	path string
	f    *os.File // nil: it could not be opened anew
	size int64
	most int64 // of a file
	// torn: the file may end within a line.
	torn bool
}

// openFiles opens the file, and finds the last line of the log in it. A process that ended within a line leaves the
// beginning of one: the next begins on a line of its own, and the reader passes over the rest.
func openFiles(path string, most int64) (*files, mark, error) {
	f := &files{path: path, most: most / fileCount}
	if err := f.open(); err != nil {
		return nil, mark{}, err
	}
	last, err := lastMark(path)
	if err == nil && last.index == 0 {
		last, err = lastMark(f.older(1))
	}
	if err != nil {
		f.close()
		return nil, mark{}, err
	}
	return f, last, nil
}

func (f *files) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.path)
	}
	if err == nil {
		err = file.Chmod(0o600)
	}
	last := []byte{'\n'}
	if err == nil && info.Size() > 0 {
		_, err = file.ReadAt(last, info.Size()-1)
	}
	if err != nil {
		file.Close()
		return err
	}
	f.f, f.size, f.torn = file, info.Size(), last[0] != '\n'
	return nil
}

func (f *files) older(n int) string { return f.path + "." + strconv.Itoa(n) }

func (f *files) write(lines []byte) error {
	if f.f != nil && f.size > 0 && f.size+int64(len(lines)) > f.most {
		if err := f.rotate(); err != nil {
			return err
		}
	}
	if f.f == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if f.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := f.f.Write(lines)
	f.size += int64(n)
	f.torn = err != nil && (n > 0 || f.torn)
	return err
}

// rotate makes the file the first of the older ones, of which the last goes.
func (f *files) rotate() error {
	for n := fileCount - 1; n > 1; n-- {
		if err := os.Rename(f.older(n-1), f.older(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(f.path, f.older(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.close()
	return nil
}

func (f *files) close() {
	if f.f != nil {
		f.f.Close()
		f.f = nil
	}
}

// lastMark is the place of the last whole line of the log in a file, as far as its end has one; zero: there is none.
func lastMark(path string) (last mark, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return mark{}, err
	}
	begin := max(0, info.Size()-endBytes)
	r := bufio.NewReaderSize(io.NewSectionReader(f, begin, info.Size()-begin), 64<<10)
	for {
		text, err := r.ReadBytes('\n')
		if err != nil { // a line without an end is not whole
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return last, err
		}
		var line Line
		if bytes.Contains(text, []byte(`"index":`)) && json.Unmarshal(text, &line) == nil && line.Run == 0 {
			last = mark{line.Cluster, line.Index, line.N}
		}
	}
}

// endBytes is how much of a file is looked at.
const endBytes = 1 << 20
