// Command holdfast is the operators' side of Holdfast: it turns flags and
// environment into a server.Config, runs a node (serve), runs three of them for
// a try (demo), and prints the documents that derive from tables (docs).
//
// It promises that a wrong flag, a port in use, or a data folder that must not
// be used gives one clear line and a non-zero exit: 2 for bad usage, 1 for the
// rest. A flag that a command takes has its effect there, else the command refuses
// it. On Linux serve executes itself once, see timerslack_linux.go. Nothing but
// package server has behaviour worth reading; start at main.go, then flags.go,
// where one table makes flags, environment and docs.
package main
