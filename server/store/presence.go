package store

import (
	"fmt"
	"math"
	"time"
)

// watchEvery is the interval at which an open folder is checked.
const watchEvery = time.Second

// watch calls gone at intervals until the store is closed, and reports its error as a fault. Without it, writes to the
// open files of a deleted folder would succeed, and be lost with the process. It also has the disk's space looked up.
func (g *guard) watch(gone func() error) {
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() {
		if g.closing.Load() {
			return
		}
		if err := gone(); err != nil {
			g.fault(opLook, err)
			return
		}
		g.space()
		timer.Reset(watchEvery)
	})
	timer.Reset(watchEvery)
}

// gone returns an error if a part of the open folder was removed or replaced. Errors of the disk do not count.
func (f *folder) gone() error {
	path, err := f.log.Gone() // the files of the log change all the time
	for _, name := range []string{identityName, stableName, snapshotName} {
		if path != "" || err != nil {
			break
		}
		there := false
		if there, err = f.FS.Exists(f.path(name)); !there && err == nil {
			path = f.path(name)
		}
	}
	if path == "" {
		return nil
	}
	return fmt.Errorf("the data folder %s is not there any more, or not whole: %s was removed, replaced or unmounted, "+
		"and what this node writes would be lost", f.config.DataDir, path)
}
