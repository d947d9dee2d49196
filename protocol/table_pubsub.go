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
		{
			Name: "subscribe", Group: GroupPubSub, Since: "2.0.0", Arity: -2,
			Summary:    "Listen for messages to channels",
			Complexity: "O(N), N being the number of channels",
			Route:      Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{text("channel").many()},
		},
		{
			Name: "unsubscribe", Group: GroupPubSub, Since: "2.0.0", Arity: -1,
			Summary:    "Stop listening for messages to channels",
			Complexity: "O(N), N being the number of channels",
			Route:      Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{text("channel").opt().many()},
		},
		{
			Name: "psubscribe", Group: GroupPubSub, Since: "2.0.0", Arity: -2,
			Summary:    "Listen for messages to channels that match patterns",
			Complexity: "O(N), N being the number of patterns",
			Route:      Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{block("pattern", pattern("pattern")).many()},
		},
		{
			Name: "punsubscribe", Group: GroupPubSub, Since: "2.0.0", Arity: -1,
			Summary:    "Stop listening for messages to channels that match patterns",
			Complexity: "O(N), N being the number of patterns",
			Route:      Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{pattern("pattern").opt().many()},
		},
		{
			Name: "ssubscribe", Group: GroupPubSub, Since: "7.0.0", Arity: -2,
			Summary:    "Listen for messages to shard channels",
			Complexity: "O(N), N being the number of shard channels",
			Route:      Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			KeySpecs: []KeySpec{keysFrom(1, 1, KeyNotKey)},
			Args:     []Arg{text("shardchannel").many()},
		},
		{
			Name: "sunsubscribe", Group: GroupPubSub, Since: "7.0.0", Arity: -1,
			Summary:    "Stop listening for messages to shard channels",
			Complexity: "O(N), N being the number of shard channels",
			Route:      Local, Flags: FlagPubSub | FlagNoScript | FlagLoading | FlagStale,
			KeySpecs: []KeySpec{keysFrom(1, 1, KeyNotKey)},
			Args:     []Arg{text("shardchannel").opt().many()},
		},
		pubsubContainer(),
	}
}

func pubsubContainer() Command {
	return Command{
		Name: "pubsub", Group: GroupPubSub, Since: "2.8.0", Arity: -2,
		Summary:    "A container for commands about subscriptions",
		Complexity: "Depends on the subcommand",
		Route:      Local,
		Subcommands: []Command{
			{
				Name: "pubsub|channels", Group: GroupPubSub, Since: "2.8.0", Arity: -2,
				Summary:    "List the channels with subscribers on this node",
				Complexity: "O(N), N being the number of channels",
				Route:      Local, Flags: FlagPubSub | FlagLoading | FlagStale,
				Args: []Arg{pattern("pattern").opt()},
			},
			{
				Name: "pubsub|help", Group: GroupPubSub, Since: "6.2.0", Arity: 2,
				Summary:    "Print this help",
				Complexity: "O(1)",
				Route:      Local, Flags: FlagLoading | FlagStale,
			},
			{
				Name: "pubsub|numpat", Group: GroupPubSub, Since: "2.8.0", Arity: 2,
				Summary:    "Count the patterns with subscribers on this node",
				Complexity: "O(1)",
				Route:      Local, Flags: FlagPubSub | FlagLoading | FlagStale,
			},
			{
				Name: "pubsub|numsub", Group: GroupPubSub, Since: "2.8.0", Arity: -2,
				Summary:    "Count the subscribers of channels on this node",
				Complexity: "O(N), N being the number of channels",
				Route:      Local, Flags: FlagPubSub | FlagLoading | FlagStale,
				Args: []Arg{text("channel").opt().many()},
			},
			{
				Name: "pubsub|shardchannels", Group: GroupPubSub, Since: "7.0.0", Arity: -2,
				Summary:    "List the shard channels with subscribers on this node",
				Complexity: "O(N), N being the number of shard channels",
				Route:      Local, Flags: FlagPubSub | FlagLoading | FlagStale,
				Args: []Arg{pattern("pattern").opt()},
			},
			{
				Name: "pubsub|shardnumsub", Group: GroupPubSub, Since: "7.0.0", Arity: -2,
				Summary:    "Count the subscribers of shard channels on this node",
				Complexity: "O(N), N being the number of shard channels",
				Route:      Local, Flags: FlagPubSub | FlagLoading | FlagStale,
				Args: []Arg{text("shardchannel").opt().many()},
			},
		},
	}
}
