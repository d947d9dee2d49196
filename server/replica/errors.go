package replica

import (
	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/forward"
)

// errReroute never reaches a client: the batch is run again where it belongs.
var errReroute = forward.ErrElsewhere

// Answers to commands without a reply, beside protocol's rows.
var (
	errInternal = &protocol.Error{Prefix: "ERR", Text: "internal error, see this node's log"}
	errTooLarge = &protocol.Error{
		Prefix: "ERR",
		Text:   "the commands of this pipeline are too large to be applied together",
	}
)
