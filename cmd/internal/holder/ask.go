package holder

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// ask asks for the lock on the present connection, and waits in line until the time to wait is over.
func (h *Holder) ask(ctx context.Context, until time.Time) error {
	v, err := h.conn.Do(ctx, h.words(until)...)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), noSession):
		h.session = ""
		h.leave()
		return errors.New(err.Error())
	case err != nil:
		if !isRefusal(err) {
			h.leave()
		}
		return err
	case v.IsNull():
		return ErrNotGranted
	case v.Num != 0:
		h.fence = v.Num
		return nil
	}
	if h.InLine != nil {
		h.InLine(ctx, h.conn)
	}
	err = h.stand(ctx, until)
	if err != nil && !errors.Is(err, ErrNotGranted) {
		h.leave()
	}
	return err
}

// words are the request.
func (h *Holder) words(until time.Time) []string {
	l := h.lock
	words := []string{"LOCK.ACQUIRE", l.Name, l.Owner, "SESSION", h.session}
	if l.Shared {
		words = append(words, "SHARED")
	}
	if l.Limit > 0 {
		words = append(words, "LIMIT", strconv.Itoa(l.Limit), "PERMITS", strconv.Itoa(max(1, l.Permits)))
	}
	switch {
	case l.Wait < 0:
		words = append(words, "WAIT", "0", "NOTIFY")
	case l.Wait > 0:
		words = append(words, "WAIT", millis(max(time.Until(until), time.Millisecond)), "NOTIFY")
	}
	if l.Delay > 0 {
		words = append(words, "DELAY", millis(l.Delay))
	}
	if l.Note != "" {
		words = append(words, "NOTE", l.Note)
	}
	return words
}

// stand waits for the notice that the lock is granted. A node that hangs would never send it, so the node
// has to answer now and then.
func (h *Holder) stand(ctx context.Context, until time.Time) error {
	ping := time.NewTicker(h.interval())
	defer ping.Stop()
	for {
		select {
		case v := <-h.conn.pushes:
			e := v.Elems
			if len(e) < 4 || e[2].Str != h.lock.Name || e[3].Str != h.lock.Owner {
				continue
			}
			switch {
			case e[1].Str == "granted" && len(e) > 4:
				h.fence, _ = strconv.ParseInt(Text(e[4]), 10, 64)
				return nil
			case e[1].Str == "timeout" && h.lock.Wait > 0 && time.Until(until) < slack/10:
				return ErrNotGranted
			case e[1].Str == "timeout", e[1].Str == "failed":
				return errOutOfLine
			}
		case <-h.conn.down:
			return h.conn.err
		case <-ping.C:
			if _, err := h.conn.Do(ctx, "PING"); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errOutOfLine: the place in line was lost before its time, so it is asked for again.
var errOutOfLine = errors.New("the place in line was lost")
