package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"time"
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

// FileCount is how many files there are at most.
const FileCount = 8

const (
	// checkEvery is the time between two looks whether others have renamed or removed the file.
	checkEvery = time.Second
	// rotateEvery is the time between two tries to rotate files after one has failed.
	rotateEvery = time.Minute
)

// files are the file that is written and the older ones. Only the goroutine that writes uses them.
type files struct {
	path   string
	logger *slog.Logger
	f      *os.File // nil: it could not be opened anew
	size   int64
	most   int64 // of a file
	// head is the line that each file begins with.
	head []byte
	// torn: the file may end within a line.
	torn bool
	// checked is when f was last found at path. No rotation begins before rotateAt.
	checked, rotateAt time.Time
}

// openFiles opens the file, and finds the last line of the log in it. A process that ended within a line leaves the
// beginning of one: the next begins on a line of its own, and the reader passes over the rest.
func openFiles(path string, most int64, logger *slog.Logger) (output, mark, error) {
	f := &files{path: path, logger: logger, most: most / FileCount}
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

// openRegular opens a regular file. It follows no symbolic link: who may write to the folder would choose the file.
func openRegular(path string, flag int) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(path, flag|openFlags, 0o600)
	if err != nil {
		if link, failed := os.Lstat(path); failed == nil && link.Mode()&fs.ModeSymlink != 0 {
			err = fmt.Errorf("%s is a symbolic link: name the file itself", path)
		}
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// Check proves that [Open] can write the file, also while a process writes it, or reach the syslog daemon. A file that
// it creates it removes.
func Check(path string) error {
	switch path {
	case Stdout:
		return nil
	case Syslog:
		out, err := openSyslog("", "", nil, nil)
		if err == nil {
			out.close()
		}
		return err
	}
	const flag = os.O_RDWR | os.O_APPEND
	file, _, err := openRegular(path, flag)
	isNew := errors.Is(err, fs.ErrNotExist)
	if isNew {
		file, _, err = openRegular(path, flag|os.O_CREATE|os.O_EXCL)
	}
	if err != nil {
		return err
	}
	file.Close()
	if isNew {
		return os.Remove(path)
	}
	return nil
}

func (f *files) open() error {
	if _, err := os.Lstat(f.path); errors.Is(err, fs.ErrNotExist) {
		_ = os.Rename(f.older(0), f.path) // of a rotation that was interrupted
	}
	file, info, err := openRegular(f.path, os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	if err = lockFile(file); err == nil {
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
	f.f, f.size, f.torn, f.checked = file, info.Size(), last[0] != '\n', time.Now()
	return nil
}

// older is the path of the nth older file. FILE.0 exists within a rotation alone.
func (f *files) older(n int) string { return f.path + "." + strconv.Itoa(n) }

func (f *files) write(lines []byte) error {
	now := time.Now()
	if f.f != nil && now.Sub(f.checked) >= checkEvery {
		f.check(now)
	}
	if f.f != nil && f.size > 0 && f.size+int64(len(lines)) > f.most && !now.Before(f.rotateAt) {
		if err := f.rotate(); err != nil {
			f.rotateAt = now.Add(rotateEvery)
			f.logger.Warn("rotate audit log: the file grows beyond its limit", "error", err)
		}
	}
	if f.f == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if f.size == 0 && !bytes.HasPrefix(lines, f.head) {
		lines = append(bytes.Clone(f.head), lines...)
	}
	if f.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := f.f.Write(lines)
	writeBack(f.f, f.size, int64(n))
	f.size += int64(n)
	f.torn = err != nil && (n > 0 || f.torn)
	return err
}

// check closes the file if its path has none or another one, since others have renamed or removed the file. If they
// have truncated it, check takes the size.
func (f *files) check(now time.Time) {
	f.checked = now
	named, err := os.Lstat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // unknown
	}
	if err == nil {
		if open, err := f.f.Stat(); err == nil && os.SameFile(named, open) {
			f.size = open.Size()
			return
		}
	}
	f.close()
}

// rotate makes the file the first of the older ones, of which the last is removed if there is no room. If a file cannot
// be renamed, the current file stays in its place and open. The file is moved away first: when that fails, no older
// file is lost.
func (f *files) rotate() error {
	switch err := os.Rename(f.path, f.older(0)); {
	case errors.Is(err, fs.ErrNotExist):
		f.close()
		return nil
	case err != nil:
		return err
	}
	free := 1 // the first number without a file, or the last of all
	for ; free < FileCount-1; free++ {
		if _, err := os.Lstat(f.older(free)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	for n := free; n > 0; n-- {
		if err := os.Rename(f.older(n-1), f.older(n)); err != nil {
			return errors.Join(err, os.Rename(f.older(0), f.path))
		}
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

// lastMark is the place of the last whole line of the log in a file; zero: the file has none, or does not exist. It
// reads the file in blocks from the end.
func lastMark(path string) (mark, error) {
	f, info, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, err
	}
	defer f.Close()
	block := make([]byte, min(info.Size(), blockBytes))
	for end := info.Size(); end > 0; {
		begin := max(0, end-blockBytes)
		text := block[:end-begin]
		if _, err := f.ReadAt(text, begin); err != nil && !errors.Is(err, io.EOF) {
			return mark{}, err
		}
		if begin > 0 { // the first line may have begun before: the next block ends with it
			first := bytes.IndexByte(text, '\n') + 1
			if first < len(text) {
				begin, text = begin+int64(first), text[first:]
			}
		}
		if last := lastMarkIn(text); last.index != 0 {
			return last, nil
		}
		end = begin
	}
	return mark{}, nil
}

// lastMarkIn is lastMark of a text that begins with a line. What follows the last newline is no whole line.
func lastMarkIn(text []byte) mark {
	for end := bytes.LastIndexByte(text, '\n'); end >= 0; end = bytes.LastIndexByte(text, '\n') {
		text = text[:end]
		last := text[bytes.LastIndexByte(text, '\n')+1:]
		if !bytes.Contains(last, []byte(`"id":`)) {
			continue
		}
		if line, err := ParseLine(last); err == nil && line.Run == 0 {
			return mark{line.Cluster, line.Index, line.N}
		}
	}
	return mark{}
}

// blockBytes is how much of a file is read at once: more than a line takes.
const blockBytes = 1 << 20
