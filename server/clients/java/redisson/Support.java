import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** What the cases share: clients, threads, expectations. */
final class Support {
    /** A lock that is no longer renewed ends after this; renewal comes three times as often. */
    static final long WATCHDOG_MILLIS = 6_000;
    /**
     * The same where the leader is killed. It is longer than a client needs to find the next leader: one
     * that asks a node for its role while the node dies waits 3 s for the answer and up to 2 s before it
     * asks again, and renews nothing meanwhile.
     */
    static final long PATIENT_WATCHDOG_MILLIS = 18_000;
    /** Within which a waiter has a lock that is free, the leader killed or not. */
    static final long SOON_MILLIS = 30_000;

    static final List<String> NODES = List.of(System.getenv("HOLDFAST_NODES").split(","));
    static final ExecutorService THREADS = Executors.newCachedThreadPool();

    private static int ran;
    private static int failures;

    private Support() {}

    interface Step {
        void run() throws Exception;
    }

    static void check(String name, Step step) {
        long started = System.nanoTime();
        String failure = "";
        try {
            THREADS.submit(() -> {
                step.run();
                return null;
            }).get(90, TimeUnit.SECONDS);
        } catch (Exception e) {
            failure = String.valueOf(e.getCause() == null ? e : e.getCause());
            synchronized (Support.class) {
                (e.getCause() == null ? e : e.getCause()).printStackTrace(System.out);
            }
        }
        synchronized (Support.class) {
            ran++;
            if (failure.isEmpty()) {
                System.out.printf("  ok    %s (%d ms)%n", name, (System.nanoTime() - started) / 1_000_000);
            } else {
                failures++;
                System.out.printf("  FAIL  %s: %s%n", name, failure);
            }
        }
    }

    static int finish() {
        System.out.printf("  %d of %d pass%n", ran - failures, ran);
        return failures;
    }

    static void expect(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError("found " + found + ", expected " + wanted);
        }
    }

    static void expect(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }

    static void expectRefused(Class<? extends Exception> kind, Step step) throws Exception {
        try {
            step.run();
        } catch (Exception e) {
            expect(kind.isInstance(e), "the exception is a " + kind.getSimpleName() + ", not " + e);
            return;
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }

    /** Repeats attempt until it answers true; exceptions count as not yet. */
    static void within(long millis, Callable<Boolean> attempt) throws Exception {
        long deadline = System.nanoTime() + millis * 1_000_000;
        while (true) {
            String failure = "it answered false";
            try {
                if (attempt.call()) {
                    return;
                }
            } catch (Exception e) {
                failure = e.toString();
            }
            expect(System.nanoTime() < deadline, "within " + millis + " ms: " + failure);
            Thread.sleep(50);
        }
    }

    /** Runs step in a thread of its own: Redisson's locks belong to threads. */
    static <T> Future<T> apart(Callable<T> step) {
        return THREADS.submit(step);
    }

    static <T> T result(Future<T> future) throws Exception {
        return future.get(SOON_MILLIS + 10_000, TimeUnit.MILLISECONDS);
    }

    /** Runs steps at the same time, and fails with the first that failed. */
    static void together(List<Callable<Void>> steps) throws Exception {
        List<Future<Void>> all = new ArrayList<>();
        for (Callable<Void> step : steps) {
            all.add(THREADS.submit(step));
        }
        for (Future<Void> one : all) {
            one.get(60, TimeUnit.SECONDS);
        }
    }

    /** Fails with the result of future if there is one. */
    static void expectWaits(Future<?> future) throws Exception {
        if (future.isDone()) {
            throw new AssertionError("the wait is over: " + future.get());
        }
    }

    /** A client of one node in mode single, otherwise of the whole cluster. */
    static RedissonClient client(String mode, int node, long watchdogMillis) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogMillis).setThreads(4).setNettyThreads(4);
        String[] urls = NODES.stream().map(n -> "redis://" + n).toArray(String[]::new);
        switch (mode) {
            case "single" -> config.useSingleServer().setAddress(urls[node])
                    .setConnectionMinimumIdleSize(2).setConnectionPoolSize(16).setSubscriptionConnectionMinimumIdleSize(1);
            case "replicated" -> config.useReplicatedServers().addNodeAddress(urls).setScanInterval(500)
                    .setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
            case "sentinel" -> config.useSentinelServers().setMasterName(System.getenv().getOrDefault("HOLDFAST_MASTER", "mymaster"))
                    .addSentinelAddress(List.of(System.getenv("HOLDFAST_SENTINELS").split(",")).stream().map(n -> "redis://" + n).toArray(String[]::new))
                    .setScanInterval(500).setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
            case "cluster" -> config.useClusterServers().addNodeAddress(urls).setScanInterval(500)
                    .setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
            default -> throw new IllegalArgumentException(mode);
        }
        return Redisson.create(config);
    }

    /** The answer of INFO replication on a node, "" if it does not answer. */
    static String replication(String node) {
        String[] at = node.split(":");
        try (Socket socket = new Socket(at[0], Integer.parseInt(at[1]))) {
            socket.setSoTimeout(3_000);
            socket.getOutputStream().write("INFO replication\r\nQUIT\r\n".getBytes(StandardCharsets.UTF_8));
            var reader = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
            return String.join("\n", reader.lines().toList());
        } catch (Exception e) {
            return "";
        }
    }

    /** Kills the leader and answers its address. */
    static String kill() throws Exception {
        Process kill = new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String dead = new String(kill.getInputStream().readAllBytes(), StandardCharsets.UTF_8).trim();
        expect(NODES.contains(dead), "a node was killed: " + dead);
        return dead;
    }
}
