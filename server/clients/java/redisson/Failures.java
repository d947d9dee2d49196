import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** What is held and waited for when a holder's process ends, and when the leader is killed. */
final class Failures {
    private final List<RedissonClient> clients; // by node
    private final String mode;

    Failures(List<RedissonClient> clients, String mode) {
        this.clients = clients;
        this.mode = mode;
    }

    private String name(String what) {
        return "redisson:" + mode + ":" + what.replace(' ', '-');
    }

    /** A client ends without a release: its locks end with the watchdog, not before, and waiters get them. */
    void holderKilled() {
        RedissonClient holder = Support.client(mode, 2, Support.WATCHDOG_MILLIS);
        Map<String, Future<Boolean>> waiters = new LinkedHashMap<>();
        long[] ended = {0};
        Support.check(mode + ": a client takes a lock of each kind and ends", () -> {
            List<Callable<Void>> takes = new ArrayList<>();
            Locks.KINDS.forEach((label, kind) -> takes.add(() -> {
                kind.of(holder, name("holder " + label)).lock();
                return null;
            }));
            Support.together(takes);
            Locks.KINDS.forEach((label, kind) -> waiters.put(label, Support.apart(() -> {
                RLock lock = kind.of(clients.get(0), name("holder " + label));
                return lock.tryLock(60, 5, TimeUnit.SECONDS);
            })));
            Thread.sleep(500);
            ended[0] = System.nanoTime();
            holder.shutdown(0, 5, TimeUnit.SECONDS);
        });
        waiters.forEach((label, waiter) -> Support.check(mode + ": " + label + " of a client that ended is had by a waiter", () -> {
            Support.expect(Support.result(waiter), true);
            Support.expect(System.nanoTime() - ended[0] > 1_000_000_000L, "not while the lease lasts");
        }));
    }

    /**
     * The leader is killed while locks are held and waited for. In mode single, holder and waiters are on
     * the nodes that are left; else every client finds the new leader.
     */
    void leaderKilled() throws Exception {
        List<String> replications = Support.NODES.stream().map(Support::replication).toList();
        List<RedissonClient> left = new ArrayList<>();
        for (int i = clients.size() - 1; i >= 0; i--) {
            boolean leads = replications.get(i).contains("role:master");
            if (!mode.equals("single") || !leads || left.size() + i < 2) {
                left.add(clients.get(i));
            }
        }
        RedissonClient holder = left.get(0);
        RedissonClient rival = left.get(1);
        Map<String, CountDownLatch> release = new LinkedHashMap<>();
        Map<String, Future<Void>> holders = new LinkedHashMap<>();
        Map<String, Future<Boolean>> waiters = new LinkedHashMap<>();
        Support.check(mode + ": locks of each kind are held and waited for", () -> hold(holder, rival, release, holders, waiters));
        RSemaphore semaphore = holder.getSemaphore(name("killed semaphore"));
        RPermitExpirableSemaphore expirable = holder.getPermitExpirableSemaphore(name("killed expirable"));
        RCountDownLatch latch = holder.getCountDownLatch(name("killed latch"));
        semaphore.trySetPermits(1);
        semaphore.acquire();
        expirable.trySetPermits(1);
        String permit = expirable.acquire(120, TimeUnit.SECONDS);
        latch.trySetCount(1);
        Future<Boolean> semaphoreWaiter = Support.apart(() -> rival.getSemaphore(name("killed semaphore")).tryAcquire(60, TimeUnit.SECONDS));
        Future<Boolean> expirableWaiter = Support.apart(() -> rival.getPermitExpirableSemaphore(name("killed expirable")).tryAcquire(60, 60, TimeUnit.SECONDS) != null);
        Future<Boolean> latchWaiter = Support.apart(() -> rival.getCountDownLatch(name("killed latch")).await(60, TimeUnit.SECONDS));
        Thread.sleep(500);
        String dead = Support.kill();
        long started = System.nanoTime();
        Support.check(mode + ": a new lock after the kill", () -> Support.within(Support.SOON_MILLIS, () -> {
            rival.getLock(name("new")).lock(30, TimeUnit.SECONDS);
            return true;
        }));
        System.out.printf("  killed the leader, %s; a new lock was taken %d ms later%n", dead, (System.nanoTime() - started) / 1_000_000);
        Thread.sleep(Support.PATIENT_WATCHDOG_MILLIS); // the holder renews with the new leader
        Locks.KINDS.forEach((label, kind) -> Support.check(mode + ": " + label + " over the kill", () -> {
            Support.expectWaits(waiters.get(label));
            release.get(label).countDown();
            Support.result(holders.get(label));
            Support.expect(Support.result(waiters.get(label)), true);
        }));
        Support.check(mode + ": semaphore over the kill", () -> {
            Support.expectWaits(semaphoreWaiter);
            Support.within(Support.SOON_MILLIS, () -> { semaphore.release(); return true; });
            Support.expect(Support.result(semaphoreWaiter), true);
        });
        Support.check(mode + ": permit-expirable semaphore over the kill", () -> {
            Support.expectWaits(expirableWaiter);
            Support.within(Support.SOON_MILLIS, () -> { expirable.release(permit); return true; });
            Support.expect(Support.result(expirableWaiter), true);
        });
        Support.check(mode + ": count-down latch over the kill", () -> {
            Support.expectWaits(latchWaiter);
            Support.within(Support.SOON_MILLIS, () -> { latch.countDown(); return true; });
            Support.expect(Support.result(latchWaiter), true);
        });
    }

    private void hold(RedissonClient holder, RedissonClient rival, Map<String, CountDownLatch> release,
            Map<String, Future<Void>> holders, Map<String, Future<Boolean>> waiters) throws Exception {
        CountDownLatch held = new CountDownLatch(Locks.KINDS.size());
        Locks.KINDS.forEach((label, kind) -> {
            release.put(label, new CountDownLatch(1));
            holders.put(label, Support.apart(() -> {
                RLock lock = kind.of(holder, name("killed " + label));
                lock.lock();
                held.countDown();
                release.get(label).await();
                lock.unlock();
                return null;
            }));
        });
        Support.expect(held.await(30, TimeUnit.SECONDS), true);
        Locks.KINDS.forEach((label, kind) -> waiters.put(label, Support.apart(() -> {
            RLock lock = kind.of(rival, name("killed " + label));
            return lock.tryLock(80, 30, TimeUnit.SECONDS);
        })));
    }
}
