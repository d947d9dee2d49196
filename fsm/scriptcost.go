package fsm

import (
	"crypto/sha1"
	"strings"
	"sync"
	"sync/atomic"
)

// MuchWork is the work from which a batch takes turns with its like before it is proposed: what each batch of an entry
// may do in any case.
const MuchWork = 1 << 16

// maxCosts bounds the scripts in scriptCosts.
const maxCosts = 1024

// scriptCosts is the work of scripts that are much work, by SHA. It is a node's own experience and no part of the state:
// it decides when a script is proposed, never what the script does.
type scriptCosts struct {
	some atomic.Bool // there are any
	mu   sync.Mutex
	work map[string]int64
}

// note records a run of a script. A run that had no room for more counts as far as it came.
func (s *scriptCosts) note(sha string, work int64) {
	if work < MuchWork && !s.some.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	work = max(work, s.work[sha]/2) // scripts differ from run to run
	switch {
	case work < MuchWork:
		delete(s.work, sha)
	case s.work == nil, len(s.work) >= maxCosts:
		s.work = map[string]int64{sha: work}
	default:
		s.work[sha] = work
	}
	s.some.Store(len(s.work) > 0)
}

func (m *machine) ScriptWork(word []byte) int64 {
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
	return s.work[sha]
}
