package protocol

import (
	"bufio"
	"io"
	"strconv"
)

// Conn is a client's end of a connection that speaks RESP. The caller handles deadlines and retries. One goroutine may
// send while another receives.
type Conn struct {
	w   io.Writer
	r   *bufio.Reader
	out []byte
}

// NewConn returns a client's end of rw.
func NewConn(rw io.ReadWriter) *Conn { return &Conn{w: rw, r: bufio.NewReader(rw)} }

// Append adds a command to the next [Conn.Flush].
func (c *Conn) Append(words ...string) { c.out = AppendCommand(c.out, words...) }

// Flush sends the appended commands in one write, and returns the number of bytes that were sent.
func (c *Conn) Flush() (n int, err error) {
	n, err = c.w.Write(c.out)
	c.out = c.out[:0]
	return n, err
}

// Receive reads one reply.
func (c *Conn) Receive() (Value, error) { return ReadValue(c.r) }

// Do sends one command and reads its reply.
func (c *Conn) Do(words ...string) (Value, error) {
	c.Append(words...)
	if _, err := c.Flush(); err != nil {
		return Value{}, err
	}
	return c.Receive()
}

// AppendCommand appends a command as clients send it: an array of bulk strings.
func AppendCommand(dst []byte, words ...string) []byte {
	dst = append(dst, '*')
	dst = strconv.AppendInt(dst, int64(len(words)), 10)
	for _, w := range words {
		dst = append(dst, "\r\n$"...)
		dst = strconv.AppendInt(dst, int64(len(w)), 10)
		dst = append(dst, '\r', '\n')
		dst = append(dst, w...)
	}
	return append(dst, '\r', '\n')
}
