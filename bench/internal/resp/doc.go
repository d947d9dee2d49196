// Package resp is a client's connection with nothing between the caller and the
// wire: it costs the generator's machine a tenth of what a client library does, and
// it can pipeline. It promises one thing beside that: an error that the server sent
// comes back as a [*ReplyError], so that it can be told from a broken connection.
package resp
