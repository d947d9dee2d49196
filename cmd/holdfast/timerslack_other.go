//go:build !linux

package main

// setTimerSlack is for Linux.
func setTimerSlack() {}
