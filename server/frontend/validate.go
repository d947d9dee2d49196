package frontend

import (
	"crypto/sha1"
	"strings"
	"sync"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/frontend/discovery"
)

// validate returns why a data command must not reach the log, or nil: an argument is too long, or a Lua source does not
// compile.
func (c *conn) validate(req *request) *protocol.Error {
	if refusal := c.srv.inClusterMode(req); refusal != nil {
		return refusal
	}
	if refusal := req.tooLong(&c.srv.cfg.Limits); refusal != nil {
		return refusal
	}
	if c.srv.backend.DiskFull() && req.fillsDisk() {
		return protocol.ErrDiskFull
	}
	if req.source == 0 {
		return nil
	}
	return c.validateScript(req)
}

// fullDiskBytes bounds a command of the log while the disks are nearly full, also if it does not make the state grow.
const fullDiskBytes = 64 << 10

// fillsDisk reports whether a command must not reach the log of a cluster whose disks are nearly full. The state
// machine refuses the commands of scripts, and those that are in the log already.
func (req *request) fillsDisk() bool {
	return req.Has(protocol.FlagDenyOOM) || req.Route != protocol.Read && req.encodedBytes() > fullDiskBytes
}

// validateScript compiles the Lua source of EVAL and SCRIPT LOAD on this node, so that a bad source costs the other
// nodes nothing. As in Redis, EVAL's number of keys is checked first.
func (c *conn) validateScript(req *request) *protocol.Error {
	if req.nameArgs == 1 {
		if refusal := req.badKeyCount(); refusal != nil {
			return refusal
		}
	}
	source := req.args[req.source]
	if len(source) >= largeSource {
		c.runBatch() // earlier commands do not wait for the compiler
	}
	if err := c.srv.compiled.check(source); err != nil {
		prefix, text, _ := strings.Cut(err.Error(), " ")
		return &protocol.Error{Prefix: prefix, Text: text}
	}
	return nil
}

// lockWork is the estimated work of a lock command beyond that of its words, in units of [fsm.MuchWork].
const lockWork = 4 << 10

// extraWork estimates the work of a request beyond that of its words: of its script by the last run, or of a lock
// command.
func (c *conn) extraWork(req *request) int64 {
	switch {
	case req.lock:
		return lockWork
	case req.Name == "eval", req.Name == "evalsha":
		return c.srv.backend.ScriptWork(req.args[1], req.args[min(3, len(req.args)):])
	}
	return 0
}

// inClusterMode returns why the node's mode refuses a data command, or nil.
func (s *Server) inClusterMode(req *request) *protocol.Error {
	slots := req.Group == protocol.GroupCluster
	switch {
	case !s.cfg.Options.ClusterMode && slots:
		return discovery.ErrNoCluster
	case !s.cfg.Options.ClusterMode || slots:
		return nil
	case req.Name == "move" || req.Name == "swapdb":
		return protocol.NewError(strings.ToUpper(req.Name) + " is not allowed in cluster mode")
	case req.Name == "copy" && req.copiesElsewhere():
		return protocol.NewError("Copying to another database is not allowed in cluster mode")
	}
	return nil
}

// parseDatabase parses the number of a database. In cluster mode there is only database 0.
func (s *Server) parseDatabase(arg []byte) (db int, refusal protocol.Value, refused bool) {
	n, ok := protocol.ParseInt(string(arg))
	switch {
	case !ok:
		return 0, protocol.ErrNotInteger.Value(), true
	case int64(int32(n)) != n:
		return 0, protocol.Err("value is out of range, value must between -2147483648 and 2147483647"), true
	case n != 0 && s.cfg.Options.ClusterMode:
		return 0, protocol.Err("SELECT is not allowed in cluster mode"), true
	case n < 0 || n >= protocol.MaxDatabases:
		return 0, protocol.ErrDBIndex.Value(), true
	}
	return int(n), protocol.Value{}, false
}

// largeSource is the size from which sources are compiled one at a time. The largest source takes a tenth of a second,
// and a hundred connections must not occupy all cores.
const largeSource = fsm.LargeSource

// compileCacheSize bounds the remembered sources: at least this many, at most twice as many.
const compileCacheSize = 1024

// compiler is the part of the [Backend] that a compileCache uses.
type compiler interface {
	Compile(source string) error
	Compiled(source string) bool
}

// compileCache remembers, by SHA-1, the Lua sources that compiled on this node, so that EVAL compiles a source once. It
// does not remember a source that does not compile, so its sender waits for the compiler each time. The backend keeps
// the programs of large sources, since the log must not wait for them.
type compileCache struct {
	compiler  compiler
	largeTurn chan struct{} // has room for one compilation of a large source

	mu sync.Mutex
	// If recent is full, it becomes former, and the old former is dropped.
	recent, former map[[sha1.Size]byte]struct{}
}

func newCompileCache(c compiler) *compileCache {
	return &compileCache{compiler: c, largeTurn: make(chan struct{}, 1), recent: make(map[[sha1.Size]byte]struct{})}
}

// check returns why a source does not compile, or nil.
func (s *compileCache) check(source []byte) error {
	if len(source) >= largeSource {
		return s.checkLarge(string(source))
	}
	sum := sha1.Sum(source)
	if s.has(sum) {
		return nil
	}
	if err := s.compiler.Compile(string(source)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(sum)
	return nil
}

func (s *compileCache) checkLarge(source string) error {
	if s.compiler.Compiled(source) {
		return nil
	}
	s.largeTurn <- struct{}{}
	defer func() { <-s.largeTurn }()
	return s.compiler.Compile(source)
}

func (s *compileCache) has(sum [sha1.Size]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.recent[sum]; ok {
		return true
	}
	if _, ok := s.former[sum]; !ok {
		return false
	}
	s.add(sum)
	return true
}

func (s *compileCache) add(sum [sha1.Size]byte) {
	if len(s.recent) >= compileCacheSize {
		s.recent, s.former = make(map[[sha1.Size]byte]struct{}), s.recent
	}
	s.recent[sum] = struct{}{}
}
