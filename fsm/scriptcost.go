package fsm

import (
	"crypto/sha1"
	"strings"
	"sync"
	"sync/atomic"
)

// MuchWork is the work from which a batch takes turns with its like before it is proposed: the own share of a batch in
// an entry.
const MuchWork = 1 << 16

// maxCosts bounds the scripts in scriptCosts.
const maxCosts = 1024

// scriptCosts has the work of expensive scripts, by SHA. It is a node's own experience and no part of the state: it
// decides when a script is proposed, never what the script does.
//
// The work of a run is related to the size of its words: a script that takes a lock for each of its keys is expensive
// for a client that names thousands, and cheap for another client of the same library.
type scriptCosts struct {
	some atomic.Bool // there are any
	mu   sync.Mutex
	runs map[string]scriptRun
}

// scriptRun is the work of a script with keys and arguments of a size. Later cheaper runs halve the work at most.
type scriptRun struct{ work, size int64 }

// note records a run of a script. A run that exceeded its budget counts as far as it came.
func (s *scriptCosts) note(sha string, work, size int64) {
	if work < MuchWork && !s.some.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run, known := s.runs[sha]
	if run.work /= 2; work >= run.work { // scripts differ from run to run
		run = scriptRun{work, size}
	}
	switch {
	case run.work < MuchWork:
		delete(s.runs, sha)
	case s.runs == nil, !known && len(s.runs) >= maxCosts:
		s.runs = map[string]scriptRun{sha: run}
	default:
		s.runs[sha] = run
	}
	s.some.Store(len(s.runs) > 0)
}

// sizeOf returns the size of a script's keys and arguments, which is more than 0.
func sizeOf[T string | []byte](words ...[]T) int64 {
	size := 1
	for _, ws := range words {
		for _, w := range ws {
			size += 1 + len(w)
		}
	}
	return int64(size)
}

func (m *machine) ScriptWork(word []byte, words [][]byte) int64 {
	s := &m.costs
	if !s.some.Load() {
		return 0
	}
	sha := strings.ToLower(string(word))
	if len(word) != 2*sha1.Size {
		sha = scriptSHA(string(word))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run, known := s.runs[sha]
	if !known {
		return 0
	}
	return int64(float64(run.work) * float64(sizeOf(words)) / float64(run.size))
}
