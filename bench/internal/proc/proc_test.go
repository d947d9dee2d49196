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
	runtime.KeepAlive(ballast)
}

func TestReadOfNobody(t *testing.T) {
	_, err := Read(1 << 30)
	require.Error(t, err)
}
