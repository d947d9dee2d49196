import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolVersion;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;

/**
 * Stock Java clients (Jedis, Lettuce) against three nodes of Holdfast. Neither has a lock of its own:
 * they lock as the Redis documentation says, by SET NX PX and a script.
 *
 * <p>Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the leader and
 * prints the address it had.
 */
public final class Suite extends Checks {
    static final String RELEASE =
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    static final String EXTEND =
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
    static final long LONG_MILLIS = 120_000; // TTL of what is held over the kill
    static final long SOON_MILLIS = 5_000; // within which a lock can be taken after the kill

    /** What the clients have in common. */
    interface Client extends AutoCloseable {
        boolean setIfMissing(String key, String token, long millis);

        String get(String key);

        String set(String key, String value);

        long increment(String key);

        long remainingMillis(String key);

        Object eval(String script, String key, String... args);

        String load(String script);

        Object evalSha(String sha, String key, String... args);

        List<Long> pipeline(int count, String key);

        /** Watches key, runs between, then MULTI, SET key 7, INCR key, EXEC; null when the watch failed. */
        List<Object> watched(String key, Runnable between);

        void unknownCommand();

        @Override
        void close();
    }

    interface Connect {
        Client to(String node, int database);
    }

    static final class JedisClient implements Client {
        private final UnifiedJedis jedis;

        JedisClient(String node, int database, RedisProtocol protocol) {
            DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().database(database).clientName("suite");
            if (protocol != null) {
                config.protocol(protocol);
            }
            jedis = RedisClient.builder().hostAndPort(HostAndPort.from(node)).clientConfig(config.build()).build();
        }

        public boolean setIfMissing(String key, String token, long millis) {
            return jedis.set(key, token, SetParams.setParams().nx().px(millis)) != null;
        }

        public String get(String key) {
            return jedis.get(key);
        }

        public String set(String key, String value) {
            return jedis.set(key, value);
        }

        public long increment(String key) {
            return jedis.incr(key);
        }

        public long remainingMillis(String key) {
            return jedis.pttl(key);
        }

        public Object eval(String script, String key, String... args) {
            return jedis.eval(script, List.of(key), Arrays.asList(args));
        }

        public String load(String script) {
            return jedis.scriptLoad(script);
        }

        public Object evalSha(String sha, String key, String... args) {
            return jedis.evalsha(sha, List.of(key), Arrays.asList(args));
        }

        public List<Long> pipeline(int count, String key) {
            List<Response<Long>> replies = new ArrayList<>();
            try (var pipe = jedis.pipelined()) {
                for (int i = 0; i < count; i++) {
                    replies.add(pipe.incr(key));
                }
                pipe.sync();
            }
            return replies.stream().map(Response::get).toList();
        }

        public List<Object> watched(String key, Runnable between) {
            try (AbstractTransaction tx = jedis.transaction(false)) {
                tx.watch(key);
                between.run();
                tx.multi();
                tx.set(key, "7");
                tx.incr(key);
                return tx.exec();
            }
        }

        public void unknownCommand() {
            jedis.sendCommand(() -> "NOSUCH".getBytes(StandardCharsets.UTF_8), "x");
        }

        public void close() {
            jedis.close();
        }
    }

    static final class LettuceClient implements Client {
        private final io.lettuce.core.RedisClient client;
        private final StatefulRedisConnection<String, String> connection;

        LettuceClient(String node, int database, ProtocolVersion protocol) {
            HostAndPort at = HostAndPort.from(node);
            client = io.lettuce.core.RedisClient.create(
                    RedisURI.builder().withHost(at.getHost()).withPort(at.getPort()).withDatabase(database).withClientName("suite").build());
            if (protocol != null) {
                client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
            }
            connection = client.connect();
        }

        public boolean setIfMissing(String key, String token, long millis) {
            return connection.sync().set(key, token, SetArgs.Builder.nx().px(millis)) != null;
        }

        public String get(String key) {
            return connection.sync().get(key);
        }

        public String set(String key, String value) {
            return connection.sync().set(key, value);
        }

        public long increment(String key) {
            return connection.sync().incr(key);
        }

        public long remainingMillis(String key) {
            return connection.sync().pttl(key);
        }

        public Object eval(String script, String key, String... args) {
            return connection.sync().eval(script, ScriptOutputType.INTEGER, new String[] {key}, args);
        }

        public String load(String script) {
            return connection.sync().scriptLoad(script);
        }

        public Object evalSha(String sha, String key, String... args) {
            return connection.sync().evalsha(sha, ScriptOutputType.INTEGER, new String[] {key}, args);
        }

        public List<Long> pipeline(int count, String key) {
            List<RedisFuture<Long>> replies = new ArrayList<>();
            connection.setAutoFlushCommands(false);
            for (int i = 0; i < count; i++) {
                replies.add(connection.async().incr(key));
            }
            connection.flushCommands();
            connection.setAutoFlushCommands(true);
            return replies.stream().map(f -> f.toCompletableFuture().join()).toList();
        }

        public List<Object> watched(String key, Runnable between) {
            connection.sync().watch(key);
            between.run();
            connection.sync().multi();
            connection.sync().set(key, "7");
            connection.sync().incr(key);
            TransactionResult result = connection.sync().exec();
            return result.wasDiscarded() ? null : result.stream().toList();
        }

        public void unknownCommand() {
            connection.sync().dispatch(
                    () -> "NOSUCH".getBytes(StandardCharsets.UTF_8), new StatusOutput<>(StringCodec.UTF8), new CommandArgs<>(StringCodec.UTF8).add("x"));
        }

        public void close() {
            connection.close();
            client.shutdown();
        }
    }

    static final Map<String, Connect> CLIENTS = new LinkedHashMap<>();

    static {
        CLIENTS.put("Jedis default", (node, database) -> new JedisClient(node, database, null));
        CLIENTS.put("Jedis RESP3", (node, database) -> new JedisClient(node, database, RedisProtocol.RESP3));
        CLIENTS.put("Jedis RESP2", (node, database) -> new JedisClient(node, database, RedisProtocol.RESP2));
        CLIENTS.put("Lettuce default", (node, database) -> new LettuceClient(node, database, null));
        CLIENTS.put("Lettuce RESP2", (node, database) -> new LettuceClient(node, database, ProtocolVersion.RESP2));
    }

    private final List<String> nodes = List.of(System.getenv("HOLDFAST_NODES").split(","));

    private static void expectError(String text, Step step) throws Exception {
        try {
            step.run();
        } catch (JedisDataException | RedisCommandExecutionException e) {
            if (!e.getMessage().contains(text)) {
                throw new AssertionError("error \"" + e.getMessage() + "\" does not say \"" + text + "\"");
            }
            return;
        }
        throw new AssertionError("no error, expected \"" + text + "\"");
    }

    private void commands(String name, Connect connect, String node, String other) throws Exception {
        String key = "java:" + name + ":" + node;
        try (Client c = connect.to(node, 0); Client o = connect.to(other, 0); Client nine = connect.to(node, 9)) {
            expect(c.setIfMissing(key, "a", 30_000), true);
            expect(o.setIfMissing(key, "b", 30_000), false);
            expect(c.eval(RELEASE, key, "b"), 0L);
            expect(c.evalSha(o.load(EXTEND), key, "a", String.valueOf(LONG_MILLIS)), 1L);
            expect(o.remainingMillis(key) > 30_000, true);
            expect(nine.get(key), null);
            expect(o.eval(RELEASE, key, "a"), 1L);
            expect(c.get(key), null);
            long fence = c.increment("java:fence");
            expect(o.increment("java:fence") > fence, true);
            List<Long> replies = c.pipeline(1000, key);
            for (int i = 0; i < 1000; i++) {
                expect(replies.get(i), i + 1L);
            }
            expectError("unknown command", c::unknownCommand);
            c.set(key, "text");
            expectError("not an integer", () -> c.increment(key));
            expectError("NOSCRIPT", () -> c.evalSha("0".repeat(40), key));
            expect(c.watched(key, () -> {}), List.of("OK", 8L));
            expect(c.watched(key, () -> o.set(key, "theirs")), null);
            expect(c.get(key), "theirs");
            expect(c.eval(RELEASE, key, "theirs"), 1L);
        }
    }

    private void overTheKill() throws Exception {
        Map<String, Map<String, Client>> clients = new LinkedHashMap<>();
        for (var entry : CLIENTS.entrySet()) {
            Map<String, Client> byNode = new LinkedHashMap<>();
            for (String node : nodes) {
                Client c = entry.getValue().to(node, 0);
                byNode.put(node, c);
                check(entry.getKey() + " takes a lock on " + node + " to hold over the kill",
                        () -> expect(c.setIfMissing(entry.getKey() + ":held:" + node, "token", LONG_MILLIS), true));
            }
            clients.put(entry.getKey(), byNode);
        }
        long fence = clients.get("Jedis default").get(nodes.get(0)).increment("java:fence");
        Process kill = new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String dead = new String(kill.getInputStream().readAllBytes(), StandardCharsets.UTF_8).trim();
        List<String> alive = nodes.stream().filter(n -> !n.equals(dead)).toList();
        expect(alive.size(), 2);
        long started = System.nanoTime();
        for (var entry : clients.entrySet()) {
            check(entry.getKey() + " over the kill", () -> survived(entry.getKey(), entry.getValue(), alive, fence));
            if (entry.getKey().equals("Jedis default")) {
                System.out.printf("  killed the leader, %s; a new lock was taken and the held ones seen %d ms later%n", dead, (System.nanoTime() - started) / 1_000_000);
            }
        }
        clients.values().forEach(byNode -> byNode.values().forEach(Client::close));
    }

    private void survived(String name, Map<String, Client> byNode, List<String> alive, long fence) throws Exception {
        within(SOON_MILLIS, () -> byNode.get(alive.get(0)).setIfMissing("java:new:" + name, "token", LONG_MILLIS));
        for (String at : alive) {
            Client c = byNode.get(at);
            for (String node : nodes) {
                String key = name + ":held:" + node;
                expect(c.get(key), "token");
                expect(c.setIfMissing(key, "stranger", LONG_MILLIS), false);
                expect(c.eval(RELEASE, key, "stranger"), 0L);
                expect(c.eval(EXTEND, key, "token", String.valueOf(LONG_MILLIS)), 1L);
            }
            expect(c.increment("java:fence") > fence, true);
        }
        for (String node : nodes) {
            expect(byNode.get(alive.get(1)).eval(RELEASE, name + ":held:" + node, "token"), 1L);
        }
    }

    private void run() throws Exception {
        for (int i = 0; i < nodes.size(); i++) {
            String node = nodes.get(i);
            String other = nodes.get((i + 1) % nodes.size());
            CLIENTS.forEach((name, connect) -> check(name + " on " + node, () -> commands(name, connect, node, other)));
        }
        overTheKill();
    }

    public static void main(String[] args) throws Exception {
        java.util.logging.LogManager.getLogManager().reset(); // Lettuce reports every try to reconnect to the killed node
        Suite suite = new Suite();
        suite.run();
        System.exit(failures > 0 ? 1 : 0);
    }
}
