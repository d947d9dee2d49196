package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A node runs with the slack from its first thread on, as the process that was started.
func TestServeSetsTimerSlack(t *testing.T) {
	n := startNodes(t, build(t), 1)[0]
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", n.PID()))
	require.NoError(t, err)
	seen := 0
	for _, thread := range threads {
		slack, err := os.ReadFile(fmt.Sprintf("/proc/%s/timerslack_ns", thread.Name()))
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("whose process it is may not see a thread's slack without CAP_SYS_NICE")
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread has ended, or the kernel does not tell
		}
		require.NoError(t, err)
		nanoseconds, err := strconv.Atoi(string(bytes.TrimSpace(slack)))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Duration(nanoseconds), timerSlack)
		seen++
	}
	require.NotZero(t, seen)
}
