package replica

import (
	"errors"

	"github.com/holdfast/holdfast/protocol"
)

// errReroute never leaves the package: whoever gets it asks again where its batch belongs.
var errReroute = errors.New("route again")

// What a command is answered that gets no reply of its own, beside protocol's rows.
var (
	errInternal      = &protocol.Error{Prefix: "ERR", Text: "internal error, see this node's log"}
	errReplyTooLarge = &protocol.Error{Prefix: "ERR", Text: "the reply is too large to be forwarded"}
	errTooLarge      = &protocol.Error{Prefix: "ERR", Text: "the commands of this pipeline are too large to be applied together"}
)
