package protocol

// The errors of the request reader, in the words of Redis. Each is the last reply of a connection.
var (
	errMultibulkLength          = protocolError("invalid multibulk length")
	errMultibulkUnauthenticated = protocolError("unauthenticated multibulk length")
	errMultibulkLine            = protocolError("too big mbulk count string")
	errBulkLength               = protocolError("invalid bulk length")
	errBulkUnauthenticated      = protocolError("unauthenticated bulk length")
	errBulkLine                 = protocolError("too big bulk count string")
	errInlineTooBig             = protocolError("too big inline request")
	errUnbalancedQuotes         = protocolError("unbalanced quotes in request")

	// ErrQueryTooBig answers a command above [Limits.MaxQueryBytes], where Redis
	// closes the connection without a word.
	ErrQueryTooBig = protocolError("too big request")
)

func protocolError(text string) *Error { return NewError("Protocol error: " + text) }

// errExpectedDollar answers a word that does not begin with '$'.
func errExpectedDollar(got byte) *Error {
	return protocolError("expected '$', got '" + quote([]byte{got}) + "'")
}
