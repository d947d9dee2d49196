package store

import (
	"fmt"
	"math"
	"time"
)

// watchEvery is how often an open folder is looked for.
const watchEvery = time.Second

// watch reports a fault when the folder is not there any more, until the store is closed. Otherwise all would go on
// well: the files are open, and what is written and synced is gone with the process.
//
// An error says nothing about the folder. A disk that does not answer is for the calls to notice that need it.
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
		timer.Reset(watchEvery)
	})
	timer.Reset(watchEvery)
}

// gone returns an error if a part of the open folder is not where it was, or another is in its place.
func (f *folder) gone() error {
	path, err := f.log.Gone() // the only part that changes all the time
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
