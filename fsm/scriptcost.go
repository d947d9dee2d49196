package fsm

import (
	"crypto/sha1"
	"strings"
	"sync"
	"sync/atomic"
)

// MuchWork is the work from which a batch is expensive. Nodes propose expensive batches in turns. It is the share of an
// entry that each batch may always spend.
const MuchWork = 1 << 16

// maxCosts limits the scripts in scriptCosts.
const maxCosts = 1024

// scriptCosts has the work of expensive scripts, by SHA. It is not part of the state, since it affects only the time at
// which a script is proposed.
//
// The work of a run depends on the size of its keys and arguments. A script that takes a lock for each of its keys is
// expensive for a client that names thousands, and cheap for another client of the same library.
type scriptCosts struct {
	isUsed atomic.Bool // runs is not empty
	mu     sync.Mutex
	runs   map[string]scriptRun
}

// scriptRun has the work of a script, and the size of the keys and arguments of that run. A cheaper run halves the work
// at most.
type scriptRun struct{ work, size int64 }

// note records a run of a script. If the run exceeded its budget, work is the work until then.
func (s *scriptCosts) note(sha string, work, size int64) {
	if work < MuchWork && !s.isUsed.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run, known := s.runs[sha]
	if run.work /= 2; work >= run.work { // one cheap run does not make the script cheap
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
	s.isUsed.Store(len(s.runs) > 0)
}

// sizeOf returns the size of a script's keys and arguments. It is positive.
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
	if !s.isUsed.Load() {
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
