//go:build !linux

package disks

import "errors"

var errNotLinux = errors.New("no disks to cut the power of: they need Linux")

// Disks do not exist here.
type Disks struct{}

// Open makes no disks here.
func Open(string, []string) (*Disks, error) { return nil, errNotLinux }

// Dir is nowhere.
func (d *Disks) Dir(string) string { return "" }

// Cut does nothing here.
func (d *Disks) Cut(string) error { return errNotLinux }

// Restore does nothing here.
func (d *Disks) Restore(string) error { return errNotLinux }

// Close does nothing here.
func (d *Disks) Close() error { return nil }
