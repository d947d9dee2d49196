import io.github.holdfast.HoldfastClient;
import io.github.holdfast.spring.HoldfastAutoConfiguration;
import io.github.holdfast.spring.HoldfastLockRegistry;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.core.env.MapPropertySource;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;

/** Spring Integration by HoldfastLockRegistry, by two clients at three nodes. Environment: HOLDFAST_NODES and HOLDFAST_KILL. */
public final class SpringSuite extends Checks {
    private static final class Candidate extends DefaultCandidate {
        final CountDownLatch granted = new CountDownLatch(1);
        final CountDownLatch revoked = new CountDownLatch(1);

        Candidate(String id) {
            super(id, "leader");
        }

        @Override
        public void onGranted(Context context) {
            granted.countDown();
        }

        @Override
        public void onRevoked(Context context) {
            revoked.countDown();
        }
    }

    /** What a thread of its own answers. */
    private static boolean apart(Callable<Boolean> ask) throws Exception {
        var task = new FutureTask<>(ask);
        new Thread(task).start();
        return task.get(20, TimeUnit.SECONDS);
    }

    private static LockRegistryLeaderInitiator campaign(LockRegistry registry, Candidate candidate) {
        var initiator = new LockRegistryLeaderInitiator(registry, candidate);
        initiator.setHeartBeatMillis(100);
        initiator.setBusyWaitMillis(20);
        initiator.start();
        return initiator;
    }

    private static void kill() throws Exception {
        new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).inheritIO().start().waitFor();
    }

    /** Takes a lock away, as an operator does. */
    private static void lose(String name) throws Exception {
        IOException down = null;
        for (var node : System.getenv("HOLDFAST_NODES").split(",")) {
            try (var socket = new Socket(node.split(":")[0], Integer.parseInt(node.split(":")[1]))) {
                socket.getOutputStream().write(("LOCK.BREAK " + name + "\r\n").getBytes(StandardCharsets.UTF_8));
                expect(socket.getInputStream().read(), (int) ':');
                return;
            } catch (IOException e) {
                down = e;
            }
        }
        throw down;
    }

    public static void main(String[] none) throws Exception {
        var nodes = System.getenv("HOLDFAST_NODES").split(",");
        try (var one = HoldfastClient.of(nodes); var two = HoldfastClient.of(nodes[1], nodes[2], nodes[0])) {
            var mine = new HoldfastLockRegistry(one, "spring");
            var other = new HoldfastLockRegistry(two, "spring");
            check("one holder, of all threads and programs; reentrant", () -> {
                var lock = mine.obtain("a");
                lock.lock();
                expect(lock.tryLock(), true);
                long fence = mine.fence("a");
                lock.unlock();
                expect(other.obtain("a").tryLock(), false);
                expect(apart(() -> mine.obtain("a").tryLock()), false);
                expect(other.obtain("b").tryLock(1, TimeUnit.SECONDS), true);
                lock.unlock();
                expect(other.obtain("a").tryLock(5, TimeUnit.SECONDS), true);
                expect(other.fence("a") > fence, true);
                other.obtain("a").unlock();
            });
            check("waits for its time, and no longer", () -> {
                mine.obtain("wait").lock();
                expect(other.obtain("wait").tryLock(200, TimeUnit.MILLISECONDS), false);
                var waiter = new FutureTask<>(() -> other.obtain("wait").tryLock(20, TimeUnit.SECONDS));
                new Thread(waiter).start();
                within(5000, () -> one.inspect("spring:wait").waiterCount() == 1);
                mine.obtain("wait").unlock();
                expect(waiter.get(20, TimeUnit.SECONDS), true);
            });
            check("an interrupt gives up the place", () -> {
                mine.obtain("interrupt").lock();
                var interrupted = new CountDownLatch(1);
                var waiter = new Thread(() -> {
                    try {
                        other.obtain("interrupt").lockInterruptibly();
                    } catch (InterruptedException e) {
                        interrupted.countDown();
                    }
                });
                waiter.start();
                within(5000, () -> one.inspect("spring:interrupt").waiterCount() == 1);
                waiter.interrupt();
                expect(interrupted.await(5, TimeUnit.SECONDS), true);
                within(5000, () -> one.inspect("spring:interrupt").waiterCount() == 0);
                mine.obtain("interrupt").unlock();
            });
            // As testUnlockWhenInterruptedBlocksUntilKeyRemoved of Spring's RedisLockRegistryTests has it.
            check("an interrupted thread locks and unlocks", () -> {
                other.obtain("uninterruptible").lock();
                var locked = new FutureTask<>(() -> {
                    var lock = mine.obtain("uninterruptible");
                    Thread.currentThread().interrupt();
                    lock.lock();
                    lock.unlock();
                    return Thread.interrupted();
                });
                new Thread(locked).start();
                within(5000, () -> one.inspect("spring:uninterruptible").waiterCount() == 1);
                expect(locked.isDone(), false);
                other.obtain("uninterruptible").unlock();
                expect(locked.get(20, TimeUnit.SECONDS), true);
                expect(one.inspect("spring:uninterruptible").holderCount(), 0L);
            });
            // As testTwoLocks, testReentrantLockInterruptibly and executeLocked… of Spring's tests have it.
            check("two locks of one thread, one of them twice, and a body of code", () -> {
                var first = mine.obtain("first");
                first.lockInterruptibly();
                first.lockInterruptibly();
                expect(mine.executeLocked("second", () -> other.obtain("second").tryLock()), false);
                expect(other.obtain("second").tryLock(), true);
                other.obtain("second").unlock();
                first.unlock();
                expect(other.obtain("first").tryLock(), false);
                first.unlock();
                expect(other.obtain("first").tryLock(), true);
                other.obtain("first").unlock();
                var refused = new ArrayList<String>();
                try {
                    first.unlock();
                } catch (IllegalMonitorStateException e) {
                    refused.add("refused");
                }
                expect(refused, List.of("refused"));
            });
            check("unlock is for the thread that holds it", () -> {
                var refused = new ArrayList<String>();
                mine.obtain("thread").lock();
                apart(() -> {
                    try {
                        mine.obtain("thread").unlock();
                    } catch (IllegalMonitorStateException e) {
                        refused.add("refused");
                    }
                    return true;
                });
                expect(refused, List.of("refused"));
                mine.obtain("thread").unlock();
            });
            check("a lock that was lost", () -> {
                var lock = mine.obtain("lost");
                lock.lock();
                lose("spring:lost");
                within(5000, () -> !lock.tryLock());
                expect(other.obtain("lost").tryLock(5, TimeUnit.SECONDS), true);
                other.obtain("lost").unlock();
                lock.lock();
                lose("spring:lost");
                boolean told = false;
                try {
                    lock.unlock();
                } catch (ConcurrentModificationException e) {
                    told = true;
                }
                expect(told, true);
            });
            check("eight threads of two programs", () -> {
                var inside = new AtomicInteger();
                var most = new AtomicInteger();
                var threads = new Thread[8];
                for (int i = 0; i < threads.length; i++) {
                    var lock = (i % 2 == 0 ? mine : other).obtain("many");
                    threads[i] = new Thread(() -> {
                        for (int round = 0; round < 25; round++) {
                            lock.lock();
                            most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                            Thread.yield();
                            inside.decrementAndGet();
                            lock.unlock();
                        }
                    });
                    threads[i].start();
                }
                for (var thread : threads) {
                    thread.join();
                }
                expect(most.get(), 1);
            });
            check("auto-configuration", () -> {
                var context = new AnnotationConfigApplicationContext();
                context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("test",
                        Map.of("holdfast.nodes", System.getenv("HOLDFAST_NODES"), "holdfast.ttl", "5s")));
                context.register(AutoConfigurations.getClasses(AutoConfigurations.of(HoldfastAutoConfiguration.class)));
                context.refresh();
                var lock = context.getBean(LockRegistry.class).obtain("auto");
                expect(lock.tryLock(5, TimeUnit.SECONDS), true);
                expect(one.inspect("spring:auto").holderCount(), 1L);
                context.close();
                within(5000, () -> one.inspect("spring:auto").holderCount() == 0);
            });
            check("a leader that stops, one that is broken, and the node of one killed", () -> {
                var first = new Candidate("first");
                var second = new Candidate("second");
                var third = new Candidate("third");
                var leader = campaign(mine, first);
                expect(first.granted.await(10, TimeUnit.SECONDS), true);
                var follower = campaign(other, second);
                leader.stop();
                expect(first.revoked.await(10, TimeUnit.SECONDS), true);
                expect(second.granted.await(10, TimeUnit.SECONDS), true);
                kill();
                expect(second.revoked.await(1, TimeUnit.SECONDS), false);
                var last = campaign(mine, third);
                within(10_000, () -> {
                    lose("spring:leader");
                    return second.revoked.getCount() == 0;
                });
                within(10_000, () -> one.inspect("spring:leader").holderCount() == 1);
                follower.stop();
                expect(third.granted.await(20, TimeUnit.SECONDS), true);
                last.stop();
            });
        }
        System.exit(failures > 0 ? 1 : 0);
    }
}
