package drive

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/bench/internal/fakeredis"
	"github.com/holdfast/holdfast/bench/internal/target"
	"github.com/holdfast/holdfast/bench/internal/workload"
)

// asDriver is the environment variable that makes the test binary act as a driver.
const asDriver = "BENCH_AS_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// driver writes a program that runs this binary as a driver.
func driver(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	return script(t, "exec env "+asDriver+"=1 "+exe)
}

func script(t *testing.T, line string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "driver")
	require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\n"+line+"\n"), 0o755))
	return name
}

func env(addr, driver string) workload.Env {
	return workload.Env{
		Target: target.Target{Name: "x", Addrs: []string{addr}, Via: target.ViaSpread, Driver: driver, PIDs: func() []int {
			return []int{os.Getpid()}
		}},
		Client:  target.Options{TTL: 30 * time.Second, Timeout: 5 * time.Second},
		Measure: 50 * time.Millisecond, Connections: 2, Sizes: workload.Sizes{Keys: 10},
	}
}

func TestDriverMeasures(t *testing.T) {
	t.Parallel()
	s := fakeredis.Start(t)
	w, err := workload.Named("uncontended")
	require.NoError(t, err)
	f, err := Run(t.Context(), w, env(s.Addr, driver(t)))
	require.NoError(t, err)
	require.Positive(t, f.Steps["pair"].Count)
	require.Contains(t, f.Numbers, "server_cpu_seconds", "it was told the servers' processes")
	require.Empty(t, f.Errors)
}

func TestFailuresComeBack(t *testing.T) {
	t.Parallel()
	w, err := workload.Named("uncontended")
	require.NoError(t, err)
	_, err = Run(t.Context(), w, env("127.0.0.1:1", driver(t)))
	require.ErrorContains(t, err, "open 2 clients of x")
	_, err = Run(t.Context(), workload.Workload{Name: "none"}, env("127.0.0.1:1", driver(t)))
	require.ErrorContains(t, err, `there is no workload "none"`)
	_, err = Run(t.Context(), w, env("127.0.0.1:1", script(t, "echo out of order >&2; exit 3")))
	require.ErrorContains(t, err, "out of order")
	_, err = Run(t.Context(), w, env("127.0.0.1:1", script(t, "echo hello")))
	require.ErrorContains(t, err, "read what x's driver says")
	require.ErrorContains(t, Serve(t.Context(), strings.NewReader("hello"), new(bytes.Buffer)), "read the request")
}
