package protocol

// connectionCommands are the rows about the connection that sends them.
func connectionCommands() []Command {
	return []Command{{
		Name: "auth", Since: "1.0.0", Arity: -2,
		Summary: "Authenticate the connection", Complexity: "O(1)",
		Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagNoAuth | FlagAllowBusy,
		Args: []Arg{text("username").from("6.0.0").opt(), text("password")},
	}, {
		Name: "client", Since: "2.4.0", Arity: -2, Route: Local,
		Summary: "A container for commands about connections", Complexity: "Depends on the subcommand",
		Subcommands: []Command{{
			Name: "client|caching", Since: "6.0.0", Arity: 3, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Say whether the keys of the next command are tracked", Complexity: "O(1)",
			Args: []Arg{oneOf("mode", token("YES"), token("NO"))},
		}, {
			Name: "client|getredir", Since: "6.0.0", Arity: 2, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Return the connection that gets the connection's messages of tracking", Complexity: "O(1)",
		}, {
			Name: "client|tracking", Since: "6.0.0", Arity: -3, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary:    "Tell the connection when keys change that are in its client's cache",
			Complexity: "O(1), and O(N) to end it, N being the number of prefixes",
			Args: []Arg{
				oneOf("status", token("ON"), token("OFF")), integer("client-id").after("REDIRECT").opt(),
				{Name: "prefix", Type: ArgString, Token: "PREFIX", Multiple: true, MultipleToken: true, Optional: true},
				token("BCAST").opt(), token("OPTIN").opt(), token("OPTOUT").opt(), token("NOLOOP").opt(),
			},
		}, {
			Name: "client|trackinginfo", Since: "6.2.0", Arity: 2,
			Summary: "Return what the connection tracks", Complexity: "O(1)",
			Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
		}, {
			Name: "client|getname", Since: "2.6.9", Arity: 2, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Return the name of the connection", Complexity: "O(1)",
		}, helpRow("client", "5.0.0"), {
			Name: "client|id", Since: "5.0.0", Arity: 2, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Return the ID of the connection", Complexity: "O(1)",
		}, {
			Name: "client|info", Since: "6.2.0", Arity: 2, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Return information about the connection", Complexity: "O(1)",
			Tips: []string{"nondeterministic_output"},
		}, {
			Name: "client|kill", Since: "2.4.0", Arity: -3,
			Summary:    "Close connections of this node, or the one with an ID, of any node",
			Complexity: "O(N), N being the number of connections",
			Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{
				oneOf("filter", text("ip:port"),
					oneOf("new-format",
						integer("client-id").after("ID").from("2.8.12"),
						oneOf("type", token("NORMAL"), token("MASTER").from("3.2.0"), token("SLAVE"),
							token("REPLICA").from("5.0.0"), token("PUBSUB")).after("TYPE").from("2.8.12"),
						text("username").after("USER"), text("addr").after("ADDR"), text("laddr").after("LADDR").from("6.2.0"),
						oneOf("skipme", token("YES"), token("NO")).after("SKIPME")).many()),
			},
		}, {
			Name: "client|unblock", Since: "5.0.0", Arity: -3,
			Summary:    "End the wait of a connection of any node",
			Complexity: "O(log N), N being the number of connections",
			Route:      Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{integer("client-id"), oneOf("timeout_error", token("TIMEOUT"), token("ERROR")).opt()},
		}, {
			Name: "client|list", Since: "2.4.0", Arity: -2,
			Summary: "List the connections of this node", Complexity: "O(N), N being the number of connections",
			Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
			Tips: []string{"nondeterministic_output"},
			Args: []Arg{
				oneOf("filter",
					oneOf("type", token("NORMAL"), token("MASTER"), token("REPLICA"), token("PUBSUB")).after("TYPE").from("5.0.0"),
					block("id", integer("client-id").many()).after("ID").from("6.2.0")).opt(),
			},
		}, {
			Name: "client|no-evict", Since: "7.0.0", Arity: 3,
			Summary: "Exempt the connection from eviction, or end the exemption", Complexity: "O(1)",
			Route: Local, Flags: FlagAdmin | FlagNoScript | FlagLoading | FlagStale,
			Args: []Arg{oneOf("enabled", token("ON"), token("OFF"))},
		}, {
			Name: "client|no-touch", Since: "7.2.0", Arity: 3, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Accepted for clients that send it; access times are not kept", Complexity: "O(1)",
			Args: []Arg{oneOf("enabled", token("ON"), token("OFF"))},
		}, {
			Name: "client|reply", Since: "3.2.0", Arity: 3, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Say whether the connection wants replies", Complexity: "O(1)",
			Args: []Arg{oneOf("on_off_skip", token("ON"), token("OFF"), token("SKIP"))},
		}, {
			Name: "client|setinfo", Since: "7.2.0", Arity: 4, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Set the name or the version of the connection's client library", Complexity: "O(1)",
			Args: []Arg{oneOf("attr", text("libname").after("LIB-NAME"), text("libver").after("LIB-VER"))},
		}, {
			Name: "client|setname", Since: "2.6.9", Arity: 3, Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale,
			Summary: "Set the name of the connection", Complexity: "O(1)",
			Args: []Arg{text("connection-name")},
		}},
	}, {
		Name: "echo", Since: "1.0.0", Arity: 2, Route: Local, Flags: FlagLoading | FlagStale | FlagFast,
		Summary: "Return the message", Complexity: "O(1)",
		Args: []Arg{text("message")},
	}, {
		Name: "hello", Since: "6.0.0", Arity: -1,
		Summary: "Choose the protocol version and return what the server is", Complexity: "O(1)",
		Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagNoAuth | FlagAllowBusy,
		Args: []Arg{
			block("arguments", integer("protover"),
				block("username_password", text("username"), text("password")).after("AUTH").opt(),
				text("clientname").after("SETNAME").opt()).opt(),
		},
	}, {
		Name: "ping", Since: "1.0.0", Arity: -1, Route: Local, Flags: FlagFast,
		Summary: "Answer PONG, or the message", Complexity: "O(1)",
		Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Args: []Arg{text("message").opt()},
	}, {
		Name: "quit", Since: "1.0.0", Arity: -1,
		Summary: "Close the connection", Complexity: "O(1)",
		Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagNoAuth | FlagAllowBusy,
	}, {
		Name: "reset", Since: "6.2.0", Arity: 1,
		Summary: "Put the connection into the state it had when it was opened", Complexity: "O(1)",
		Route: Local, Flags: FlagNoScript | FlagLoading | FlagStale | FlagFast | FlagNoAuth | FlagAllowBusy,
	}, {
		Name: "select", Since: "1.0.0", Arity: 2, Route: Local, Flags: FlagLoading | FlagStale | FlagFast,
		Summary: "Choose the database of the connection", Complexity: "O(1)",
		Args: []Arg{integer("index")},
	}}
}
