//go:build !linux

package network

import "errors"

// errNotLinux is the reason why there is no kernel network.
var errNotLinux = errors.New("network namespaces exist on Linux only: use --net proxies")

// CanUseKernel returns why a kernel network is impossible.
func CanUseKernel() error { return errNotLinux }

// Reenter does nothing: there are no namespaces.
func Reenter() (entered bool, code int, err error) { return false, 0, nil }

// NewKernel fails: there are no namespaces.
func NewKernel(int) (Network, error) { return nil, errNotLinux }

// Inside is always false.
func Inside() bool { return false }
