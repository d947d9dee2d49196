import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SetArgs;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import java.time.Duration;
import java.util.List;
import java.util.function.BiFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.params.SetParams;

/**
 * Jedis and Lettuce connect as CONNECT.md has it: by one address, by Sentinel and as a Redis Cluster, over a kill of the
 * leader. Arguments: jedis or lettuce; single, sentinel or cluster. Environment: HOLDFAST_PASSWORD, and HOLDFAST_KILL, a
 * command that kills the leader. The CA is in the truststore of the JVM.
 */
public final class Connect {
    private Connect() {}

    /** What is done with a connection. */
    interface Client {
        boolean take(String key);

        long next(String key);

        String get(String key);
    }

    static UnifiedJedis jedis(String mode) {
        // <jedis>
        var password = System.getenv("HOLDFAST_PASSWORD");
        var config = DefaultJedisClientConfig.builder().password(password).ssl(true)
                .connectionTimeoutMillis(1000).socketTimeoutMillis(3000).build();
        var hosts = List.of("10.0.0.1", "10.0.0.2", "10.0.0.3");
        var sentinels = hosts.stream().map(host -> new HostAndPort(host, 26379)).collect(Collectors.toSet());
        var nodes = hosts.stream().map(host -> new HostAndPort(host, 6379)).collect(Collectors.toSet());
        // </jedis>
        switch (mode) {
            case "single": {
                // <jedis single>
                var client = redis.clients.jedis.RedisClient.builder().hostAndPort("10.0.0.1", 6379).clientConfig(config).build();
                // </jedis single>
                return client;
            }
            case "sentinel": {
                // <jedis sentinel>
                var client = RedisSentinelClient.builder().masterName("mymaster").sentinels(sentinels)
                        .sentinelClientConfig(config).clientConfig(config).build();
                // </jedis sentinel>
                return client;
            }
            default: {
                // <jedis cluster>
                var client = redis.clients.jedis.RedisClusterClient.builder().nodes(nodes).clientConfig(config).build();
                // </jedis cluster>
                return client;
            }
        }
    }

    static RedisClusterCommands<String, String> lettuce(String mode) {
        // <lettuce>
        var password = System.getenv("HOLDFAST_PASSWORD").toCharArray();
        BiFunction<String, Integer, RedisURI> node = (host, port) -> RedisURI.builder().withHost(host).withPort(port)
                .withSsl(true).withPassword(password).withTimeout(Duration.ofSeconds(5)).build();
        // </lettuce>
        switch (mode) {
            case "single": {
                // <lettuce single>
                var client = RedisClient.create(node.apply("10.0.0.1", 6379)).connect().sync();
                // </lettuce single>
                return client;
            }
            case "sentinel": {
                // <lettuce sentinel>
                var uri = RedisURI.builder().withSentinelMasterId("mymaster").withSsl(true)
                        .withPassword(password).withTimeout(Duration.ofSeconds(5));
                Stream.of("10.0.0.1", "10.0.0.2", "10.0.0.3").forEach(host -> uri.withSentinel(node.apply(host, 26379)));
                var client = RedisClient.create(uri.build()).connect().sync();
                // </lettuce sentinel>
                return client;
            }
            default: {
                // <lettuce cluster>
                var nodes = Stream.of("10.0.0.1", "10.0.0.2", "10.0.0.3").map(host -> node.apply(host, 6379)).toList();
                RedisClusterClient cluster = RedisClusterClient.create(nodes);
                cluster.setOptions(ClusterClientOptions.builder()
                        .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
                        .topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                                .enablePeriodicRefresh(Duration.ofSeconds(1)).enableAllAdaptiveRefreshTriggers().build()).build());
                var client = cluster.connect().sync();
                // </lettuce cluster>
                return client;
            }
        }
    }

    static Client of(String name, String mode) {
        if (name.equals("jedis")) {
            UnifiedJedis c = jedis(mode);
            return new Client() {
                public boolean take(String key) {
                    return c.set(key, "token", SetParams.setParams().nx().ex(120)) != null;
                }

                public long next(String key) {
                    return c.incr(key);
                }

                public String get(String key) {
                    return c.get(key);
                }
            };
        }
        RedisClusterCommands<String, String> c = lettuce(mode);
        return new Client() {
            public boolean take(String key) {
                return c.set(key, "token", SetArgs.Builder.nx().ex(120)) != null;
            }

            public long next(String key) {
                return c.incr(key);
            }

            public String get(String key) {
                return c.get(key);
            }
        };
    }

    public static void main(String[] args) throws Exception {
        String name = args[0];
        String key = "connect:" + name + ":" + args[1];
        Client client = of(name, args[1]);
        if (!client.take(key)) {
            throw new AssertionError("the lock is taken");
        }
        long fence = client.next(key + ":fence");
        Process kill = new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String dead = new String(kill.getInputStream().readAllBytes()).trim();
        long began = System.nanoTime();
        while (true) {
            try {
                if (client.next(key + ":fence") <= fence) {
                    throw new AssertionError("the fence has not grown");
                }
                break;
            } catch (RuntimeException e) {
                if (System.nanoTime() - began > 30_000_000_000L) {
                    throw e;
                }
                Thread.sleep(10);
            }
        }
        double took = (System.nanoTime() - began) / 1e9;
        if (!"token".equals(client.get(key))) {
            throw new AssertionError("the lock is lost");
        }
        System.out.printf("  ok    %s, %s: %.2f s after the end of %s%n", name, args[1], took, dead);
        System.exit(0);
    }
}
