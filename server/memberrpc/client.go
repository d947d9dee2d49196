package memberrpc

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// Dialer makes connections of peer.KindMember.
type Dialer interface {
	// DialContext connects to the node of that ID, wherever it is.
	DialContext(ctx context.Context, id string) (net.Conn, error)
	// DialAddr connects to the node at an address, whatever its ID.
	DialAddr(ctx context.Context, addr string) (net.Conn, error)
}

// Client asks other nodes.
type Client struct{ dialer Dialer }

// NewClient makes a client.
func NewClient(d Dialer) *Client { return &Client{d} }

// Call asks the node of that ID, and waits for the reply until ctx ends.
func Call[R any](ctx context.Context, c *Client, id, op string, question any) (answer R, err error) {
	conn, err := c.dialer.DialContext(ctx, id)
	if err != nil {
		return answer, err
	}
	return answer, exchange(ctx, conn, op, question, &answer)
}

// CallAt asks the node at an address, and returns the ID of that node, which it has proved.
func CallAt[R any](ctx context.Context, c *Client, addr, op string, question any) (answer R, id string, err error) {
	conn, err := c.dialer.DialAddr(ctx, addr)
	if err != nil {
		return answer, "", err
	}
	if peer, ok := conn.(interface{ PeerName() string }); ok {
		id = peer.PeerName()
	}
	return answer, id, exchange(ctx, conn, op, question, &answer)
}

// exchange sends a question over conn, takes the answer, and closes conn.
func exchange(ctx context.Context, conn net.Conn, op string, question, answer any) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	return exchangeOver(ctx, conn, bufio.NewReader(conn), op, question, answer)
}

// exchangeOver is exchange, and leaves conn open. r reads what comes over conn, which is closed when ctx ends.
func exchangeOver(ctx context.Context, conn net.Conn, r *bufio.Reader, op string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("ask %s: %w", op, err)
	}
	var said reply
	_ = conn.SetWriteDeadline(time.Now().Add(messageWithin))
	err = write(conn, request{Op: op, Body: body})
	if err == nil {
		err = read(r, &said)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("ask %s: %w", op, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("ask %s: %w", op, err)
	case said.Error != "":
		return &RemoteError{Text: line(said.Error), Unknown: said.Unknown}
	}
	if err := json.Unmarshal(said.Body, answer); err != nil {
		return fmt.Errorf("ask %s: malformed reply: %w", op, err)
	}
	return nil
}
