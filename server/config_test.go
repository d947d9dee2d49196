package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
)

// TestValidate: a setting that a node could not work with is refused, with what is allowed.
func TestValidate(t *testing.T) {
	three := "n1=10.0.0.1:7379, n2=10.0.0.2:7379 ,n3=10.0.0.3:7379"
	for _, tc := range []struct {
		name string
		set  func(c *Config)
		want string // empty: valid
	}{
		{"the defaults", func(*Config) {}, ""},
		{"a name of 64 letters", func(c *Config) { c.Name = strings.Repeat("n", 64) }, ""},
		{"a name of 65 letters", func(c *Config) { c.Name = strings.Repeat("n", 65) }, "use 1 to 64 letters"},
		{"no name", func(c *Config) { c.Name = "" }, "use 1 to 64 letters"},
		{"no folder", func(c *Config) { c.DataDir = "" }, "data-dir is empty"},
		{"three nodes", func(c *Config) { c.InitialCluster = three }, ""},
		{"four nodes", func(c *Config) { c.InitialCluster = three + ",n4=10.0.0.4:7379" }, "use 1, 3 or 5"},
		{
			"an address twice", func(c *Config) { c.InitialCluster = three + ",n4=10.0.0.4:1,n5=10.0.0.4:1" },
			"the same address 10.0.0.4:1",
		},
		{"an address without a port", func(c *Config) { c.InitialCluster = "n1=10.0.0.1" }, "missing port"},
		{"a port alone", func(c *Config) { c.Addr = "6379" }, `addr "6379": use host:port`},
		{"a peer port alone", func(c *Config) { c.PeerAddr = "n1" }, `peer-addr "n1": use host:port`},
		{
			"elections before silence is noticed", func(c *Config) { c.ElectionTimeout = c.HeartbeatTimeout - 1 },
			"is below heartbeat-timeout",
		},
		{"a heartbeat of 9ms", func(c *Config) { c.HeartbeatTimeout = 9 * time.Millisecond }, "at least 10ms"},
		{"no time for commands", func(c *Config) { c.CommandTimeout = 0 }, "use a positive duration"},
		{"a stall limit below a second", func(c *Config) { c.DiskStallLimit = time.Second - 1 }, "at least 1s"},
		{
			"too many classes of locks", func(c *Config) { c.LockClass = []string{strings.Repeat("x* ", 33)} },
			"lock-class: 33 patterns, at most 32",
		},
		{
			"a class twice", func(c *Config) { c.LockClass = []string{"a* b*", "a*"} },
			`lock-class "a*": there is a class of that name already`,
		},
		{
			"too many patterns of the audit log", func(c *Config) { c.AuditLocks = []string{strings.Repeat("x* ", 33)} },
			"audit-locks: 33 patterns, at most 32",
		},
		{
			"an audit log among the data", func(c *Config) { c.AuditLog = c.DataDir + "/log/../audit.log" },
			"/audit.log is in data-dir",
		},
		{"a syslog daemon", func(c *Config) { c.AuditLog, c.DataDir = "syslog", "." }, ""},
		{"an audit log beside the data", func(c *Config) { c.AuditLog = c.DataDir + ".log" }, ""},
		{
			"an audit log in the place of a secret", func(c *Config) { c.AuditLog, c.TLSKey = "./a/../key", "key" },
			"audit-log ./a/../key is a file of another flag",
		},
		{"a class like the rest", func(c *Config) { c.LockClass = []string{"other"} }, `lock-class "other"`},
		{"no snapshots", func(c *Config) { c.SnapshotThreshold = 0 }, "snapshot-threshold is 0"},
		{"a log that is neither", func(c *Config) { c.LogFormat = "xml" }, "use text or json"},
		{"no requests", func(c *Config) { c.MaxQueryBytes = 1 }, "max-query-bytes 1: at least 65536"},
		{"no replies", func(c *Config) { c.MaxOutputBytes = 1 }, "max-output-bytes 1: at least 65536"},
		{"no scripts", func(c *Config) { c.MaxScriptSteps = 1 }, "max-script-steps 1: at least 10000"},
		{"endless scripts", func(c *Config) { c.MaxScriptSteps = 2e9 }, "max-script-steps 2000000000: at most 1000000000"},
		{"a Sentinel beyond loopback", func(c *Config) { c.SentinelAddr = ":26379" }, "sentinel-addr :26379 is not loopback"},
		{"monitoring beyond loopback", func(c *Config) { c.HTTPAddr = ":8379" }, "http-addr :8379 is not loopback"},
		{"monitoring beyond loopback with a password", func(c *Config) { c.HTTPAddr, c.Password = ":8379", "x" }, ""},
		{"profiles without a port", func(c *Config) { c.HTTPPprof = true }, "http-pprof needs http-addr"},
		{
			"a Sentinel without a name", func(c *Config) { c.SentinelName = "my master" },
			"sentinel-name \"my master\": use 1 to 64 letters",
		},
		{
			"an address of no Sentinel", func(c *Config) { c.SentinelAdvertiseAddr = "n1:26379" },
			"sentinel-advertise-addr needs sentinel-addr",
		},
		{"a proxy without debug", func(c *Config) { c.DebugPeerDial = "a=b" }, "debug-peer-dial needs debug"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := DefaultConfig()
			tc.set(&c)
			err := c.Validate()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// TestValidateSaysAll: an operator mends everything in one go.
func TestValidateSaysAll(t *testing.T) {
	c := DefaultConfig()
	c.DataDir, c.MaxClients, c.LogFormat = "", 0, "xml"
	require.Len(t, strings.Split(c.Validate().Error(), "\n"), 3)
}

// TestExposure: beyond loopback a node tells strangers from friends, by secret or by certificates that it checks.
func TestExposure(t *testing.T) {
	const clients, nodes = "addr 10.0.0.1:1 is not loopback", "peer-addr 10.0.0.1:2 is not loopback"
	for _, tc := range []struct {
		name string
		set  func(c *Config)
		want []string
	}{
		{"nothing", func(*Config) {}, []string{clients, nodes}},
		{"a password", func(c *Config) { c.Password = "x" }, []string{nodes}},
		{"a password's file", func(c *Config) { c.PasswordFile = "x" }, []string{nodes}},
		{"clients' certificates", func(c *Config) { c.TLSClientCA = "x" }, []string{nodes}},
		{"TLS that lets everybody in", func(c *Config) { c.TLSCert, c.TLSKey = "x", "x" }, []string{clients, nodes}},
		{"a cluster secret", func(c *Config) { c.ClusterSecret = "x" }, []string{clients}},
		{"a cluster secret's file", func(c *Config) { c.ClusterSecretFile = "x" }, []string{clients}},
		{"nodes' certificates", func(c *Config) { c.PeerTLSCA = "x" }, []string{clients}},
		{
			"a certificate between nodes that is not checked", func(c *Config) { c.PeerTLSCert, c.PeerTLSKey = "x", "x" },
			[]string{clients, nodes},
		},
		{"nodes on loopback", func(c *Config) { c.PeerAddr = "127.0.0.1:2" }, []string{clients}},
		{"clients on loopback", func(c *Config) { c.Addr = "127.0.0.1:1" }, []string{nodes}},
		{"insecure", func(c *Config) { c.Insecure = true }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := DefaultConfig()
			c.Addr, c.PeerAddr = "10.0.0.1:1", "10.0.0.1:2"
			tc.set(&c)
			err := c.Validate()
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.Len(t, strings.Split(err.Error(), "\n"), len(tc.want))
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestLockClassesOfEnvironment: a variable holds several patterns between blanks.
func TestLockClassesOfEnvironment(t *testing.T) {
	c := DefaultConfig()
	c.LockClass = []string{"jobs:* reports:*", "x"}
	require.NoError(t, c.Validate())
	require.Equal(t, []string{"jobs:*", "reports:*", "x"}, c.lockClasses())
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.1.2.3:1": true, "[::1]:1": true, "localhost:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false,
		"example:1": false, "127.0.0.1": false,
	} {
		require.Equal(t, want, loopback(addr), addr)
	}
}

// A node serves both ports, advertises the one for Sentinel's clients beside the other, and closes both.
func TestSentinelPort(t *testing.T) {
	c := DefaultConfig()
	c.Addr, c.PeerAddr, c.SentinelAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	c.AdvertiseAddr, c.DataDir = "n1.example:6379", t.TempDir()
	s, err := New(c, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	addr := s.sentinel.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	require.Equal(t, "n1.example:"+port, s.advertisedSentinel())
	s.config.SentinelAdvertiseAddr = "s.example:1"
	require.Equal(t, "s.example:1", s.advertisedSentinel())
	s.config.SentinelAdvertiseAddr, s.config.AdvertiseAddr = "", ""
	require.Equal(t, addr, s.advertisedSentinel())

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	client := protocol.NewConn(conn)
	require.Eventually(t, func() bool {
		v, err := client.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
		require.NoError(t, err)
		return len(v.Elems) == 2 && v.Elems[0].Str == "n1.example" && v.Elems[1].Str == "6379"
	}, 10*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	_, err = net.Dial("tcp", addr)
	require.Error(t, err)
}
