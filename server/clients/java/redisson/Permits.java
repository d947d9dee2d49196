import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Semaphores and latches, by three clients on all nodes. */
final class Permits {
    private final List<RedissonClient> clients;
    private final String prefix;

    Permits(List<RedissonClient> clients, String prefix) {
        this.clients = clients;
        this.prefix = prefix;
    }

    void run() {
        Support.check(prefix + "semaphore: nine threads, three at a time", this::semaphore);
        Support.check(prefix + "semaphore: waiting, draining, adding", this::permits);
        Support.check(prefix + "permit-expirable semaphore: nine threads, three at a time", this::expirable);
        Support.check(prefix + "permit-expirable semaphore: a permit ends, and wakes a waiter", this::ended);
        Support.check(prefix + "count-down latch: waiters on all nodes are woken", this::latch);
    }

    private String name(String what) {
        return "redisson:" + prefix.trim().replace(' ', '-') + ":" + what;
    }

    private void semaphore() throws Exception {
        String name = name("semaphore");
        Support.expect(clients.get(0).getSemaphore(name).trySetPermits(3), true);
        Support.expect(clients.get(1).getSemaphore(name).trySetPermits(9), false);
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger done = new AtomicInteger();
        List<Callable<Void>> threads = new ArrayList<>();
        for (int i = 0; i < 9; i++) {
            RSemaphore semaphore = clients.get(i % clients.size()).getSemaphore(name);
            threads.add(() -> {
                for (int round = 0; round < 5; round++) {
                    semaphore.acquire();
                    Support.expect(inside.incrementAndGet() <= 3, "three permits, three holders");
                    done.incrementAndGet();
                    inside.decrementAndGet();
                    semaphore.release();
                }
                return null;
            });
        }
        Support.together(threads);
        Support.expect(done.get(), 45);
        Support.expect(clients.get(2).getSemaphore(name).availablePermits(), 3);
    }

    private void permits() throws Exception {
        String name = name("permits");
        RSemaphore mine = clients.get(0).getSemaphore(name);
        RSemaphore theirs = clients.get(1).getSemaphore(name);
        Support.expect(mine.trySetPermits(2), true);
        Support.expect(mine.tryAcquire(2), true);
        Support.expect(theirs.tryAcquire(300, TimeUnit.MILLISECONDS), false);
        Future<Boolean> waiter = Support.apart(() -> theirs.tryAcquire(3, 20, TimeUnit.SECONDS));
        Thread.sleep(200);
        mine.release(2);
        Thread.sleep(200);
        Support.expectWaits(waiter);
        clients.get(2).getSemaphore(name).addPermits(2);
        Support.expect(Support.result(waiter), true);
        Support.expect(mine.drainPermits(), 1);
        Support.expect(theirs.availablePermits(), 0);
    }

    private void expirable() throws Exception {
        String name = name("expirable");
        Support.expect(clients.get(0).getPermitExpirableSemaphore(name).trySetPermits(3), true);
        AtomicInteger inside = new AtomicInteger();
        List<Callable<Void>> threads = new ArrayList<>();
        for (int i = 0; i < 9; i++) {
            RPermitExpirableSemaphore semaphore = clients.get(i % clients.size()).getPermitExpirableSemaphore(name);
            threads.add(() -> {
                for (int round = 0; round < 4; round++) {
                    String permit = semaphore.acquire(60, TimeUnit.SECONDS);
                    Support.expect(inside.incrementAndGet() <= 3, "three permits, three holders");
                    inside.decrementAndGet();
                    semaphore.release(permit);
                }
                return null;
            });
        }
        Support.together(threads);
        Support.expect(clients.get(1).getPermitExpirableSemaphore(name).availablePermits(), 3);
    }

    private void ended() throws Exception {
        String name = name("ended");
        RPermitExpirableSemaphore mine = clients.get(0).getPermitExpirableSemaphore(name);
        RPermitExpirableSemaphore theirs = clients.get(1).getPermitExpirableSemaphore(name);
        Support.expect(mine.trySetPermits(2), true);
        String kept = mine.acquire();
        String brief = mine.acquire(1_500, TimeUnit.MILLISECONDS);
        Support.expect(theirs.availablePermits(), 0);
        Support.expect(theirs.tryAcquire() == null, "no permit is left");
        Support.expect(theirs.tryRelease("00112233445566778899aabbccddeeff"), false);
        Support.expect(mine.updateLeaseTime(kept, 60, TimeUnit.SECONDS), true);
        String permit = theirs.tryAcquire(20, 60, TimeUnit.SECONDS);
        Support.expect(permit != null, "the permit that ended is had by the waiter");
        Support.expect(mine.tryRelease(brief), false);
        Support.expect(theirs.getPermits(), 2);
        Support.expect(theirs.acquiredPermits(), 2);
        mine.release(kept);
        theirs.release(permit);
        Support.expect(theirs.availablePermits(), 2);
    }

    private void latch() throws Exception {
        String name = name("latch");
        Support.expect(clients.get(0).getCountDownLatch(name).trySetCount(3), true);
        List<Future<Boolean>> waiters = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            RCountDownLatch latch = clients.get(i % clients.size()).getCountDownLatch(name);
            waiters.add(Support.apart(() -> latch.await(30, TimeUnit.SECONDS)));
        }
        for (RedissonClient client : clients) {
            for (Future<Boolean> waiter : waiters) {
                Support.expectWaits(waiter);
            }
            client.getCountDownLatch(name).countDown();
        }
        for (Future<Boolean> waiter : waiters) {
            Support.expect(Support.result(waiter), true);
        }
        Support.expect(clients.get(1).getCountDownLatch(name).getCount(), 0L);
        Support.expect(clients.get(2).getCountDownLatch(name).await(1, TimeUnit.SECONDS), true);
    }
}
