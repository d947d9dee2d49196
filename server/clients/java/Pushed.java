import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.SetParams;

/**
 * Jedis and Lettuce, what a server sends later than its command: elements for blocked clients and
 * messages, on every node and over the kill. Argument single, or sentinel or
 * cluster: the clients that find the leader, also after the kill.
 */
public final class Pushed extends Checks {
    /** What the clients have in common. */
    interface Client extends AutoCloseable {
        boolean take(String key, String token);

        void push(String key, String element);

        /** The first element of a list, or null after some seconds. */
        String pop(String key, int seconds);

        void publish(String channel, String message);

        /** Messages of a channel from now on. */
        BlockingQueue<String> subscribe(String channel) throws Exception;

        @Override
        void close();
    }

    /** Jedis, of one node, of sentinels or of a cluster. */
    record Jedis(UnifiedJedis jedis) implements Client {
        public boolean take(String key, String token) {
            return jedis.set(key, token, SetParams.setParams().nx().px(60_000)) != null;
        }

        public void push(String key, String element) {
            jedis.rpush(key, element);
        }

        public String pop(String key, int seconds) {
            List<String> reply = jedis.blpop(seconds, key);
            return reply == null ? null : reply.get(1);
        }

        public void publish(String channel, String message) {
            jedis.publish(channel, message);
        }

        public BlockingQueue<String> subscribe(String channel) throws Exception {
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            CountDownLatch ready = new CountDownLatch(1);
            daemon(() -> {
                for (;;) {
                    try {
                        jedis.subscribe(new JedisPubSub() {
                            @Override
                            public void onSubscribe(String to, int count) {
                                ready.countDown();
                            }

                            @Override
                            public void onMessage(String from, String message) {
                                got.add(message);
                            }
                        }, channel);
                    } catch (JedisException e) {
                        pause(100); // Jedis leaves it to its caller to subscribe again
                    }
                }
            });
            expect(ready.await(10, TimeUnit.SECONDS), true);
            return got;
        }

        public void close() {
            jedis.close();
        }
    }

    /** Lettuce, of one node or of sentinels. */
    static final class Lettuce implements Client {
        private final io.lettuce.core.RedisClient client;
        private final RedisURI uri;
        private final RedisCommands<String, String> commands;

        Lettuce(RedisURI uri, ProtocolVersion protocol) {
            this.uri = uri;
            client = io.lettuce.core.RedisClient.create();
            client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
            commands = client.connect(uri).sync();
            commands.setTimeout(Duration.ofSeconds(40));
        }

        public boolean take(String key, String token) {
            return commands.set(key, token, SetArgs.Builder.nx().px(60_000)) != null;
        }

        public void push(String key, String element) {
            commands.rpush(key, element);
        }

        public String pop(String key, int seconds) {
            try (var blocking = client.connect(uri)) {
                blocking.setTimeout(Duration.ofSeconds(40));
                KeyValue<String, String> reply = blocking.sync().blpop(seconds, key);
                return reply == null ? null : reply.getValue();
            }
        }

        public void publish(String channel, String message) {
            commands.publish(channel, message);
        }

        public BlockingQueue<String> subscribe(String channel) {
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            var connection = client.connectPubSub(uri);
            connection.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String from, String message) {
                    got.add(message);
                }
            });
            connection.sync().subscribe(channel);
            return got;
        }

        public void close() {
            client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }

    /** Lettuce of a cluster. */
    static final class LettuceCluster implements Client {
        private final RedisClusterClient client;
        private final RedisClusterCommands<String, String> commands;

        LettuceCluster(List<String> nodes) {
            client = RedisClusterClient.create(nodes.stream().map(n -> RedisURI.create("redis://" + n)).toList());
            client.setOptions(io.lettuce.core.cluster.ClusterClientOptions.builder()
                    .topologyRefreshOptions(io.lettuce.core.cluster.ClusterTopologyRefreshOptions.builder()
                            .enablePeriodicRefresh(Duration.ofMillis(500)).enableAllAdaptiveRefreshTriggers().build())
                    .build());
            // A command that was sent to a node that is gone waits for the node until its time-out.
            var connection = client.connect();
            connection.setTimeout(Duration.ofSeconds(5));
            commands = connection.sync();
        }

        public boolean take(String key, String token) {
            return commands.set(key, token, SetArgs.Builder.nx().px(60_000)) != null;
        }

        public void push(String key, String element) {
            commands.rpush(key, element);
        }

        public String pop(String key, int seconds) {
            try (var blocking = client.connect()) {
                blocking.setTimeout(Duration.ofSeconds(40));
                KeyValue<String, String> reply = blocking.sync().blpop(seconds, key);
                return reply == null ? null : reply.getValue();
            }
        }

        public void publish(String channel, String message) {
            commands.publish(channel, message);
        }

        public BlockingQueue<String> subscribe(String channel) {
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            var connection = client.connectPubSub();
            connection.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String from, String message) {
                    got.add(message);
                }
            });
            connection.sync().subscribe(channel);
            return got;
        }

        public void close() {
            client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
        }
    }

    interface Connect {
        Client to(int node);
    }

    private static final List<String> NODES = List.of(System.getenv("HOLDFAST_NODES").split(","));

    private static Set<HostAndPort> addresses(String list) {
        return Stream.of(list.split(",")).map(HostAndPort::from).collect(Collectors.toCollection(HashSet::new));
    }

    static Map<String, Connect> connects(String mode) {
        String master = System.getenv().getOrDefault("HOLDFAST_MASTER", "mymaster");
        String sentinels = System.getenv("HOLDFAST_SENTINELS");
        Map<String, Connect> all = new LinkedHashMap<>();
        switch (mode) {
            case "sentinel" -> {
                all.put("Jedis", node -> new Jedis(RedisSentinelClient.builder().masterName(master).sentinels(addresses(sentinels)).build()));
                RedisURI.Builder uri = RedisURI.builder().withSentinelMasterId(master);
                addresses(sentinels).forEach(at -> uri.withSentinel(at.getHost(), at.getPort()));
                all.put("Lettuce", node -> new Lettuce(uri.build(), ProtocolVersion.RESP3));
            }
            case "cluster" -> {
                all.put("Jedis", node -> new Jedis(redis.clients.jedis.RedisClusterClient.builder()
                        .nodes(addresses(System.getenv("HOLDFAST_NODES"))).topologyRefreshPeriod(Duration.ofMillis(500)).build()));
                all.put("Lettuce", node -> new LettuceCluster(NODES));
            }
            default -> {
                for (RedisProtocol protocol : RedisProtocol.values()) {
                    all.put("Jedis " + protocol, node -> new Jedis(RedisClient.builder().hostAndPort(HostAndPort.from(NODES.get(node)))
                            .clientConfig(DefaultJedisClientConfig.builder().protocol(protocol).build()).build()));
                }
                for (ProtocolVersion protocol : ProtocolVersion.values()) {
                    all.put("Lettuce " + protocol, node -> new Lettuce(RedisURI.create("redis://" + NODES.get(node)), protocol));
                }
            }
        }
        return all;
    }

    private static void daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static CompletableFuture<String> blocked(Client client, String key) {
        return CompletableFuture.supplyAsync(() -> client.pop(key, 30), Pushed::daemon);
    }

    /** A blocked client and a subscriber at one node get what another node is given. */
    private static void pushed(String name, Client mine, Client theirs) throws Exception {
        expect(mine.pop(name + ":none", 1), null);
        var waiter = blocked(mine, name + ":queue");
        Thread.sleep(200);
        expect(waiter.isDone(), false);
        theirs.push(name + ":queue", "element");
        expect(waiter.get(10, TimeUnit.SECONDS), "element");
        BlockingQueue<String> messages = mine.subscribe(name + ":channel");
        for (int i = 0; i < 100; i++) {
            theirs.publish(name + ":channel", String.valueOf(i));
        }
        for (int i = 0; i < 100; i++) {
            expect(messages.poll(10, TimeUnit.SECONDS), String.valueOf(i));
        }
    }

    /** Behind the keys of a run, since the cluster keeps those of the run before. */
    private static final String RUN = ":" + System.currentTimeMillis();

    /** Blocked clients and subscribers stay over the kill: at a node that is left, or by finding the leader. */
    private static void overTheKill(Map<String, Connect> connects, boolean finds, Set<String> deaf, int doomed) throws Exception {
        int first = finds ? 0 : (doomed + 1) % 3;
        int second = finds ? 1 : (doomed + 2) % 3;
        Map<String, List<Client>> clients = new LinkedHashMap<>();
        Map<String, CompletableFuture<String>> waiters = new LinkedHashMap<>();
        Map<String, BlockingQueue<String>> messages = new LinkedHashMap<>();
        for (var connect : connects.entrySet()) {
            String name = connect.getKey() + ":kill";
            clients.put(name, List.of(connect.getValue().to(first), connect.getValue().to(second)));
            Client mine = clients.get(name).get(0);
            check(connect.getKey() + " holds and waits before the kill", () -> {
                expect(mine.take(name + RUN, "token"), true);
                messages.put(name, mine.subscribe(name + RUN + ":channel"));
                waiters.put(name, blocked(mine, name + RUN + ":queue"));
            });
        }
        Thread.sleep(300);
        Process kill = new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String dead = new String(kill.getInputStream().readAllBytes()).trim();
        System.out.println("  killed the leader, " + dead);
        expect(dead, NODES.get(doomed));
        for (String name : clients.keySet()) {
            Client theirs = clients.get(name).get(1);
            check(name.replace(":", " over the "), () -> {
                within(20_000, () -> !theirs.take(name + RUN, "stranger"));
                expect(theirs.take(name + RUN, "stranger"), false);
                if (!deaf.contains(name)) {
                    within(20_000, () -> {
                        theirs.publish(name + RUN + ":channel", "after");
                        return messages.get(name).poll(200, TimeUnit.MILLISECONDS) != null;
                    });
                }
                if (!finds) {
                    theirs.push(name + RUN + ":queue", "element");
                    expect(waiters.get(name).get(10, TimeUnit.SECONDS), "element");
                    return;
                }
                // The waiter's connection was to the killed leader, whose place in the queue takes what
                // comes until the others know that it is gone.
                within(40_000, () -> {
                    theirs.push(name + RUN + ":queue", "element");
                    return "element".equals(theirs.pop(name + RUN + ":queue", 1));
                });
            });
        }
    }

    private static boolean leads(int node) {
        try (UnifiedJedis jedis = RedisClient.create(HostAndPort.from(NODES.get(node)))) {
            return jedis.info("replication").contains("role:master");
        }
    }

    public static void main(String[] args) throws Exception {
        java.util.logging.LogManager.getLogManager().reset(); // Lettuce reports every try to reconnect to the killed node
        String mode = args[0].equals("single") ? "" : args[0];
        Map<String, Connect> connects = connects(mode);
        List<Client> opened = new ArrayList<>();
        for (int node = 0; node < (mode.isEmpty() ? NODES.size() : 1); node++) {
            int at = node;
            for (var connect : connects.entrySet()) {
                check(mode + " " + connect.getKey() + " on " + (mode.isEmpty() ? NODES.get(node) : "all"), () -> {
                    Client mine = connect.getValue().to(at);
                    Client theirs = connect.getValue().to((at + 1) % 3);
                    opened.addAll(List.of(mine, theirs));
                    pushed("java:" + mode + connect.getKey() + ":" + at, mine, theirs);
                });
            }
        }
        int doomed = 2;
        while (doomed > 0 && !leads(doomed)) {
            doomed--;
        }
        // Jedis 8.0.0 sends commands without keys to the leader of the time of its start: see README.md.
        Set<String> deaf = mode.equals("cluster") ? Set.of("Jedis:kill") : Set.of();
        overTheKill(connects, !mode.isEmpty(), deaf, doomed);
        System.out.printf("  %d of %d pass%n", ran - failures, ran);
        System.exit(failures > 0 ? 1 : 0);
    }
}
