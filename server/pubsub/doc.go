// Package pubsub has the subscriptions of one node's clients, and takes messages to the clients.
//
// The package promises:
//   - a client hears the messages of its channels and patterns in the order of the log, each message as
//     often as Redis would send it;
//   - a subscription begins with the return of [Client.Subscribe]: of the entries that the node applies from
//     then on no message is missed, and of the entries before none is heard;
//   - after [Client.Unsubscribe] has returned nothing of that name is posted;
//   - a message that cannot be heard closes the connection of the client that misses it: a client is never
//     left with a gap;
//   - the node's log is never held up: [Hub.Events] appends to a bounded queue.
//
// A [Hub] is fed by the state machine's events, on the goroutine that applies entries. Messages are taken to
// subscribers by a goroutine that runs while there are messages. A [Client] belongs to one connection.
//
// Locks: Hub.mu guards the subscriptions, queue.mu the queue. Hub.mu may be held while taking queue.mu, never
// the reverse. Hub.listing is taken before Hub.mu.
// Subscribers are called with Hub.mu held for reading, so they must not call the hub.
package pubsub
