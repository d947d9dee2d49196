package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// insideEnv marks the process that Reenter starts.
const insideEnv = "HOLDFAST_JEPSEN_INSIDE"

// The addresses of the network: nodes from .11, clients from .111, the harness at .254.
const (
	subnet  = "10.77.0."
	harness = subnet + "254"
	bridge  = "jepsen0"
)

// ports are the same on every node, since each node has its own address.
var ports = map[string]int{"client": 6379, "peer": 7379, "peer2": 7380, "sentinel": 26379}

// Kernel is a bridge with a network namespace for each node.
type Kernel struct{ nodes []string }

// Reenter runs this program again in its own network and mount namespaces, in which it may build bridges without
// touching the machine's. entered is false in that inner process; code is the inner process's exit code.
func Reenter() (entered bool, code int, err error) {
	if Inside() {
		return false, 0, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, 0, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGTERM,
	}
	if err := cmd.Start(); err != nil {
		return false, 0, fmt.Errorf("make namespaces: %w", err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return true, exit.ExitCode(), nil
	}
	return true, 0, err
}

// Inside reports whether this is the process that [Reenter] started.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// CanUseKernel returns why a kernel network is impossible, or nil.
func CanUseKernel() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

// NewKernel builds the network. Requires: [Reenter] started the process.
func NewKernel(n int) (*Kernel, error) {
	if !Inside() {
		return nil, errors.New("build net: not in namespaces of its own")
	}
	// "ip netns" keeps its names in /run, so the process gets a private one.
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount a private /run: %w", err)
	}
	k := &Kernel{nodes: Nodes(n)}
	lines := []string{
		"ip link set lo up",
		"ip link add " + bridge + " type bridge",
		"ip link set " + bridge + " up",
		"ip addr add " + harness + "/24 dev " + bridge,
	}
	for i, node := range k.nodes {
		lines = append(lines,
			"ip netns add "+node,
			"ip link add v"+node+" type veth peer name eth0 netns "+node,
			"ip link set v"+node+" master "+bridge+" up",
			"ip -n "+node+" link set lo up",
			"ip -n "+node+" addr add "+k.address(node)+"/24 dev eth0",
			"ip -n "+node+" link set eth0 up",
			fmt.Sprintf("ip addr add %s%d/24 dev %s", subnet, 111+i, bridge),
		)
	}
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build net: %s: %w: %s", line, err, out)
		}
	}
	return k, nil
}

// Kind implements [Network].
func (k *Kernel) Kind() string { return "kernel" }

// address returns the address of a place, such as n1 or c1.
func (k *Kernel) address(place string) string {
	i, _ := strconv.Atoi(place[1:])
	if place[0] == 'c' {
		i += 100
	}
	return subnet + strconv.Itoa(10+i)
}

// Listen implements [Network].
func (k *Kernel) Listen(node, purpose string) string {
	return net.JoinHostPort(k.address(node), strconv.Itoa(ports[purpose]))
}

// Reach implements [Network].
func (k *Kernel) Reach(_, node, purpose string) string { return k.Listen(node, purpose) }

// Command implements [Network].
func (k *Kernel) Command(node, program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", node, program}, args...)...)
}

// Dial implements [Network].
func (k *Kernel) Dial(ctx context.Context, from, node, purpose string) (net.Conn, error) {
	source := harness
	if from != "" {
		source = k.address(from)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	return d.DialContext(ctx, "tcp", k.Listen(node, purpose))
}

// Set implements [Network]: it replaces the rules of each node atomically. Packets to a node are dropped on arrival,
// packets to its clients on departure.
func (k *Kernel) Set(s State) error {
	for _, node := range k.nodes {
		rules := []string{"*filter", ":INPUT ACCEPT [0:0]", ":FORWARD ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]"}
		if slices.Contains(s.Refuse, node) {
			for _, purpose := range []string{"peer", "peer2"} {
				rules = append(rules, fmt.Sprintf("-A INPUT -p tcp --dport %d --syn -j REJECT --reject-with tcp-reset",
					ports[purpose]))
			}
		}
		verdict := "DROP"
		if s.Reset {
			verdict = "REJECT --reject-with tcp-reset"
		}
		for _, l := range s.Cut {
			proto := ""
			if s.Reset {
				proto = " -p tcp"
			}
			switch {
			case l.To == node:
				rules = append(rules, fmt.Sprintf("-A INPUT -s %s%s -j %s", k.address(l.From), proto, verdict))
			case l.From == node && l.To[0] == 'c':
				rules = append(rules, fmt.Sprintf("-A OUTPUT -d %s -j DROP", k.address(l.To)))
			}
		}
		for _, l := range s.Large {
			if l.To == node {
				rules = append(rules, fmt.Sprintf("-A INPUT -s %s -m length --length %d:65535 -j DROP", k.address(l.From),
					LargeBytes))
			}
		}
		if s.Loss > 0 {
			for _, other := range k.nodes {
				if other != node {
					rules = append(rules, fmt.Sprintf("-A INPUT -s %s -m statistic --mode random --probability %.3f -j DROP",
						k.address(other), s.Loss))
				}
			}
		}
		if len(s.Large) > 0 {
			// Without this, several packets of a connection pass the rules as one.
			if out, err := exec.Command("ip", "-n", node, "link", "set", "eth0", "gso_max_segs",
				"1").CombinedOutput(); err != nil {
				return fmt.Errorf("hold packets of %s apart: %w: %s", node, err, out)
			}
		}
		rules = append(rules, "COMMIT", "")
		cmd := exec.Command("ip", "netns", "exec", node, "iptables-restore")
		cmd.Stdin = strings.NewReader(strings.Join(rules, "\n"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("set rules of %s: %w: %s", node, err, out)
		}
	}
	return nil
}

// Close implements [Network]: the namespaces end with their processes.
func (k *Kernel) Close() error { return nil }
