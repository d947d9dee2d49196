import io.github.holdfast.HoldfastClient;
import io.github.holdfast.shedlock.HoldfastLockProvider;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

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

    private static boolean isRefused(Runnable use) {
        try {
            use.run();
            return false;
        } catch (IllegalStateException e) {
            return true;
        }
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
            // From here to the counters: the cases of ShedLock's own base of tests, shedlock-test-support.
            check("extended several times, and for lockAtLeastFor", () -> {
                var lock = take(mine, "again", SHORT.multipliedBy(5), Duration.ZERO);
                lock = lock.extend(LONG, Duration.ZERO).orElseThrow().extend(LONG, Duration.ZERO).orElseThrow();
                Thread.sleep(SHORT.multipliedBy(6).toMillis());
                expect(isFree(other, "again"), false);
                lock.extend(LONG, LONG).orElseThrow().unlock();
                expect(isFree(other, "again"), false);
            });
            check("a lock that was extended or unlocked is of no more use", () -> {
                var lock = take(mine, "used", LONG, Duration.ZERO);
                var longer = lock.extend(LONG, Duration.ZERO).orElseThrow();
                expect(isRefused(() -> lock.extend(LONG, Duration.ZERO)), true);
                expect(isRefused(lock::unlock), true);
                expect(isFree(other, "used"), false);
                longer.unlock();
                expect(isRefused(() -> longer.extend(LONG, Duration.ZERO)), true);
                expect(isRefused(longer::unlock), true);
                expect(isFree(other, "used"), true);
            });
            check("locked right after the unlock", () -> {
                for (int round = 0; round < 10; round++) {
                    var lock = take(round % 2 == 0 ? mine : other, "turns", LONG, Duration.ZERO);
                    expect(isFree(mine, "turns") || isFree(other, "turns"), false);
                    lock.unlock();
                }
            });
            check("counters of two tasks, by eight threads", () -> {
                int threads = 8, rounds = 25;
                var counters = new int[2]; // each guarded by the lock of its task alone
                var tasks = new ArrayList<FutureTask<Void>>();
                for (int i = 0; i < threads; i++) {
                    int task = i / 2 % 2;
                    var executor = new DefaultLockingTaskExecutor(i % 2 == 0 ? mine : other);
                    tasks.add(new FutureTask<>(() -> {
                        var done = new AtomicInteger();
                        while (done.get() < rounds) {
                            executor.executeWithLock((Runnable) () -> {
                                int before = counters[task];
                                Thread.yield();
                                counters[task] = before + 1;
                                done.incrementAndGet();
                            }, job("task" + task, LONG, Duration.ZERO));
                        }
                        return null;
                    }));
                }
                tasks.forEach(task -> new Thread(task).start());
                for (var task : tasks) {
                    task.get(2, TimeUnit.MINUTES);
                }
                expect(List.of(counters[0], counters[1]), List.of(threads / 2 * rounds, threads / 2 * rounds));
            });
            check("unlocked by a task that was interrupted, and not locked", () -> {
                var lock = take(mine, "interrupted", LONG, Duration.ZERO);
                Thread.currentThread().interrupt();
                lock.unlock();
                expect(Thread.interrupted(), true);
                expect(isFree(other, "interrupted"), true);
                Thread.currentThread().interrupt();
                try {
                    take(mine, "interrupted", LONG, Duration.ZERO);
                    expect("locked", "refused");
                } catch (LockException e) {
                    expect(Thread.interrupted(), true);
                }
                within(5000, () -> isFree(other, "interrupted")); // what it had asked for is given back
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
