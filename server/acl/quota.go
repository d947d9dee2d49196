package acl

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/protocol"
)

// Quota has a user's limits. 0 means no limit.
type Quota struct {
	// Quota is enforced by the state machine, for the whole cluster.
	protocol.Quota
	// Connections and CommandsPerSecond are enforced by each node for itself.
	Connections, CommandsPerSecond uint64
}

// InLog reports whether the state machine enforces a part of the quota.
func (q *Quota) InLog() bool { return q.Keys != 0 || q.Bytes != 0 || q.Waiters != 0 }

// Quota returns the user's limits, or nil if there are none.
func (u *User) Quota() *Quota { return u.quota }

// maxCommandsPerSecond is the largest commands-per-second quota.
const maxCommandsPerSecond = 1_000_000_000

// Limit sets the quotas in a file of lines "user <name> <limit> <number>…". Empty lines and those that begin with # are
// notes. A user may have only one line, and must exist.
func (us *Users) Limit(file, text string) error {
	var wrong []error
	seen := make(map[string]bool)
	for i, line := range lines(text) {
		q, err := parseQuota(strings.Fields(line))
		if err == nil {
			err = us.limit(q, seen)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s:%d: %w", file, i, err))
		}
	}
	return joinFirst(wrong)
}

func (us *Users) limit(q *Quota, seen map[string]bool) error {
	u := us.byName[q.User]
	switch {
	case u == nil:
		return fmt.Errorf("there is no user '%s'", q.User)
	case seen[q.User]:
		return fmt.Errorf("a second line for user '%s'", q.User)
	case u.Open() && q.Connections != 0:
		return fmt.Errorf("user '%s' needs no password, so any connection is this user's: --max-clients limits those", q.User)
	}
	seen[q.User], u.quota = true, q
	return nil
}

func parseQuota(words []string) (*Quota, error) {
	if words[0] != "user" || len(words) < 4 || len(words)%2 != 0 {
		return nil, errors.New("should be: user <name> <limit> <number> …")
	}
	q := &Quota{Quota: protocol.Quota{User: words[1]}}
	for i := 2; i < len(words); i += 2 {
		var to *uint64
		limit := uint64(math.MaxInt64)
		switch words[i] {
		case "max-keys":
			to = &q.Keys
		case "max-bytes":
			to = &q.Bytes
		case "max-waiters":
			to = &q.Waiters
		case "max-connections":
			to = &q.Connections
		case "max-commands-per-second":
			to, limit = &q.CommandsPerSecond, maxCommandsPerSecond
		default:
			return nil,
				fmt.Errorf("there is no limit '%s': max-keys, max-bytes, max-waiters, max-connections, max-commands-per-second",
					words[i])
		}
		n, err := parseAmount(words[i+1], to == &q.Bytes)
		switch {
		case err != nil || n == 0 || n > limit:
			return nil, fmt.Errorf("%s: '%s' is not a number from 1 to %d (max-bytes: or as 64mb)", words[i], words[i+1], limit)
		case *to != 0:
			return nil, fmt.Errorf("%s stands twice", words[i])
		}
		*to = n
	}
	return q, nil
}

// parseAmount parses a number. If unit is set, it may have a unit of bytes, as in Redis's configuration.
func parseAmount(word string, unit bool) (uint64, error) {
	times := uint64(1)
	if unit {
		word = strings.ToLower(word)
		for _, u := range []struct {
			suffix string
			times  uint64
		}{{"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30}} {
			if digits, ok := strings.CutSuffix(word, u.suffix); ok {
				word, times = digits, u.times
				break
			}
		}
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err == nil && n > math.MaxInt64/times {
		err = strconv.ErrRange
	}
	return n * times, err
}
