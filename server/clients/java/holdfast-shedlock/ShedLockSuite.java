import io.github.holdfast.HoldfastClient;
import io.github.holdfast.shedlock.HoldfastLockProvider;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;

/** ShedLock by HoldfastLockProvider, by two clients at three nodes. Environment: HOLDFAST_NODES and HOLDFAST_KILL. */
public final class ShedLockSuite extends Checks {
    private static final Duration LONG = Duration.ofMinutes(2);
    private static final Duration SHORT = Duration.ofMillis(300);

    private static LockConfiguration job(String name, Duration most, Duration least) {
        return new LockConfiguration(Instant.now(), name, most, least);
    }

    private static SimpleLock take(LockProvider provider, String name, Duration most, Duration least) {
        return provider.lock(job(name, most, least)).orElseThrow();
    }

    private static boolean isFree(LockProvider provider, String name) {
        var lock = provider.lock(job(name, LONG, Duration.ZERO));
        lock.ifPresent(SimpleLock::unlock);
        return lock.isPresent();
    }

    public static void main(String[] none) throws Exception {
        var nodes = System.getenv("HOLDFAST_NODES").split(",");
        try (var one = HoldfastClient.of(nodes); var two = HoldfastClient.of(nodes[1], nodes[2], nodes[0])) {
            var mine = new HoldfastLockProvider(one);
            var other = new HoldfastLockProvider(two);
            check("held until it is unlocked", () -> {
                var lock = take(mine, "a", LONG, Duration.ZERO);
                expect(isFree(other, "a") || isFree(mine, "a"), false);
                expect(isFree(other, "b"), true);
                lock.unlock();
                expect(isFree(other, "a"), true);
            });
            check("free when lockAtMostFor is over, and not unlocked by the former holder", () -> {
                var lock = take(mine, "most", SHORT, Duration.ZERO);
                within(5000, () -> other.lock(job("most", LONG, Duration.ZERO)).isPresent());
                lock.unlock();
                expect(isFree(mine, "most"), false);
            });
            check("kept for lockAtLeastFor", () -> {
                var begun = System.nanoTime();
                take(mine, "least", LONG, SHORT.multipliedBy(3)).unlock();
                expect(isFree(mine, "least"), false);
                within(5000, () -> isFree(other, "least"));
                expect(System.nanoTime() - begun >= SHORT.toNanos() * 3, true);
            });
            check("extended while it is held", () -> {
                var lock = take(mine, "extend", SHORT.multipliedBy(5), Duration.ZERO);
                var longer = lock.extend(LONG, Duration.ZERO).orElseThrow();
                Thread.sleep(SHORT.multipliedBy(6).toMillis());
                expect(isFree(other, "extend"), false);
                longer.unlock();
                expect(isFree(other, "extend"), true);
            });
            check("not extended once it has ended", () -> {
                var lock = take(mine, "ended", SHORT, Duration.ZERO);
                within(5000, () -> isFree(other, "ended"));
                expect(lock.extend(LONG, Duration.ZERO).isPresent(), false);
                expect(isFree(other, "ended"), true);
            });
            check("one task at a time", () -> {
                var inside = new AtomicInteger();
                var most = new AtomicInteger();
                var ran = new AtomicInteger();
                Runnable task = () -> {
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    ran.incrementAndGet();
                    Thread.yield();
                    inside.decrementAndGet();
                };
                var threads = new Thread[4];
                for (int i = 0; i < threads.length; i++) {
                    var executor = new DefaultLockingTaskExecutor(i % 2 == 0 ? mine : other);
                    threads[i] = new Thread(() -> {
                        for (int round = 0; round < 25; round++) {
                            executor.executeWithLock(task, job("task", LONG, Duration.ZERO));
                        }
                    });
                    threads[i].start();
                }
                for (var thread : threads) {
                    thread.join();
                }
                expect(most.get(), 1);
                expect(ran.get() >= 25, true);
            });
            check("the leader is killed", () -> {
                var lock = take(mine, "kill", LONG, Duration.ZERO);
                new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).inheritIO().start().waitFor();
                expect(isFree(other, "kill"), false);
                lock.unlock();
                expect(isFree(other, "kill"), true);
            });
        }
        System.exit(failures > 0 ? 1 : 0);
    }
}
