//go:build !linux

package network

import "errors"

// errNotLinux is why there is no kernel net here.
var errNotLinux = errors.New("network namespaces exist on Linux only: use --net proxies")

// CanUseKernel reports why a kernel net is not possible.
func CanUseKernel() error { return errNotLinux }

// Reenter does nothing here: there are no namespaces to enter.
func Reenter() (entered bool, code int, err error) { return false, 0, nil }

// NewKernel builds no net here.
func NewKernel(int) (Network, error) { return nil, errNotLinux }

// Inside is false here.
func Inside() bool { return false }
