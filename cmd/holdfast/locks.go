package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/holder"
)

const locksUsage = `usage: holdfast locks [flags] [PATTERN]
       holdfast locks break [flags] NAME --reason TEXT

Lists who holds the locks whose names match PATTERN, and who waits for them, in order; 'break' takes a lock away.
`

// locksOwn are the flags of `holdfast locks`, and of its 'break'.
type locksOwn struct {
	clientFlags
	fence  uint64
	owner  string
	reason string
}

func (o *locksOwn) rows() []option {
	return append([]option{
		{heading: "break"},
		{name: "reason", value: &o.reason, help: "why, for the holder and the log"},
		{name: "fence", value: &o.fence, help: "break only the hold with this fence; 0: all holds"},
		{name: "owner", value: &o.owner, help: "break only this owner's hold"},
	}, o.lockRows()...)
}

const askLimit = 10 * time.Second

// locks lists or breaks locks.
func locks(ctx context.Context, args []string, stdout, _ io.Writer) error {
	o := &locksOwn{clientFlags: newClientFlags()}
	words, err := parseAnywhere(o.rows(), args, stdout, locksUsage)
	if err != nil {
		return err
	}
	breaks := len(words) > 0 && words[0] == "break"
	switch {
	case breaks && len(words) == 1:
		return usageError{errors.New("break: say which lock")}
	case breaks && o.reason == "":
		return usageError{errors.New("break: say why: --reason TEXT")}
	case !breaks && o.reason+o.owner != "", !breaks && o.fence != 0:
		return usageError{errors.New("reason, fence and owner are for 'break'")}
	case breaks && len(words) > 2:
		return unexpected(words[2])
	case !breaks && len(words) > 1:
		return unexpected(words[1])
	}
	servers, err := o.servers()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := servers.DialAny(ctx, askLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	if breaks {
		return o.breakLock(ctx, conn, words[1], stdout)
	}
	return listLocks(ctx, conn, words, stdout)
}

// parseAnywhere takes flags behind words as well: 'locks break NAME --reason TEXT'.
func parseAnywhere(rows []option, args []string, stdout io.Writer, usage string) ([]string, error) {
	var words []string
	for {
		rest, err := parseRows(rows, args, stdout, usage)
		if err != nil || len(rest) == 0 {
			return words, err
		}
		words, args = append(words, rest[0]), rest[1:]
	}
}

// parseFile is parseAnywhere for exactly one word, the name of a file; missing asks for one.
func parseFile(rows []option, args []string, stdout io.Writer, usage, missing string) (string, error) {
	words, err := parseAnywhere(rows, args, stdout, usage)
	switch {
	case err != nil:
		return "", err
	case len(words) == 0:
		return "", usageError{errors.New(missing)}
	case len(words) > 1:
		return "", unexpected(words[1])
	}
	return words[0], nil
}

func (o *locksOwn) breakLock(ctx context.Context, conn *holder.Conn, name string, stdout io.Writer) error {
	words := []string{"LOCK.BREAK", name}
	if o.owner != "" {
		words = append(words, "OWNER", o.owner)
	}
	if o.fence != 0 {
		words = append(words, "FENCE", strconv.FormatUint(o.fence, 10))
	}
	v, err := conn.Do(ctx, append(words, "REASON", o.reason)...)
	switch {
	case err != nil:
		return fmt.Errorf("break %s: %w", name, err)
	case v.Num == 0:
		return fmt.Errorf("break %s: there is no such hold", name)
	}
	fmt.Fprintf(stdout, "broke %d of %s\n", v.Num, name)
	return nil
}
