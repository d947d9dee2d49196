package vfs_test

import (
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server/store/internal/memdisk"
	"github.com/holdfast/holdfast/server/store/internal/vfs"
)

// newPatient returns a Patient on a disk with one file.
func newPatient(t *testing.T) (*vfs.Patient, *memdisk.Disk) {
	disk := memdisk.New(1)
	files := disk.Boot()
	f, err := files.Open("file", os.O_CREATE|os.O_RDWR)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return vfs.NewPatient(files, "file", slog.New(slog.DiscardHandler)), disk
}

// exhaust opens files while no descriptor is free, until the reserve is used up, too.
func exhaust(p *vfs.Patient, disk *memdisk.Disk) (opened int) {
	disk.Limit(disk.Opened())
	for kept := disk.Opened(); opened < kept; opened++ {
		if _, err := p.Open("file", os.O_RDONLY); err != nil {
			break
		}
	}
	return opened
}

func TestReserveIsKeptAgainAfterAShortage(t *testing.T) {
	p, disk := newPatient(t)
	reserve := disk.Opened()
	require.Positive(t, reserve)
	require.Equal(t, reserve, exhaust(p, disk))
	_, err := p.Open("file", os.O_RDONLY)
	require.ErrorIs(t, err, syscall.EMFILE)
	require.Equal(t, reserve, disk.Opened())

	disk.Limit(0)
	_, err = p.Open("file", os.O_RDONLY)
	require.NoError(t, err)
	require.Equal(t, 2*reserve+1, disk.Opened())
	disk.Limit(disk.Opened())
	for range reserve {
		_, err = p.Open("file", os.O_RDONLY)
		require.NoError(t, err)
	}
}

func TestStopEndsTheWaitForADescriptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, disk := newPatient(t)
		defer disk.Limit(0)
		p.Start()
		exhaust(p, disk)
		returned := make(chan error, 1)
		go func() {
			_, err := p.Open("file", os.O_RDONLY)
			returned <- err
		}()
		time.Sleep(time.Minute)
		require.Empty(t, returned)
		p.Stop()
		synctest.Wait()
		require.Len(t, returned, 1)
		require.ErrorIs(t, <-returned, syscall.EMFILE)
	})
}
