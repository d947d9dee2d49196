// Package hclogger lets hashicorp's libraries log through log/slog, so that a
// node has a single log in a single format.
//
// The package promises: levels are mapped one to one (trace is 4 below debug), but for errors that are
// not this node's (severity.go); key and value pairs become attributes, a sub-logger's name
// becomes the attribute "logger"; what the handler would not print costs nothing; and a
// complaint about the same node is not repeated for half a minute (limit.go).
//
// Start reading at [New].
package hclogger
