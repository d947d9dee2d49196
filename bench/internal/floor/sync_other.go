//go:build !linux

package floor

import "os"

func fdatasync(f *os.File) error { return f.Sync() }
