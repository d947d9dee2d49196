// Package sessions renews the sessions of locks that live with connections of this node, and sends the news of a loss
// to the connection that it concerns.
//
// It promises:
//   - a session lives for as long as its connection is open and this node reaches the majority: the [Renewer]
//     renews all of this node's sessions by one request, three times in the shortest lease;
//   - a session ends when its connection closes, sooner or later, as long as this node lives: also if there
//     is no leader for a while, and if the session was opened by a request whose outcome was not known;
//   - a client does not believe in a session that others may take for ended: where no renewal was acknowledged
//     for seven eighths of the lease, the connection is closed. The session is not ended then, so that the
//     client may attach the session to a connection of another node;
//   - a client gets the news of a loss as soon as the clients of the leader get the replies of the same entry: while
//     there are clients, this node subscribes to commit notifications;
//   - the connection of a client that vanished without closing it ends soon after the shortest lease of its sessions;
//   - where signs of life are demanded, a client that sends nothing for the shortest lease of its sessions loses its
//     connection then, and each session no sooner than its lease after the last bytes;
//   - a node that ends in good order ends no session;
//   - a session costs an entry in a tree, no goroutine and no timer; a demand one look in a lease. Without sessions nothing is proposed.
//
// The package does not know what a session is for, nor what a connection is.
//
// # The way of a session
//
//	Enter: a connection may get sessions ─► the command goes to the cluster
//	                     ├─► the reply came:      Expect, until this node's log has the command
//	                     └─► this node's log:     Events; for a connection that is not there: its sessions end
//	Run has the sessions renewed, or cuts connections
//	Demand: the client is looked at in time, and its connection cut if it was silent
//	the connection closes:  Leave ─► Run has the cluster end the sessions of the connection
//
// Goroutines: Run, and one that cuts connections while a renewal is under way. Under Renewer.mu no function of the
// cluster but SubscribeCommits is called and nothing is waited for; messages are posted to clients. So Events may be
// called by the state machine.
package sessions
