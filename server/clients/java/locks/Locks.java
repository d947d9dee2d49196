import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** Lock libraries of Java under contention: see ../../exclusive.sh. Environment: HOLDFAST_NODES (host:port,...). */
public final class Locks {
    static final Duration LEASE = Duration.ofSeconds(5);

    /** A worker's lock: acquire answers how to release it, or null if it is another's. */
    interface Lock {
        Runnable acquire() throws Exception;
    }

    interface Library {
        Lock at(LettuceConnectionFactory node);
    }

    static final Map<String, Library> CASES = new TreeMap<>(Map.of(
            "shedlock", node -> {
                var provider = new RedisLockProvider(node);
                return () -> provider.lock(new LockConfiguration(Instant.now(), "job", LEASE, Duration.ZERO))
                        .<Runnable>map(lock -> lock::unlock).orElse(null);
            },
            "spring-integration-spin", node -> registry(node, RedisLockType.SPIN_LOCK),
            "spring-integration-pubsub", node -> registry(node, RedisLockType.PUB_SUB_LOCK)));

    static Lock registry(LettuceConnectionFactory node, RedisLockType type) {
        var registry = new RedisLockRegistry(node, type.name(), LEASE.toMillis());
        registry.setRedisLockType(type);
        var lock = registry.obtain("job");
        return () -> lock.tryLock(10, TimeUnit.SECONDS) ? lock::unlock : null;
    }

    static void work(int worker, String address, Library library) {
        var node = new LettuceConnectionFactory(address.split(":")[0], Integer.parseInt(address.split(":")[1]));
        node.afterPropertiesSet();
        node.start();
        var lock = library.at(node);
        while (true) {
            try {
                var release = lock.acquire();
                if (release != null) {
                    System.out.println("+ " + worker + " job");
                    Thread.sleep(5);
                    System.out.println("- " + worker + " job");
                    release.run();
                }
                Thread.sleep(ThreadLocalRandom.current().nextInt(5, 20));
            } catch (Exception e) {
                System.err.println("worker " + worker + ": " + e);
            }
        }
    }

    public static void main(String[] name) {
        if (name.length == 0) {
            CASES.keySet().forEach(System.out::println);
            return;
        }
        var nodes = System.getenv("HOLDFAST_NODES").split(",");
        System.out.println("locks 1");
        for (int i = 0; i < 6; i++) {
            int worker = i;
            new Thread(() -> work(worker, nodes[worker % 3], CASES.get(name[0]))).start();
        }
    }
}
