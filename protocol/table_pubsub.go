package protocol

// pubsubCommands are the rows of messages to subscribers. A message goes through the log, so subscribers
// of all nodes hear of it in the same order.
func pubsubCommands() []Command {
	return []Command{
		{
			Name: "publish", Group: GroupPubSub, Since: "2.0.0", Arity: 3,
			Summary:    "Post a message to a channel",
			Complexity: "O(N+M), N being the number of subscribers of the channel and M the number of patterns, on each node",
			Route:      Write, Flags: FlagPubSub | FlagLoading | FlagStale | FlagFast,
			Args: []Arg{text("channel"), text("message")},
		},
		{
			Name: "spublish", Group: GroupPubSub, Since: "7.0.0", Arity: 3,
			Summary:    "Post a message to a shard channel",
			Complexity: "O(N), N being the number of subscribers of the shard channel, on each node",
			Route:      Write, Flags: FlagPubSub | FlagLoading | FlagStale | FlagFast,
			KeySpecs: []KeySpec{oneKey(1, KeyNotKey)},
			Args:     []Arg{text("shardchannel"), text("message")},
		},
	}
}
