// Package push has the messages that a node sends to clients unasked: what subscribers hear, which
// cached keys have changed, what MONITOR shows.
//
// A [Message] is encoded once, whatever the number of clients that get the message. The clients' side is
// package frontend: conn.Post there takes a message for one client.
package push
