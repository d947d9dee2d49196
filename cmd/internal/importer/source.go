package importer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/protocol"
)

// Source is the Redis server, replicated group or cluster from which keys are read.
type Source struct {
	operator.Servers
	// Service is the name of the group at Sentinels, whose addresses are Addrs. If it is "", Addrs has the server.
	Service          string
	SentinelPassword string
	Encrypted        bool // the address wants TLS
}

// The default ports of Redis and of its Sentinel.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// patience bounds one exchange with the source.
const patience = 20 * time.Second

// ErrURL is the error of an invalid address.
var ErrURL = errors.New(
	"use redis://[user:password@]host[:port][/db], rediss:// for TLS, or redis+sentinel://host[:port],…/service[/db]")

// ParseSource parses an address as redis-cli's -u does, or Sentinels with the name of their group. A password without a
// user may precede the @.
func ParseSource(text string) (*Source, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	s := &Source{Servers: operator.Servers{RESP2: true, Name: "holdfast-import"}}
	port := redisPort
	switch scheme {
	case "redis":
	case "rediss":
		s.Encrypted = true
	case "redis+sentinel", "rediss+sentinel":
		s.Encrypted, port = scheme == "rediss+sentinel", sentinelPort
	default:
		return nil, ErrURL
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, both := strings.Cut(rest[:at], ":")
		if !both {
			user, password = "", user
		}
		var bad, worse error
		s.User, bad = url.PathUnescape(user)
		s.Password, worse = url.PathUnescape(password)
		if bad != nil || worse != nil {
			return nil, ErrURL
		}
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	if port == sentinelPort {
		s.Service, path, _ = strings.Cut(path, "/")
		if s.Service == "" {
			return nil, ErrURL
		}
	} else if strings.Contains(hosts, ",") {
		return nil, ErrURL
	}
	if path != "" {
		db, err := strconv.Atoi(path)
		if err != nil || db < 0 {
			return nil, ErrURL
		}
		s.DB = db
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return nil, err
		}
		s.Addrs = append(s.Addrs, addr)
	}
	return s, nil
}

// address joins host and port. "" is this machine, as for redis-cli.
func address(host, port string) (string, error) {
	if h, p, err := net.SplitHostPort(host); err == nil && p != "" {
		host, port = h, p
	}
	if host == "" {
		host = "127.0.0.1"
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", ErrURL
	}
	return net.JoinHostPort(host, port), nil
}

// reader reads from one server of the source.
type reader struct {
	addr       string
	conn       *operator.Conn
	fieldTimes bool // its hashes may have fields with a time to live
	sized      bool // it supports MEMORY USAGE
}

// open connects to the server, or to each primary of the cluster.
func (s *Source) open(ctx context.Context) ([]*reader, error) {
	addr, err := s.primary(ctx)
	if err != nil {
		return nil, err
	}
	first, err := s.reader(ctx, addr)
	if err != nil {
		return nil, err
	}
	addrs, err := clusterPrimaries(ctx, first)
	if err != nil || len(addrs) == 0 {
		return []*reader{first}, err
	}
	readers := []*reader{}
	first.conn.Close()
	for _, addr := range addrs {
		r, err := s.reader(ctx, addr)
		if err != nil {
			closeAll(readers)
			return nil, err
		}
		readers = append(readers, r)
	}
	return readers, nil
}

func closeAll(readers []*reader) {
	for _, r := range readers {
		r.conn.Close()
	}
}

// primary returns the address of the group's primary, as replicas may be behind.
func (s *Source) primary(ctx context.Context) (string, error) {
	if s.Service == "" {
		return s.Addrs[0], nil
	}
	sentinels := s.Servers
	sentinels.DB, sentinels.User, sentinels.Password = 0, "", s.SentinelPassword
	var failed error
	for _, addr := range s.Addrs {
		conn, err := sentinels.Dial(ctx, addr, patience)
		if err == nil {
			var v protocol.Value
			v, err = conn.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Service)
			conn.Close()
			switch {
			case err == nil && len(v.Elems) == 2:
				return net.JoinHostPort(v.Elems[0].Str, v.Elems[1].Str), nil
			case err == nil:
				err = fmt.Errorf("%s: no Sentinel's group is called %q", addr, s.Service)
			}
		}
		failed = operator.Also(failed, err)
	}
	return "", failed
}

// reader connects to one server, and detects its features.
func (s *Source) reader(ctx context.Context, addr string) (*reader, error) {
	conn, err := s.Dial(ctx, addr, patience)
	if err != nil {
		return nil, errors.New(flagsOfSource.Replace(err.Error()))
	}
	r := &reader{addr: addr, conn: conn}
	vs, err := conn.Pipeline(ctx, []string{"ROLE"}, []string{"COMMAND", "INFO", "HPTTL"}, []string{"MEMORY", "USAGE", ""})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	// The user may have no right to ROLE. Holdfast's followers are never behind.
	if role := vs[0]; len(role.Elems) > 2 && role.Elems[0].Str == "slave" && !r.isHoldfast(ctx) {
		conn.Close()
		return nil, fmt.Errorf("%s is a replica, and may be behind: name its primary, %s", addr,
			net.JoinHostPort(role.Elems[1].Str, operator.Text(role.Elems[2])))
	}
	r.fieldTimes = len(vs[1].Elems) == 1 && len(vs[1].Elems[0].Elems) > 0
	r.sized = !vs[2].IsError()
	return r, nil
}

func (r *reader) isHoldfast(ctx context.Context) bool {
	v, err := r.conn.Do(ctx, "INFO", "server")
	return err == nil && strings.Contains(v.Str, "holdfast_version:")
}

// flagsOfSource replaces the cluster's flags in errors by the source's.
var flagsOfSource = strings.NewReplacer(
	"say --tls-ca FILE, or --tls for a certificate of a public CA", "use rediss:// in --from",
	"leave the flags of TLS out", "use redis:// in --from",
	"--password-file", "--from-password-file", "--tls-", "--from-tls-", "the node", "the server",
)

// clusterPrimaries returns the addresses of a Redis Cluster's primaries with slots, none without a cluster.
func clusterPrimaries(ctx context.Context, first *reader) (addrs []string, err error) {
	info, err := first.conn.Do(ctx, "INFO", "cluster")
	if err != nil || !strings.Contains(info.Str, "cluster_enabled:1") {
		return nil, ignoreRefusal(err)
	}
	slots, err := first.conn.Do(ctx, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	for _, row := range slots.Elems {
		if len(row.Elems) < 3 || len(row.Elems[2].Elems) < 2 {
			continue
		}
		host := row.Elems[2].Elems[0].Str
		if host == "" { // the server does not know its own address
			host, _, _ = net.SplitHostPort(first.addr)
		}
		addr := net.JoinHostPort(host, operator.Text(row.Elems[2].Elems[1]))
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%s: no server of the cluster has slots", first.addr)
	}
	return addrs, nil
}

func ignoreRefusal(err error) error {
	if errors.As(err, new(*operator.Refusal)) {
		return nil
	}
	return err
}
