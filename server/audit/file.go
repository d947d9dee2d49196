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

// output is the destination of lines: files, a pipe or the syslog daemon. write takes whole lines.
type output interface {
	write(lines []byte) error
	close()
}

// pipe is an output that close does not close.
type pipe struct{ w io.Writer }

func (p *pipe) write(lines []byte) error {
	_, err := p.w.Write(lines)
	return err
}

func (p *pipe) close() {}

// FileCount bounds the files, including the current one.
const FileCount = 8

const (
	// checkEvery is the time between two checks whether another program has renamed or removed the file.
	checkEvery = time.Second
	// rotateEvery is the time between a failed rotation and the next one.
	rotateEvery = time.Minute
	// writeBackBytes and writeBackEvery bound the lines that the kernel gathers before it writes them to the disk. A
	// request to the disk costs the processor as much as a hundred lines.
	writeBackBytes = 512 << 10
	writeBackEvery = time.Second
)

// files is the current file and the older ones. Only the goroutine that writes uses it.
type files struct {
	path   string
	logger *slog.Logger
	f      *os.File // nil if the current file could not be opened again
	size   int64
	// backed is the part of size that the kernel was told to write to the disk.
	backed   int64
	maxBytes int64 // the limit of a file
	// head is the first line of each file.
	head []byte
	// torn is set if the file may end within a line.
	torn bool
	// checked is the time of the last check that f is at path, and backedAt the time of the last writeBack. No rotation
	// begins before rotateAt.
	checked, backedAt, rotateAt time.Time
}

// openFiles opens the current file, and finds the last line of the log in the files. If a process has ended within a
// line, the next line begins on a line of its own, and the reader skips the incomplete one.
func openFiles(path string, maxBytes int64, logger *slog.Logger) (output, mark, error) {
	f := &files{path: path, logger: logger, maxBytes: maxBytes / FileCount}
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

// openRegular opens a regular file. It follows no symbolic link, by which a user with write access to the folder could
// choose another file.
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

// Check reports an error if [Open] could not write the file, or could not reach the syslog daemon. Another process may
// be writing the file. Check removes a file that it has created.
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
		_ = os.Rename(f.older(0), f.path) // a rotation was interrupted
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
	f.f, f.size, f.backed, f.torn, f.checked = file, info.Size(), info.Size(), last[0] != '\n', time.Now()
	return nil
}

// older returns the path of the nth older file. FILE.0 exists only during a rotation.
func (f *files) older(n int) string { return f.path + "." + strconv.Itoa(n) }

func (f *files) write(lines []byte) error {
	now := time.Now()
	if f.f != nil && now.Sub(f.checked) >= checkEvery {
		f.check(now)
	}
	if f.f != nil && f.size > 0 && f.size+int64(len(lines)) > f.maxBytes && !now.Before(f.rotateAt) {
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
	f.size += int64(n)
	if f.size-f.backed >= writeBackBytes || now.Sub(f.backedAt) >= writeBackEvery {
		f.writeBack()
		f.backedAt = now
	}
	f.torn = err != nil && (n > 0 || f.torn)
	return err
}

func (f *files) writeBack() {
	writeBack(f.f, f.backed, f.size-f.backed)
	f.backed = f.size
}

// check closes the file if another program has renamed or removed it. If another program has truncated the file, check
// updates the size.
func (f *files) check(now time.Time) {
	f.checked = now
	named, err := os.Lstat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // unknown
	}
	if err == nil {
		if open, err := f.f.Stat(); err == nil && os.SameFile(named, open) {
			f.size = open.Size()
			f.backed = min(f.backed, f.size)
			return
		}
	}
	f.close()
}

// rotate makes the current file the first of the older ones. If there are FileCount files, it removes the last. If a
// file cannot be renamed, the current file stays in its place and open. rotate renames the current file first, so that
// no older file is lost if this fails.
func (f *files) rotate() error {
	switch err := os.Rename(f.path, f.older(0)); {
	case errors.Is(err, fs.ErrNotExist):
		f.close()
		return nil
	case err != nil:
		return err
	}
	free := 1 // the first number without a file, or the last number
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
		f.writeBack()
		f.f.Close()
		f.f = nil
	}
}

// lastMark returns the mark of the last complete line of the log in a file, or zero if the file has none or does not
// exist. It reads the file in blocks from the end.
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
		if begin > 0 { // the first line may have begun in the block before, which then ends with it
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

// lastMarkIn is lastMark of a text that begins with a line. The text after the last newline is no complete line.
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

// blockBytes is the size of a block, and larger than any line.
const blockBytes = 1 << 20
