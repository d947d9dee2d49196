// Standin stands between suites of others and three nodes. Each connection goes to the next node
// that accepts it, so a suite that knows one address meets all nodes.
//
//	standin 127.0.0.1:6379 …	listens at addresses and passes all bytes on
//
// Under the name redis-server Standin takes the place of a server that a suite's harness starts for
// itself. Each such server is a database of the cluster that no other stand-in uses, and empty when
// the stand-in says that it is ready. HOLDFAST_NODES names the nodes, and the folder HOLDFAST_STATE
// holds a lock for each database. With HOLDFAST_DATABASES=N databases go by port modulo N instead,
// unlocked and as they are, for harnesses that start more servers than there are databases.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const databases = 16

func main() {
	nodes := strings.Split(os.Getenv("HOLDFAST_NODES"), ",")
	c := &cluster{nodes: nodes}
	var err error
	if filepath.Base(os.Args[0]) == "redis-server" {
		go endWith(os.Getppid())
		err = asServer(c, os.Args[1:])
	} else {
		err = c.listen("tcp", os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
	select {} // until a signal ends the process
}

// endWith ends this process when the harness has ended without ending its servers, as after a panic. The next
// run needs their addresses.
func endWith(parent int) {
	for os.Getppid() == parent {
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(1)
}

// cluster deals connections out to nodes by turns.
type cluster struct {
	nodes    []string
	next     atomic.Uint32
	database int // selected before the first byte of a client, unless 0
}

func (c *cluster) listen(network string, addresses []string) error {
	for _, address := range addresses {
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		go func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return
				}
				go c.serve(client)
			}
		}()
	}
	return nil
}

// serve passes bytes both ways until one side ends.
func (c *cluster) serve(client net.Conn) {
	defer client.Close()
	node, err := c.dial()
	if err != nil {
		return
	}
	defer node.Close()
	go func() {
		_, _ = io.Copy(node, client)
		// A client that ends only its sending side still gets replies.
		_ = node.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, node)
}

// dial connects to the next node that is up, with the database selected.
func (c *cluster) dial() (net.Conn, error) {
	var failed error
	for range c.nodes {
		conn, err := net.DialTimeout("tcp", c.nodes[int(c.next.Add(1))%len(c.nodes)], time.Second)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if c.database == 0 {
			return conn, nil
		}
		if err := ask(conn, "SELECT "+strconv.Itoa(c.database)); err == nil {
			return conn, nil
		} else {
			failed = errors.Join(failed, err)
		}
		conn.Close()
	}
	return nil, failed
}

// ask sends an inline command whose reply must be OK. No byte behind the reply is read.
func ask(conn net.Conn, command string) error {
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return err
	}
	reply := make([]byte, len("+OK\r\n"))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return err
	}
	if string(reply) != "+OK\r\n" {
		return fmt.Errorf("%s: reply %q", command, reply)
	}
	return nil
}

// asServer behaves as redis-server with these arguments, as far as a harness looks.
func asServer(c *cluster, args []string) error {
	port, socket, err := configured(args)
	if err != nil {
		return err
	}
	if n, _ := strconv.Atoi(os.Getenv("HOLDFAST_DATABASES")); n > 0 {
		number, _ := strconv.Atoi(port)
		c.database = number % n
	} else if err := c.take(); err != nil {
		return err
	}
	if socket != "" {
		_ = os.Remove(socket) // an earlier server's, as redis-server does
		if err := c.listen("unix", []string{socket}); err != nil {
			return err
		}
	}
	if port != "0" {
		// A harness that asks for a socket uses the socket. Its port may be taken by a connection of another
		// program, as ports are that lie in the system's range for those.
		err := c.listen("tcp", []string{"127.0.0.1:" + port})
		if err != nil && (socket == "" || !errors.Is(err, syscall.EADDRINUSE)) {
			return err
		}
	}
	fmt.Println("Ready to accept connections")
	return nil
}

// configured reads port and unixsocket from arguments, or from standard input after "-".
func configured(args []string) (port, socket string, err error) {
	port = "6379"
	set := func(name, value string) {
		switch name {
		case "port":
			port = value
		case "unixsocket":
			socket = value
		}
	}
	for i, arg := range args {
		if name, is := strings.CutPrefix(arg, "--"); is && i+1 < len(args) {
			set(name, args[i+1])
		}
	}
	if len(args) == 0 || args[0] != "-" {
		return port, socket, nil
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		set(name, value)
	}
	return port, socket, lines.Err()
}

// take locks a database until the process ends, waiting for one if all are taken, and empties it.
func (c *cluster) take() error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for n := range databases {
			file, err := os.OpenFile(filepath.Join(os.Getenv("HOLDFAST_STATE"), fmt.Sprintf("database-%d.lock", n)),
				os.O_CREATE|os.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
				file.Close()
				continue
			}
			held = file
			c.database = n
			conn, err := c.dial()
			if err != nil {
				return err
			}
			defer conn.Close()
			return ask(conn, "FLUSHDB")
		}
	}
	return errors.New("all databases are taken")
}

// held is the lock of the database. The garbage collector would close a file that nothing refers to.
var held *os.File
