// Package raftlog lets hashicorp's libraries log through log/slog, so that a
// node has one log in one format.
//
// It promises: levels are mapped one to one (trace is 4 below debug), key and value
// pairs become attributes, a sub-logger's name becomes the attribute "logger", and
// what the handler would not print costs nothing.
//
// It does not filter or rate-limit. Start reading at [New].
package raftlog
