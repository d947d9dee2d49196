// Command driver plays the client's part of the scenarios of server/clients/CONTRACT.md: it reads commands, one a line,
// and prints what happens. See cmd/internal/clienttest.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/server/clients/go/holdfast"
)

func main() {
	ttl, err := time.ParseDuration(os.Getenv("HOLDFAST_TTL"))
	if err != nil {
		panic(err)
	}
	client, err := holdfast.New(holdfast.Config{
		Addrs: strings.Split(os.Getenv("HOLDFAST_NODES"), ","), TTL: ttl, Name: "driver",
		Credentials: func(context.Context) (user, password string, err error) {
			word, err := os.ReadFile(os.Getenv("HOLDFAST_PASSWORD_FILE"))
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return "", strings.TrimSpace(string(word)), err
		},
	})
	if err != nil {
		panic(err)
	}
	d := &driver{client: client, cancels: map[string]context.CancelFunc{}, locks: map[string]*holdfast.Lock{}}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		d.execute(strings.Fields(lines.Text()))
	}
	d.print("closed", client.Close())
}

// driver has the calls and locks of one client, each by a word of the test.
type driver struct {
	client  *holdfast.Client
	mu      sync.Mutex
	cancels map[string]context.CancelFunc
	locks   map[string]*holdfast.Lock
}

// execute executes "lock CALL NAME OPTION…", "try CALL NAME OPTION…", "all CALL NAME…", "cancel CALL", "unlock CALL",
// "look NAME", "watch NAME" or "pass NAME CALL".
func (d *driver) execute(words []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := words[1]
	switch words[0] {
	case "lock", "try", "all":
		ctx, cancel := context.WithCancel(context.Background())
		d.cancels[call] = cancel
		go d.acquire(ctx, words)
	case "cancel":
		d.cancels[call]()
	case "unlock":
		go func(l *holdfast.Lock) { d.print("released "+call, l.Unlock(context.Background())) }(d.locks[call])
	case "look":
		info, err := d.client.Inspect(context.Background(), call)
		d.print(fmt.Sprintf("seen %s %d %d", call, info.HolderCount, info.WaiterCount), err)
	case "watch":
		go func() {
			for info, err := range d.client.Watch(context.Background(), call) {
				var notes string
				for _, p := range info.Holders {
					notes += " " + p.Note
				}
				d.print(fmt.Sprintf("change %s %d%s", call, info.HolderCount, notes), err)
			}
		}()
	case "pass":
		ok, err := d.client.Pass(context.Background(), call, d.locks[words[2]].Fence())
		d.print(fmt.Sprintf("passes %s %v", call, ok), err)
	}
}

func (d *driver) acquire(ctx context.Context, words []string) {
	call, name := words[1], words[2]
	var options []holdfast.Option
	for _, word := range words[3:] {
		kind, value, _ := strings.Cut(word, "=")
		switch kind {
		case "shared":
			options = append(options, holdfast.Shared())
		case "semaphore":
			var limit, permits int
			_, _ = fmt.Sscanf(value, "%d/%d", &permits, &limit)
			options = append(options, holdfast.Semaphore(limit, permits))
		case "timeout":
			seconds, _ := strconv.ParseFloat(value, 64)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
			defer cancel()
		case "note":
			options = append(options, holdfast.Note(value))
		case "reentrant":
			options = append(options, holdfast.Reentrant(value))
		}
	}
	var l *holdfast.Lock
	var err error
	switch words[0] {
	case "lock":
		l, err = d.client.Lock(ctx, name, options...)
	case "try":
		l, err = d.client.TryLock(ctx, name, options...)
	case "all":
		l, err = d.client.LockAll(ctx, words[2:])
	}
	if err != nil {
		d.print("refused "+call, err)
		return
	}
	d.mu.Lock()
	d.locks[call] = l
	d.mu.Unlock()
	d.print(fmt.Sprintf("granted %s %d", call, l.Fence()), nil)
	<-l.Context().Done()
	if lost := (*holdfast.LostError)(nil); errors.As(context.Cause(l.Context()), &lost) {
		until := "now"
		if time.Until(lost.Until) > 0 {
			until = "later"
		}
		event := fmt.Sprintf("lost %s %s %s", call, until, lost.Reason)
		if lost.By != "" {
			event += " by " + lost.By + ": " + lost.Text
		}
		d.print(event, nil)
	}
}

// print prints an event; an error is told by its kind.
func (d *driver) print(event string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		event += " cancelled"
	case errors.Is(err, holdfast.ErrNotGranted), errors.Is(err, context.DeadlineExceeded):
		event += " not-granted"
	case errors.As(err, new(*holdfast.LostError)):
		event += " lost"
	case errors.As(err, new(*holdfast.RefusedError)):
		event += " refused " + err.Error()
	default:
		event += " error " + err.Error()
	}
	fmt.Println(event)
}
