package consistency

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/replica"
)

// surveyEvery is the time for each member between two questions to all of them whether they are in quarantine.
const surveyEvery = 2 * time.Second

// surveyDue has the members asked who of them is in quarantine, if that is due, and returns when it is due next. A node
// that begins to lead asks at once: what it may do to the members depends on that. Verdicts say the same, but not where
// nothing is compared, and not to who was not there.
func (c *Checker) surveyDue(ctx context.Context, r Replica, st *replica.Status) time.Duration {
	conf, term := r.Configuration(), uint64(0)
	if st.Leading {
		term = st.Term
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := &c.survey, time.Now()
	if now.Before(s.next) && (term == 0 || term == s.term) {
		return s.next.Sub(now)
	}
	pause := max(minGap, time.Duration(len(conf.Members))*surveyEvery)
	select {
	case c.asking <- struct{}{}:
		s.term, s.next = term, now.Add(pause)
		go func() {
			defer func() { <-c.asking }()
			c.askAll(ctx, r)
		}()
	default: // it is under way
	}
	return pause
}

// surveyNow has the members asked soon.
func (c *Checker) surveyNow() {
	c.mu.Lock()
	c.survey.next = time.Time{}
	c.mu.Unlock()
	notify(c.wake)
}

// askAll asks all other members whether they are in quarantine. Who does not answer is taken for what it was.
func (c *Checker) askAll(ctx context.Context, r Replica) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	conf := r.Configuration()
	var asked sync.WaitGroup
	for _, m := range conf.Members {
		if m.ID == c.config.Self {
			continue
		}
		asked.Go(func() {
			a, err := memberrpc.Call[hashAnswer](ctx, c.config.Client, m.ID, opHash, hashQuestion{})
			if err == nil {
				c.noteQuarantine(m.ID, a.Quarantined)
			}
		})
	}
	asked.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = slices.DeleteFunc(slices.Clone(c.away), func(id string) bool { return !conf.Has(id) })
}

// noteQuarantine notes whether another member is in quarantine.
func (c *Checker) noteQuarantine(id string, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := slices.Contains(c.away, id)
	switch {
	case on:
		c.away = union(c.away, []string{id})
	case was:
		c.away, c.report.Differ = without(c.away, id), without(c.report.Differ, id)
	}
}
