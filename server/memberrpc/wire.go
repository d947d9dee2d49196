package memberrpc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"unicode/utf8"

	"github.com/holdfast/holdfast/server/peer/wire"
)

const (
	// maxMessage bounds a request and a reply, in bytes.
	maxMessage = 64 << 10
	// maxText bounds the text of an error, in bytes.
	maxText = 1024
)

// request is asked of another node.
type request struct {
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body"`
}

// reply answers a request: Error, unless it is empty, instead of Body.
type reply struct {
	Body  json.RawMessage `json:"body,omitempty"`
	Error string          `json:"error,omitempty"`
	// Unknown: the operation is not known.
	Unknown bool `json:"unknown,omitempty"`
}

// RemoteError is what another node answered instead of a reply.
type RemoteError struct {
	Text string
	// Unknown: the node does not know the operation.
	Unknown bool
}

// Error is the text.
func (e *RemoteError) Error() string { return e.Text }

var errTooLong = errors.New("more than 64 KiB")

// write sends a request or a reply.
func write(conn net.Conn, message any) error {
	frame := make([]byte, wire.Head)
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return errTooLong
	}
	_, err = conn.Write(wire.Seal(append(frame, text...)))
	return err
}

// read reads a request or a reply.
func read(r *bufio.Reader, message any) error {
	text, err := wire.Read(r, nil, maxMessage)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, message); err != nil {
		return fmt.Errorf("malformed message: %w", err)
	}
	return nil
}

// line makes one short line of a text.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "?")
	}
	return text
}
