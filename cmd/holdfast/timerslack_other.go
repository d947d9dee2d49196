//go:build !linux

package main

// setTimerSlack does nothing here.
func setTimerSlack() {}
