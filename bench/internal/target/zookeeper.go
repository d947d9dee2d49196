package target

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

// ZooKeeperMode returns the role that a ZooKeeper server reports to the command srvr, which needs no library: leader,
// follower or standalone.
func ZooKeeperMode(ctx context.Context, addr string) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(c)
	var said string
	for lines.Scan() {
		if mode, ok := strings.CutPrefix(lines.Text(), "Mode: "); ok {
			return mode, nil
		}
		said = lines.Text()
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s is not ready: %s", addr, said)
}
