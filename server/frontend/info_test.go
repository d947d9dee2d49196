package frontend

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/protocol"
	"github.com/holdfast/holdfast/server/replica"
)

// infoFields sends INFO, and returns the fields of the reply.
func infoFields(t *testing.T, c *testClient, sections ...string) map[string]string {
	got := answer(c, append([]string{"INFO"}, sections...)...)
	_, text, _ := strings.Cut(got, "\r\n")
	fields := make(map[string]string)
	line := regexp.MustCompile(`^([a-zA-Z0-9_|]+):([^\r\n]*)$`)
	for l := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		if l == "" || strings.HasPrefix(l, "# ") {
			continue
		}
		m := line.FindStringSubmatch(l)
		require.NotNil(t, m, "%q", l)
		require.NotContains(t, fields, m[1])
		fields[m[1]] = m[2]
	}
	return fields
}

// TestInfoHasWhatClientsParse shows that INFO has the fields that client libraries read.
func TestInfoHasWhatClientsParse(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		for _, sections := range [][]string{nil, {"all"}, {"everything"}, {"default"}} {
			fields := infoFields(t, c, sections...)
			for name, value := range map[string]string{
				"role": "master", "connected_slaves": "2", "redis_version": protocol.RedisVersion, "redis_mode": "standalone",
				"run_id": s.cfg.Node.RunID, "loading": "0", "maxmemory_policy": "noeviction", "maxmemory": "0", "aof_enabled": "1",
				"cluster_enabled": "0", "tcp_port": "6379", "connected_clients": "1", "holdfast_version": protocol.HoldfastVersion,
				"aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok", "evicted_keys": "0", "blocked_clients": "0",
			} {
				require.Equal(t, value, fields[name], name)
			}
			for _, name := range []string{
				"allocator_allocated", "used_memory_rss", "process_id", "total_connections_received",
				"arch_bits",
			} {
				require.Regexp(t, "^[1-9][0-9]*$", fields[name], name)
			}
			require.Equal(t, len(sections) > 0 && sections[0] != "default", fields["cmdstat_info"] != "")
		}
	})
}

// TestInfoWaitsForOwnWrites shows that INFO waits until this node has applied the writes of the same connection, and
// does not wait for writes of others. A client thus finds its own writes in the counts.
func TestInfoWaitsForOwnWrites(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		one, two := s.dial(), s.dial()
		infoFields(t, one)
		for _, words := range [][]string{{"SET", "a", "1"}, {"SET", "b", "1"}, {"GET", "a"}} {
			one.deliver(command(words...))
		}
		one.take()
		infoFields(t, one, "keyspace")
		infoFields(t, two)
		one.deliver(append(command("SET", "c", "1"), command("INFO", "keyspace")...))
		cl.set(func() { require.Equal(t, []uint64{0, 2, 0, 3}, cl.awaited) })
	})
}

// TestInfoShowsStalledFollowers shows that INFO of the leader lists the followers that make no progress, besides those
// that answer.
func TestInfoShowsStalledFollowers(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		cl.set(func() {
			cl.status.Stalled = []replica.Stalled{{Member: member("3"), LogIndex: 40, For: 3500 * time.Millisecond}}
		})
		fields := infoFields(t, c, "replication")
		require.Equal(t, "2", fields["connected_slaves"])
		require.Equal(t, "1", fields["stalled_followers"])
		require.Equal(t, "name=n3,addr=10.0.0.3:7379,offset=40,seconds=3", fields["stalled_follower0"])
	})
}

func TestInfoCounts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		sent := append(sets(10), command("NOSUCH")...)
		c.deliver(sent)
		replies, _ := c.take()
		fields := infoFields(t, c, "stats", "keyspace")
		require.Equal(t, "11", fields["total_commands_processed"])
		require.Equal(t, "1", fields["total_error_replies"])
		require.Equal(t, strconv.Itoa(len(sent)+len(command("INFO", "stats", "keyspace"))), fields["total_net_input_bytes"])
		require.Equal(t, strconv.Itoa(len(replies)), fields["total_net_output_bytes"])
		require.Equal(t, "keys=10,expires=0,avg_ttl=0", fields["db0"])
	})
}

// TestClientsSeeEachOther has connections list and kill each other while they run commands, so that the race detector
// finds unsynchronized access.
func TestClientsSeeEachOther(t *testing.T) {
	s := start(t, Config{}, newCluster())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				nc, err := s.ln.dial()
				if err != nil {
					return
				}
				discard := make(chan struct{})
				go func() {
					defer close(discard)
					buf := make([]byte, 4096)
					for err := error(nil); err == nil; {
						_, err = nc.Read(buf)
					}
				}()
				for _, line := range []string{
					"CLIENT SETNAME me", "SELECT 3", "WATCH k", "MULTI", "SET k v", "CLIENT LIST", "EXEC", "CLIENT LIST", "INFO all",
					"CLIENT NO-EVICT ON", "CONFIG RESETSTAT", "RESET", "CLIENT KILL TYPE normal", "NOSUCH",
				} {
					if i%2 == 0 && strings.Contains(line, "KILL") {
						continue
					}
					if _, err := nc.Write(command(strings.Fields(line)...)); err != nil {
						break
					}
				}
				nc.Close()
				<-discard
			}
		})
	}
	all.Wait()
	s.stop()
	require.Zero(t, s.clientCount())
}

// TestTimeoutsDoNotWrapAround shows that the longest timeouts in milliseconds do not become negative durations.
func TestTimeoutsDoNotWrapAround(t *testing.T) {
	for _, millis := range []string{"9223372036854775807", "9223372036855", "9223372036854"} {
		d, _, refused := parseTimeout([]byte(millis))
		require.False(t, refused, millis)
		require.Greater(t, d, 292*365*24*time.Hour, millis)
	}
}

// TestKillByAddressOfThisSide shows that LADDR of CLIENT KILL is the server's address of a connection, and not the
// client's. Over TCP the two differ.
func TestKillByAddressOfThisSide(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	startOn(t, Config{}, newCluster(), ln)
	ask := func(nc net.Conn, words ...string) string {
		_, err := nc.Write(command(words...))
		require.NoError(t, err)
		reply := make([]byte, 4)
		_, err = io.ReadFull(nc, reply)
		require.NoError(t, err)
		return string(reply)
	}
	one, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer one.Close()
	two, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer two.Close()
	require.Equal(t, "$1\r\n", ask(two, "ECHO", "x")) // the server has admitted the connection
	require.Equal(t, ":0\r\n", ask(one, "CLIENT", "KILL", "LADDR", two.LocalAddr().String()))
	require.Equal(t, ":1\r\n", ask(one, "CLIENT", "KILL", "LADDR", ln.Addr().String()))
}

// TestInfoHasWhatToolsRead shows that INFO has the fields that redis-cli --stat, RedisInsight and redis_exporter read,
// and that they are numbers.
func TestInfoHasWhatToolsRead(t *testing.T) {
	inBubble(t, Config{Memory: Memory{MachineBytes: 8 << 30}}, func(t *testing.T, s *testServer) {
		c := s.dial()
		for _, line := range []string{"SET k v", "GET k", "MGET k none none"} {
			answer(c, strings.Fields(line)...)
		}
		fields := infoFields(t, c)
		require.Equal(t, "2", fields["keyspace_hits"])
		require.Equal(t, "2", fields["keyspace_misses"])
		require.Equal(t, "8589934592", fields["total_system_memory"])
		require.Equal(t, "8.00G", fields["total_system_memory_human"])
		for _, name := range []string{
			"uptime_in_seconds", "process_id", "connected_clients", "blocked_clients", "maxclients", "tracking_clients",
			"pubsub_clients",
			"used_memory", "used_memory_peak", "used_memory_rss", "maxmemory", "mem_clients_normal", "mem_fragmentation_ratio",
			"mem_fragmentation_bytes", "number_of_cached_scripts", "allocator_allocated", "loading",
			"rdb_changes_since_last_save",
			"rdb_bgsave_in_progress", "aof_enabled", "aof_rewrite_in_progress", "total_connections_received",
			"total_commands_processed",
			"instantaneous_ops_per_sec", "total_net_input_bytes", "total_net_output_bytes", "instantaneous_input_kbps",
			"instantaneous_output_kbps", "rejected_connections", "expired_keys", "evicted_keys", "pubsub_channels",
			"pubsub_patterns",
			"acl_access_denied_auth", "total_error_replies", "connected_slaves", "master_repl_offset", "used_cpu_sys",
			"used_cpu_user",
			"cluster_enabled",
		} {
			n, err := strconv.ParseFloat(fields[name], 64)
			require.NoError(t, err, name)
			require.GreaterOrEqual(t, n, 0.0, name)
		}
		answer(c, "CONFIG", "RESETSTAT")
		fields = infoFields(t, c)
		require.Equal(t, "0", fields["keyspace_hits"])
		require.Equal(t, "0", fields["keyspace_misses"])
	})
}

// TestCommandsCountInRates shows that the rates of INFO include the commands of the cluster and those that the node
// runs alone.
func TestCommandsCountInRates(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		c := s.dial()
		for _, line := range []string{"SET key value4", "ECHO x"} {
			time.Sleep(5 * time.Second)
			for range 300 {
				c.send(command(strings.Fields(line)...))
				synctest.Wait()
				time.Sleep(10 * time.Millisecond)
			}
			c.take()
			fields := infoFields(t, c, "stats")
			require.Contains(t, []string{"99", "100", "101"}, fields["instantaneous_ops_per_sec"], line)
			require.NotEqual(t, "0.00", fields["instantaneous_input_kbps"])
			require.NotEqual(t, "0.00", fields["instantaneous_output_kbps"])
		}
	})
}

// TestInfoMemory shows that INFO has the limit and the used memory of the state in Redis's fields.
func TestInfoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := newCluster()
		s := start(t, Config{Memory: Memory{MaxMemoryBytes: 3 << 29}}, backend)
		c := s.dial()
		require.Equal(t, "0", infoFields(t, c)["used_memory"])
		answer(c, "SET", "k", "v")
		fields := infoFields(t, c)
		require.Greater(t, backend.Stats().UsedBytes, int64(128))
		require.Equal(t, fmt.Sprint(backend.Stats().UsedBytes), fields["used_memory"])
		require.Equal(t, "1610612736", fields["maxmemory"])
		require.Equal(t, "1.50G", fields["maxmemory_human"])
		require.Equal(t, "noeviction", fields["maxmemory_policy"])
	})
}

// TestConfigGetFindsWhatWasSet shows that CONFIG GET of a setting in the replicated state waits for the client's own
// CONFIG SET, and that CONFIG GET of other settings does not wait.
func TestConfigGetFindsWhatWasSet(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, s *testServer) {
		cl := s.cluster
		c := s.dial()
		require.Equal(t, "+OK\r\n", answer(c, "CONFIG", "SET", "notify-keyspace-events", "KEA"))
		answer(c, "CONFIG", "GET", "maxclients")
		require.Equal(t, "*2\r\n$22\r\nnotify-keyspace-events\r\n$3\r\nAKE\r\n", answer(c, "CONFIG", "GET", "n*"))
		cl.set(func() { require.Equal(t, []uint64{1}, cl.awaited) })
		cl.set(func() { cl.fail = errors.New("x") })
		require.Equal(t, "-"+protocol.ErrUncertain.Error()+"\r\n",
			answer(c, "CONFIG", "SET", "notify-keyspace-events", "KEA"))
	})
}
