package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"
	"unique"

	"github.com/holdfast/holdfast/server/audit"
)

// reader reads the lines of the log from the files of several nodes, in the order of their times, each once. A line
// that several files have is passed on with the client's address if one of them knows it.
type reader struct {
	sources    []*source
	add        func(*audit.Line)
	recent     [2]map[lineID]struct{} // the latter is full
	unreadable int
}

// lineID names a line of the log.
type lineID struct {
	cluster unique.Handle[string]
	index   uint64
	n       int
}

func idOf(l *audit.Line) lineID { return lineID{unique.Make(l.Cluster), l.Index, l.N} }

const (
	// pollEvery is the time between two looks for more lines.
	pollEvery = 200 * time.Millisecond
	// settleFor is how long a line that was added to a file waits for the other nodes' files to have it, too.
	settleFor = 2 * time.Second
	// maxRecentLines bounds each of the two sets of recent lines. A file that is this many lines behind adds none twice.
	maxRecentLines = 1 << 18
)

// openReader opens files; without any, stdin, which ends with ctx.
func openReader(ctx context.Context, paths []string, stdin io.Reader, add func(*audit.Line)) (*reader, error) {
	r := &reader{add: add}
	r.recent[0] = make(map[lineID]struct{})
	if len(paths) == 0 {
		from, to := io.Pipe()
		context.AfterFunc(ctx, func() { to.Close() })
		go func() {
			_, err := io.Copy(to, stdin)
			to.CloseWithError(err)
		}()
		r.sources = []*source{{lines: bufio.NewReader(from)}}
		return r, nil
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			r.close()
			return nil, err
		}
		r.sources = append(r.sources, &source{path: path, file: file, lines: bufio.NewReader(file), endedAt: time.Now()})
	}
	return r, nil
}

func (r *reader) close() {
	for _, s := range r.sources {
		if s.file != nil {
			s.file.Close()
		}
	}
}

// run reads until the sources end. If it follows files they end, where they are then, with ctx. It fails if last ends.
func (r *reader) run(ctx, last context.Context, follow bool) error {
	for {
		if last.Err() != nil {
			return errors.New("the files were not read to their ends")
		}
		goOn := follow && ctx.Err() == nil
		var first *source
		isBehind := false
		for _, s := range r.sources {
			if err := s.fill(goOn, &r.unreadable); err != nil {
				return err
			}
			switch {
			case s.head == nil:
				isBehind = isBehind || !s.isEnded
			case first == nil || isBefore(s.head, first.head):
				first = s
			}
		}
		switch {
		case first == nil && !isBehind, !follow && ctx.Err() != nil:
			return nil
		case first != nil && !(isBehind && time.Since(first.endedAt) < settleFor):
			r.take(first)
		default:
			select {
			case <-ctx.Done():
			case <-time.After(pollEvery):
			}
		}
	}
}

func isBefore(l, o *audit.Line) bool {
	return cmp.Or(l.Time.Compare(o.Time), cmp.Compare(l.Index, o.Index), cmp.Compare(l.N, o.N)) < 0
}

// take passes on the line of a source, and takes it out of the others that have it now.
func (r *reader) take(first *source) {
	l, id := first.head, idOf(first.head)
	for _, s := range r.sources {
		if s.head != nil && idOf(s.head) == id {
			if l.Addr == "" {
				l = s.head
			}
			s.head = nil
		}
	}
	if r.isNew(id) {
		r.add(l)
	}
}

func (r *reader) isNew(id lineID) bool {
	for _, known := range r.recent {
		if _, is := known[id]; is {
			return false
		}
	}
	if len(r.recent[0]) >= maxRecentLines {
		r.recent = [2]map[lineID]struct{}{make(map[lineID]struct{}), r.recent[0]}
	}
	r.recent[0][id] = struct{}{}
	return true
}

// source is the file of a node, or stdin.
type source struct {
	path  string
	file  *os.File // nil: stdin
	lines *bufio.Reader
	// begun is the beginning of a line whose end was not read yet.
	begun     []byte
	isTooLong bool
	// endedAt is when the file was opened, or when its end was last reached. The node wrote head at about that time. The
	// time in head may be much earlier: a line may report the end of a wait or a lease long after that end.
	endedAt time.Time
	// next is the file that follows: it was there before file was at its end.
	next *os.File
	// head is the next line of the log; nil: none is there yet, or isEnded.
	head    *audit.Line
	isEnded bool
}

// fill reads the next line of the log into head, and adds the number of invalid lines to unreadable. At the end of the
// file, a source without goOn has ended; with goOn, fill looks for more lines, and returns without a line if there are
// none yet.
func (s *source) fill(goOn bool, unreadable *int) error {
	for s.head == nil && !s.isEnded {
		part, err := s.lines.ReadSlice('\n')
		if s.isTooLong = s.isTooLong || len(s.begun)+len(part) > audit.MaxLineBytes; !s.isTooLong {
			s.begun = append(s.begun, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case err != nil && goOn:
			s.endedAt = time.Now()
			more, isOther, err := s.turn()
			if err != nil || !more {
				return err
			}
			if !isOther {
				continue
			}
		case err != nil:
			s.isEnded = true
		}
		s.parse(unreadable)
	}
	return nil
}

// parse decodes the line in begun. It stores a line of the log in head, and skips a line of the node itself.
func (s *source) parse(unreadable *int) {
	text, isTooLong := bytes.TrimSpace(s.begun), s.isTooLong
	s.begun, s.isTooLong = s.begun[:0], false
	if len(text) == 0 && !isTooLong {
		return
	}
	l, err := audit.ParseLine(text)
	if isTooLong || err != nil || l.Event == "" {
		*unreadable++
	} else if l.Run == 0 {
		s.head = &l
	}
}

// turn looks for more lines at the end of the file, and reports in more whether to read on. If the file was renamed or
// removed, turn opens the next file. If the file was truncated, turn goes back to its beginning. isOther reports that
// the source now reads another file, or the beginning: the line in begun will have no end.
func (s *source) turn() (more, isOther bool, err error) {
	if s.next != nil {
		s.file.Close()
		s.file, s.next = s.next, nil
		s.lines.Reset(s.file)
		return true, true, nil
	}
	was, err := s.file.Stat()
	if err != nil {
		return false, false, err
	}
	is, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist): // not there yet
		return false, false, nil
	case err != nil:
		return false, false, err
	case !os.SameFile(is, was):
		s.next, err = os.Open(s.newer(was))
		if errors.Is(err, os.ErrNotExist) { // the files are being rotated
			return false, false, nil
		}
		return err == nil, false, err // the node may have added lines before it renamed the file: read them first
	}
	if at, err := s.file.Seek(0, io.SeekCurrent); err != nil || at <= was.Size() {
		return false, false, err
	}
	_, err = s.file.Seek(0, io.SeekStart)
	s.lines.Reset(s.file)
	return true, true, err
}

// newer is the path of the file that follows a file of the source: more than one may have been begun meanwhile.
func (s *source) newer(than os.FileInfo) string {
	newer := s.path
	for n := 1; n < audit.FileCount; n++ {
		older := s.path + "." + strconv.Itoa(n)
		if info, err := os.Stat(older); err == nil && os.SameFile(info, than) {
			return newer
		}
		newer = older
	}
	return s.path
}
