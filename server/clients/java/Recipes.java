import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Native locks by Lettuce: the recipe, and checks of it against three nodes.
 *
 * <p>Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the leader and
 * prints the address it had.
 */
public final class Recipes {
    // The recipe begins.

    /** A native lock that ends with its connection. NOTIFY leaves the connection free while the lock is waited for. */
    static final class Lock implements AutoCloseable {
        final String name;
        final String owner = UUID.randomUUID().toString();
        final long session;
        final StatefulRedisConnection<String, String> connection;
        volatile String lost; // the reason, once it is known
        private volatile CompletableFuture<Long> granted;

        /** The client must not connect again by itself: the session is the connection's. */
        Lock(RedisClient client, String name, long leaseMillis) {
            client.setOptions(ClientOptions.builder().autoReconnect(false).build()); // RESP3 is the default
            this.name = name;
            connection = client.connect();
            connection.addListener(message -> told(message.getType(), message.getContent(StringCodec.UTF8::decodeValue)));
            session = number(connection, "SESSION.OPEN", "PX", leaseMillis, "CONNECTION");
        }

        private void told(String type, List<Object> words) { // lock, what, name, owner, fence, reason
            if (!type.equals("lock") || !words.get(2).equals(name) || !words.get(3).equals(owner)) {
                return;
            }
            switch ((String) words.get(1)) {
                case "granted" -> granted.complete((Long) words.get(4));
                case "timeout" -> granted.complete(null);
                case "lost" -> lost = (String) words.get(5);
                default -> { }
            }
        }

        /** Stands in line for so many milliseconds: the fence, or null in the end. */
        CompletableFuture<Long> acquire(long waitMillis, String note) {
            granted = new CompletableFuture<>();
            Long fence = number(connection, "LOCK.ACQUIRE", name, owner, "SESSION", session, "WAIT", waitMillis, "NOTIFY", "NOTE", note);
            return fence == 0 ? granted : CompletableFuture.completedFuture(fence);
        }

        boolean held() {
            return number(connection, "LOCK.CHECK", name, owner) != null;
        }

        void release() {
            number(connection, "LOCK.RELEASE", name, owner);
        }

        @Override
        public void close() {
            connection.close();
        }
    }

    /** Whether the holder with this fence may still write to the resource. */
    static boolean mayWrite(StatefulRedisConnection<String, String> c, String resource, long fence) {
        return number(c, "FENCE.PASS", resource, fence) == 1;
    }

    /** A command that Lettuce has no method for. */
    static <T> T send(StatefulRedisConnection<String, String> c, CommandOutput<String, String, T> output, Object... words) {
        CommandArgs<String, String> args = new CommandArgs<>(StringCodec.UTF8);
        for (int i = 1; i < words.length; i++) {
            args.add(String.valueOf(words[i]));
        }
        return c.sync().dispatch(new Word((String) words[0]), output, args);
    }

    static Long number(StatefulRedisConnection<String, String> c, Object... words) {
        return send(c, new IntegerOutput<>(StringCodec.UTF8), words);
    }

    record Word(String text) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return text.getBytes();
        }

        @Override
        public String toString() {
            return text;
        }
    }

    // The recipe ends.

    static final List<String> NODES = List.of(System.getenv("HOLDFAST_NODES").split(","));

    static RedisClient client(String node) {
        return RedisClient.create("redis://" + node);
    }

    static Lock lock(int node, String name) {
        return new Lock(client(NODES.get(node)), name, 30_000);
    }

    static StatefulRedisConnection<String, String> connect(int node) {
        return client(NODES.get(node)).connect();
    }

    static void expect(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError("found " + found + ", expected " + wanted);
        }
    }

    static void within(int seconds, Callable<Boolean> run) throws Exception {
        for (long deadline = System.nanoTime() + seconds * 1_000_000_000L; ; Thread.sleep(50)) {
            try {
                if (run.call()) {
                    return;
                }
            } catch (RuntimeException e) {
                // not yet
            }
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + seconds + " s");
            }
        }
    }

    static String info(String name) {
        return String.valueOf(send(connect(2), new NestedMultiOutput<>(StringCodec.UTF8), "LOCK.INFO", name));
    }

    static void waiting() throws Exception {
        Lock first = lock(0, "java:job");
        Lock second = lock(1, "java:job");
        long old = first.acquire(10_000, "").get(10, TimeUnit.SECONDS);
        CompletableFuture<Long> granted = second.acquire(20_000, "");
        within(10, () -> info("java:job").contains("waiters-count, 1"));
        first.release();
        long fence = granted.get(20, TimeUnit.SECONDS);
        expect(fence > old, true);
        expect(mayWrite(connect(2), "java:resource", fence), true);
        expect(mayWrite(connect(1), "java:resource", old), false);
        expect(first.acquire(100, "").get(10, TimeUnit.SECONDS), null);
        second.close(); // its session ends, and with it the hold
        expect(first.acquire(10_000, "").get(10, TimeUnit.SECONDS) > fence, true);
        first.close();
    }

    static void leases() {
        Long fence = number(connect(0), "LOCK.ACQUIRE", "java:lease", "me", "PX", 10_000);
        expect(number(connect(1), "LOCK.RENEW", "java:lease", "me", "PX", 60_000), fence);
        expect(number(connect(2), "LOCK.RENEW", "java:lease", "you", "PX", 60_000), null);
        expect(number(connect(0), "LOCK.RELEASE", "java:lease", "me"), 0L);
    }

    static void losses() throws Exception {
        Lock lock = lock(0, "java:lost");
        List<String> channel = java.util.Collections.synchronizedList(new ArrayList<>());
        var subscriber = client(NODES.get(1)).connectPubSub();
        subscriber.addListener(new io.lettuce.core.pubsub.RedisPubSubAdapter<>() {
            @Override
            public void message(String from, String text) {
                channel.add(text);
            }
        });
        subscriber.sync().subscribe("__lock@0__:java:lost");
        long fence = lock.acquire(10_000, "").get(10, TimeUnit.SECONDS);
        expect(number(connect(2), "LOCK.BREAK", "java:lost", "REASON", "a test"), 1L);
        within(10, () -> "broken".equals(lock.lost) && !lock.held());
        within(10, () -> channel.contains("lost " + lock.owner + " " + fence + " broken"));
        lock.close();
    }

    static void election() throws Exception {
        Lock leader = lock(0, "java:leader");
        Lock candidate = lock(1, "java:leader");
        leader.acquire(10_000, "10.0.0.1:80").get(10, TimeUnit.SECONDS);
        expect(info("java:leader").contains("10.0.0.1:80"), true);
        CompletableFuture<Long> won = candidate.acquire(20_000, "10.0.0.2:80");
        leader.close();
        expect(won.get(20, TimeUnit.SECONDS) > 0, true);
        expect(info("java:leader").contains("10.0.0.2:80"), true);
        candidate.close();
    }

    static void kill() throws Exception {
        Map<String, Lock> locks = new LinkedHashMap<>();
        Map<String, Long> fences = new LinkedHashMap<>();
        for (int i = 0; i < NODES.size(); i++) {
            Lock lock = lock(i, "java:kill:" + i);
            locks.put(NODES.get(i), lock);
            fences.put(NODES.get(i), lock.acquire(10_000, "").get(10, TimeUnit.SECONDS));
        }
        Process kill = new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String dead = new String(kill.getInputStream().readAllBytes()).trim();
        var alive = connect(NODES.indexOf(dead) == 0 ? 1 : 0);
        within(20, () -> number(alive, "SESSION.ATTACH", locks.get(dead).session) == 1);
        for (String node : NODES) {
            Lock lock = locks.get(node);
            expect(number(alive, "LOCK.CHECK", lock.name, lock.owner), fences.get(node));
            expect(node.equals(dead) || lock.held(), true);
        }
    }

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) {
        java.util.logging.LogManager.getLogManager().reset(); // Lettuce tells of every connection that it lost
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("waiting", Recipes::waiting);
        checks.put("leases", Recipes::leases);
        checks.put("losses", Recipes::losses);
        checks.put("election", Recipes::election);
        checks.put("kill", Recipes::kill);
        int failures = 0;
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            try {
                check.getValue().run();
                System.out.println("  ok    Lettuce: " + check.getKey());
            } catch (Throwable e) {
                failures++;
                System.out.println("  FAIL  Lettuce: " + check.getKey());
                e.printStackTrace(System.out);
            }
        }
        System.exit(failures > 0 ? 1 : 0);
    }
}
