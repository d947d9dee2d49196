package proc

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	before, err := Self()
	require.NoError(t, err)
	ballast := make([]byte, 32<<20)
	for range 3 {
		for i := range ballast {
			ballast[i]++
		}
	}
	u, err := Read(os.Getpid(), os.Getpid())
	require.NoError(t, err)
	require.Len(t, u.RSSBytes, 2)
	require.Greater(t, u.RSSBytes[0], int64(len(ballast)))
	require.Greater(t, u.CPUSeconds, 2*before)
	require.Len(t, u.Each, 2)
	require.InDelta(t, u.CPUSeconds, u.Each[0].CPUSeconds+u.Each[1].CPUSeconds, 1e-9)
	written := u.Each[1].WrittenBytes
	require.NoError(t, os.WriteFile(t.TempDir()+"/file", ballast, 0o600))
	after, err := Read(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after.Each[0].WrittenBytes-written, int64(len(ballast)))
	require.Greater(t, after.Each[0].ReadBytes, u.Each[0].ReadBytes, "the files of /proc are read")
	runtime.KeepAlive(ballast)
}

func TestReadOfNobody(t *testing.T) {
	_, err := Read(1 << 30)
	require.Error(t, err)
}
