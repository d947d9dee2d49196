package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/server/api"
)

// watchInterval is the time between two frames of `holdfast cluster status --watch`.
const watchInterval = time.Second

// watchStatus shows the status and each node's rates of commands, until ctx ends.
func (o *clusterOwn) watchStatus(ctx context.Context, stdout io.Writer) error {
	servers, err := o.servers()
	if err != nil {
		return err
	}
	servers.Name = clientName("holdfast-cluster")
	w := &watcher{servers: servers, conns: make(map[string]*operator.Conn), before: make(map[string]sample)}
	defer w.close()
	return watchFrames(ctx, stdout, func() string { return w.frame(ctx) })
}

// watchFrames shows a frame every watchInterval, until ctx ends.
func watchFrames(ctx context.Context, stdout io.Writer, next func() string) error {
	s := newScreen(stdout)
	defer s.leave()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		frame := next()
		if ctx.Err() != nil {
			return nil
		}
		if err := s.show(frame); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher has a connection to each node, and each node's sample of the previous frame.
type watcher struct {
	servers *operator.Servers
	any     *operator.Conn // to the node whose status is shown
	mu      sync.Mutex
	conns   map[string]*operator.Conn // by address; guarded by mu
	before  map[string]sample         // by node
}

func (w *watcher) close() {
	if w.any != nil {
		w.any.Close()
	}
	for _, c := range w.conns {
		c.Close()
	}
}

// frame returns the next frame.
func (w *watcher) frame(ctx context.Context) string {
	status, err := w.status(ctx)
	if err != nil {
		return "No node answers: " + printable(err.Error()) + "\n"
	}
	samples := make([]sample, len(status.Members))
	var asked sync.WaitGroup
	for i := range status.Members {
		m := &status.Members[i]
		asked.Go(func() { samples[i] = w.ask(ctx, printable(m.Name), m.ClientAddress) })
	}
	asked.Wait()
	frame := clusterFrame(status) + "\n" + rateTable(samples, w.before)
	clear(w.before)
	for _, s := range samples {
		w.before[s.node] = s
	}
	return frame
}

// status asks the node of the last frame, or any other.
func (w *watcher) status(ctx context.Context) (*api.Cluster, error) {
	if w.any != nil {
		if status, err := statusOf(ctx, w.any); err == nil {
			return status, nil
		}
		w.any.Close()
	}
	w.any = nil
	c, err := w.servers.DialAny(ctx, nodeTimeout)
	if err != nil {
		return nil, err
	}
	w.any = c
	return statusOf(ctx, c)
}

// sample has a node's counters at an instant, which is zero if the node did not answer.
type sample struct {
	node string
	at   time.Time
	info string
}

// ask takes a sample of a node.
func (w *watcher) ask(ctx context.Context, node, addr string) sample {
	s := sample{node: node}
	w.mu.Lock()
	c := w.conns[addr]
	w.mu.Unlock()
	if c == nil {
		var err error
		if c, err = w.servers.Dial(ctx, addr, watchInterval); err != nil {
			return s
		}
		w.mu.Lock()
		w.conns[addr] = c
		w.mu.Unlock()
	}
	v, err := c.Do(ctx, "INFO", "everything")
	if err != nil {
		c.Close()
		w.mu.Lock()
		delete(w.conns, addr)
		w.mu.Unlock()
		return s
	}
	s.at, s.info = time.Now(), v.Str
	return s
}

// rateTable returns each node's rates since the previous frame.
func rateTable(samples []sample, before map[string]sample) string {
	t := newTable("NAME", "COMMANDS/S", "ENTRIES/S", "GRANTS/S", "CLIENTS", "HOLDS", "WAITERS", "MEMORY")
	for _, s := range samples {
		then := before[s.node]
		rate := func(field string) string { return s.rate(then, field) }
		t.line(s.node, rate("total_commands_processed"), rate("raft_applied_index"), rate("lock_grants"),
			infoField(s.info, "connected_clients"), infoField(s.info, "lock_holds"), infoField(s.info, "lock_waiters"),
			infoField(s.info, "used_memory_human"))
	}
	return t.String()
}

// rate returns a counter's growth per second, "" if unknown, as after a restart.
func (s sample) rate(then sample, field string) string {
	now, err := strconv.ParseFloat(infoField(s.info, field), 64)
	if err != nil {
		return ""
	}
	was, err := strconv.ParseFloat(infoField(then.info, field), 64)
	passed := s.at.Sub(then.at).Seconds()
	if err != nil || now < was || passed <= 0 {
		return ""
	}
	return strconv.FormatFloat((now-was)/passed, 'f', 0, 64)
}

// screen shows frames: in place at a terminal, else one after another.
type screen struct {
	w    io.Writer
	size func() (rows, columns int, terminal bool)
	on   bool // the terminal's alternate screen is shown
}

func newScreen(w io.Writer) *screen { return &screen{w: w, size: terminalSize(w)} }

func (s *screen) show(frame string) error {
	rows, columns, terminal := s.size()
	if !terminal {
		_, err := fmt.Fprintf(s.w, "%s\n%s\n", time.Now().Format(time.TimeOnly), frame)
		return err
	}
	var b strings.Builder
	if !s.on {
		b.WriteString("\x1b[?1049h\x1b[?25l") // alternate screen, no cursor
		s.on = true
	}
	b.WriteString("\x1b[H")
	lines := strings.Split(strings.TrimRight(frame, "\n"), "\n")
	for i, line := range lines[:min(len(lines), max(rows, 1))] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if cut := []rune(line); len(cut) > columns {
			line = string(cut[:columns])
		}
		b.WriteString("\x1b[K" + line) // erase first: after a full line the cursor is on its last letter
	}
	if len(lines) < rows {
		b.WriteString("\r\n\x1b[J") // erase the rest of the last frame
	}
	_, err := io.WriteString(s.w, b.String())
	return err
}

// leave restores the terminal.
func (s *screen) leave() {
	if s.on {
		_, _ = io.WriteString(s.w, "\x1b[?25h\x1b[?1049l")
	}
}
