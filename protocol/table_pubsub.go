package protocol

// pubsubCommands are the rows of messages to subscribers. A message goes through the log, so subscribers
// of all nodes hear of it in the same order.
func pubsubCommands() []Command {
	return []Command{
		{
			Name: "publish", Since: "2.0.0", Arity: 3, Route: Write, Flags: FlagPubSub | FlagLoading | FlagStale | FlagFast,
			Summary:    "Post a message to a channel",
			Complexity: "O(N+M), N being the number of subscribers of the channel and M the number of patterns, on each node",
			Args:       []Arg{text("channel"), text("message")},
		},
		{
			Name: "spublish", Since: "7.0.0", Arity: 3, Route: Write, Flags: FlagPubSub | FlagLoading | FlagStale | FlagFast,
			Summary:    "Post a message to a shard channel",
			Complexity: "O(N), N being the number of subscribers of the shard channel, on each node",
			KeySpecs:   []KeySpec{oneKey(1, KeyNotKey)}, Args: []Arg{text("shardchannel"), text("message")},
		},
		{
			Name: "subscribe", Since: "2.0.0", Arity: -2,
			Summary: "Listen for messages to channels", Complexity: "O(N), N being the number of channels",
			Route: Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{text("channel").many()},
		},
		{
			Name: "unsubscribe", Since: "2.0.0", Arity: -1,
			Summary: "Stop listening for messages to channels", Complexity: "O(N), N being the number of channels",
			Route: Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{text("channel").opt().many()},
		},
		{
			Name: "psubscribe", Since: "2.0.0", Arity: -2,
			Summary: "Listen for messages to channels that match patterns", Complexity: "O(N), N being the number of patterns",
			Route: Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{block("pattern", pattern("pattern")).many()},
		},
		{
			Name: "punsubscribe", Since: "2.0.0", Arity: -1,
			Summary:    "Stop listening for messages to channels that match patterns",
			Complexity: "O(N), N being the number of patterns",
			Route:      Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{pattern("pattern").opt().many()},
		},
		{
			Name: "ssubscribe", Since: "7.0.0", Arity: -2,
			Summary: "Listen for messages to shard channels", Complexity: "O(N), N being the number of shard channels",
			Route: Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			KeySpecs: []KeySpec{keysFrom(1, 1, KeyNotKey)}, Args: []Arg{text("shardchannel").many()},
		},
		{
			Name: "sunsubscribe", Since: "7.0.0", Arity: -1,
			Summary: "Stop listening for messages to shard channels", Complexity: "O(N), N being the number of shard channels",
			Route: Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			KeySpecs: []KeySpec{keysFrom(1, 1, KeyNotKey)}, Args: []Arg{text("shardchannel").opt().many()},
		},
		pubsubContainer(),
	}
}

func pubsubContainer() Command {
	return Command{
		Name: "pubsub", Since: "2.8.0", Arity: -2, Route: Local,
		Summary: "A container for commands about subscriptions", Complexity: "Depends on the subcommand",
		Subcommands: []Command{{
			Name: "pubsub|channels", Since: "2.8.0", Arity: -2, Route: Local, Flags: FlagPubSub | FlagLoading | FlagStale,
			Summary: "List the channels with subscribers", Complexity: "O(N), N being the number of channels",
			Args: []Arg{pattern("pattern").opt()},
		}, helpRow("pubsub", "6.2.0"), {
			Name: "pubsub|numpat", Since: "2.8.0", Arity: 2, Route: Local, Flags: FlagPubSub | FlagLoading | FlagStale,
			Summary: "Count the patterns with subscribers", Complexity: "O(1)",
		}, {
			Name: "pubsub|numsub", Since: "2.8.0", Arity: -2, Route: Local, Flags: FlagPubSub | FlagLoading | FlagStale,
			Summary: "Count the subscribers of channels", Complexity: "O(N), N being the number of channels",
			Args: []Arg{text("channel").opt().many()},
		}, {
			Name: "pubsub|shardchannels", Since: "7.0.0", Arity: -2,
			Summary:    "List the shard channels with subscribers",
			Complexity: "O(N), N being the number of shard channels",
			Route:      Local, Flags: FlagPubSub | FlagLoading | FlagStale,
			Args: []Arg{pattern("pattern").opt()},
		}, {
			Name: "pubsub|shardnumsub", Since: "7.0.0", Arity: -2, Route: Local, Flags: FlagPubSub | FlagLoading | FlagStale,
			Summary:    "Count the subscribers of shard channels",
			Complexity: "O(N), N being the number of shard channels",
			Args:       []Arg{text("shardchannel").opt().many()},
		}},
	}
}
