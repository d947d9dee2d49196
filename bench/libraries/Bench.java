import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.github.holdfast.HoldfastClient;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;
import org.redisson.Redisson;
import org.redisson.config.Config;

/** The benchmark's driver for Java's lock libraries: it reads a request and prints a reply, as bench/internal/drive. */
public final class Bench {
    private interface Lock {
        AutoCloseable acquire() throws Exception;
    }

    private static final String RUN = UUID.randomUUID().toString(); // what a former run left behind disturbs none
    private static final AtomicLong PAIRS = new AtomicLong();
    private static final AtomicLong HANDOFFS = new AtomicLong();
    private static final Set<Integer> SERVED = ConcurrentHashMap.newKeySet();
    private static final AtomicLong LAST = new AtomicLong(-1);
    private static final Map<String, Integer> ERRORS = new ConcurrentHashMap<>();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static JsonNode request;

    private static String[] addrs() {
        return JSON.convertValue(request.at("/target/addrs"), String[].class);
    }

    private static Lock lock(String name) throws Exception {
        switch (request.at("/target/name").asText()) {
            case "java-holdfast":
                var lock = HoldfastClient.of(addrs()).lock(name);
                return lock::acquire;
            case "java-redisson":
                var config = new Config().setThreads(2).setNettyThreads(2); // the defaults are for a program
                config.useSingleServer().setAddress("redis://" + addrs()[0]).setConnectionMinimumIdleSize(1)
                        .setConnectionPoolSize(4).setSubscriptionConnectionMinimumIdleSize(1)
                        .setSubscriptionConnectionPoolSize(4);
                var fair = Redisson.create(config).getFairLock(name);
                return () -> {
                    fair.lock();
                    return fair::unlock;
                };
            case "java-curator":
                var curator = CuratorFrameworkFactory.newClient(String.join(",", addrs()), new RetryForever(100));
                curator.start();
                var mutex = new InterProcessMutex(curator, "/" + name);
                return () -> {
                    mutex.acquire();
                    return mutex::release;
                };
            default:
                throw new IllegalArgumentException(request.at("/target/name").asText());
        }
    }

    private static void work(int worker) {
        boolean hot = request.get("workload").asText().equals("hot");
        try {
            var lock = lock("bench:" + RUN + ":" + (hot ? "hot" : worker));
            while (true) {
                try (var held = lock.acquire()) {
                    SERVED.add(worker);
                    PAIRS.incrementAndGet();
                    if (LAST.getAndSet(worker) != worker) {
                        HANDOFFS.incrementAndGet();
                    }
                }
                if (hot) {
                    double part = 0.5 + ThreadLocalRandom.current().nextDouble();
                    Thread.sleep((long) (request.at("/sizes/Poll").asLong() / 1e6 * part));
                }
            }
        } catch (Exception e) {
            ERRORS.merge(e.toString(), 1, Integer::sum);
        }
    }

    private static Map<String, Number> rate(long count, double seconds) {
        return Map.of("count", count, "per_second", count / seconds);
    }

    public static void main(String[] args) throws Exception {
        request = JSON.readTree(System.in);
        for (int i = 0; i < request.get("connections").asInt(); i++) {
            int worker = i;
            new Thread(() -> work(worker)).start();
        }
        while (SERVED.size() < request.get("connections").asInt() && ERRORS.isEmpty()) { // all are connected
            Thread.sleep(10);
        }
        Thread.sleep(request.get("warmup").asLong() / 1_000_000);
        long begun = System.nanoTime();
        long pairs = PAIRS.get();
        long handoffs = HANDOFFS.get();
        Thread.sleep(request.get("measure").asLong() / 1_000_000);
        double seconds = (System.nanoTime() - begun) / 1e9;
        var steps = Map.of("pair", rate(PAIRS.get() - pairs, seconds),
                "handoff", rate(HANDOFFS.get() - handoffs, seconds));
        System.out.println(JSON.writeValueAsString(Map.of("figures", Map.of("steps", steps, "errors", ERRORS))));
        Runtime.getRuntime().halt(0); // some wait
    }
}
