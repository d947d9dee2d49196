import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;

/** Every lock of Redisson that excludes, by three clients on all nodes. */
final class Locks {
    private interface Make {
        RLock of(RedissonClient client, String name);
    }

    /**
     * What a kind of lock can do: be taken again by its holder; tell who holds it, and be forced; refuse
     * the release of a lease that ended. What a kind lacks, it lacks on redis-server, too.
     */
    record Kind(Make make, boolean reentrant, boolean tells, boolean strict) {
        RLock of(RedissonClient client, String name) {
            return make.of(client, name);
        }
    }

    static final Map<String, Kind> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put("lock", new Kind(RedissonClient::getLock, true, true, true));
        KINDS.put("fair lock", new Kind(RedissonClient::getFairLock, true, true, false));
        KINDS.put("write lock", new Kind((c, name) -> c.getReadWriteLock(name).writeLock(), true, true, true));
        KINDS.put("spin lock", new Kind(RedissonClient::getSpinLock, true, true, true));
        KINDS.put("fenced lock", new Kind(RedissonClient::getFencedLock, true, true, true));
        KINDS.put("non-reentrant lock", new Kind(RedissonClient::getNonReentrantLock, false, true, true));
        KINDS.put("non-reentrant fair lock", new Kind(RedissonClient::getNonReentrantFairLock, false, true, false));
        KINDS.put("multi lock", new Kind((c, name) -> c.getMultiLock(parts(c, name)), true, false, true));
        KINDS.put("red lock", new Kind((c, name) -> c.getRedLock(parts(c, name)), true, false, false));
        // Its script leaves a hash alone that has less than a millisecond left, and with it the new holder.
        KINDS.put("multi lock of one hash", new Kind((c, name) -> c.getMultiLock(name, List.of("a", "b", "c")), true, false, false));
    }

    private static RLock[] parts(RedissonClient client, String name) {
        return new RLock[] {client.getLock(name + ":1"), client.getLock(name + ":2"), client.getLock(name + ":3")};
    }

    private final List<RedissonClient> clients;
    private final String prefix;

    Locks(List<RedissonClient> clients, String prefix) {
        this.clients = clients;
        this.prefix = prefix;
    }

    void run() throws Exception {
        List<Callable<Void>> all = new ArrayList<>();
        for (var kind : KINDS.entrySet()) {
            Support.check(prefix + kind.getKey() + ": nine threads exclude each other", () -> exclude(kind.getValue(), name(kind.getKey(), "exclude")));
            all.add(() -> {
                one(kind.getKey(), kind.getValue());
                return null;
            });
        }
        Support.together(all);
        Support.check(prefix + "read-write lock: readers share, a writer waits for them", this::readWrite);
        Support.check(prefix + "fenced lock: tokens grow over all clients", this::fenced);
        Support.check(prefix + "fair lock: waiters are served in order", () -> order(KINDS.get("fair lock"), name("fair lock", "order")));
        Support.check(prefix + "fair lock: a waiter that left does not block the queue", this::leftQueue);
    }

    /** The cases of one kind, which mostly wait: all kinds run at the same time. */
    private void one(String label, Kind kind) {
        Support.check(prefix + label + ": held, tried, released", () -> semantics(kind, name(label, "semantics")));
        Support.check(prefix + label + ": a waiter is woken by the release", () -> woken(kind, name(label, "woken")));
        Support.check(prefix + label + ": a lease ends", () -> expiry(kind, name(label, "expiry")));
        if (kind.tells()) {
            Support.check(prefix + label + ": forceUnlock frees, a waiter gets it", () -> forced(kind, name(label, "forced")));
        }
        Support.check(prefix + label + ": the watchdog renews", () -> renewed(kind, name(label, "renewed")));
    }

    private String name(String label, String what) {
        return "redisson:" + prefix.trim().replace(' ', '-') + ":" + label.replace(' ', '-') + ":" + what;
    }

    private void exclude(Kind kind, String name) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        int[] counter = {0};
        List<Callable<Void>> threads = new ArrayList<>();
        for (int i = 0; i < 9; i++) {
            RLock lock = kind.of(clients.get(i % clients.size()), name);
            threads.add(() -> {
                for (int round = 0; round < 4; round++) {
                    lock.lock();
                    try {
                        Support.expect(inside.incrementAndGet(), 1);
                        counter[0]++;
                        inside.decrementAndGet();
                    } finally {
                        lock.unlock();
                    }
                }
                return null;
            });
        }
        Support.together(threads);
        Support.expect(counter[0], 36);
    }

    private void semantics(Kind kind, String name) throws Exception {
        RLock mine = kind.of(clients.get(0), name);
        RLock theirs = kind.of(clients.get(1), name);
        Support.expect(mine.tryLock(), true);
        Support.expect(theirs.tryLock(), false);
        long started = System.nanoTime();
        Support.expect(theirs.tryLock(300, TimeUnit.MILLISECONDS), false);
        Support.expect(System.nanoTime() - started >= 290_000_000, "tryLock waited 300 ms");
        if (kind.tells()) {
            Support.expect(theirs.isLocked(), true);
            Support.expect(mine.isHeldByCurrentThread(), true);
            Support.expect(theirs.isHeldByCurrentThread(), false);
            Support.expect(mine.remainTimeToLive() > 0, "it has a TTL");
            Support.expectRefused(IllegalMonitorStateException.class, theirs::unlock);
        }
        if (kind.reentrant()) {
            mine.lock();
            if (kind.tells()) {
                Support.expect(mine.getHoldCount(), 2);
            }
            mine.unlock();
            Support.expect(theirs.tryLock(), false);
        }
        mine.unlock();
        Support.expect(theirs.tryLock(5, 30, TimeUnit.SECONDS), true);
        Support.expect(mine.tryLock(), false);
        theirs.unlock();
    }

    private void woken(Kind kind, String name) throws Exception {
        RLock mine = kind.of(clients.get(1), name);
        mine.lock(60, TimeUnit.SECONDS);
        Future<Boolean> waiter = Support.apart(() -> {
            RLock theirs = kind.of(clients.get(2), name);
            boolean got = theirs.tryLock(40, 60, TimeUnit.SECONDS);
            if (got) {
                theirs.unlock();
            }
            return got;
        });
        Thread.sleep(300);
        Support.expectWaits(waiter);
        mine.unlock();
        // The lease has a minute left: only the release's message can wake the waiter so soon.
        Support.expect(waiter.get(20, TimeUnit.SECONDS), true);
    }

    private void expiry(Kind kind, String name) throws Exception {
        RLock mine = kind.of(clients.get(0), name);
        mine.lock(700, TimeUnit.MILLISECONDS);
        Support.expect(Support.result(Support.apart(() -> {
            RLock theirs = kind.of(clients.get(1), name);
            boolean got = theirs.tryLock(20, 30, TimeUnit.SECONDS);
            if (got && kind.strict()) {
                theirs.unlock();
            }
            return got;
        })), true);
        if (kind.strict()) {
            Support.expectRefused(IllegalMonitorStateException.class, mine::unlock);
        }
    }

    private void forced(Kind kind, String name) throws Exception {
        RLock mine = kind.of(clients.get(0), name);
        mine.lock(60, TimeUnit.SECONDS);
        Future<Boolean> waiter = Support.apart(() -> {
            RLock theirs = kind.of(clients.get(1), name);
            boolean got = theirs.tryLock(40, 60, TimeUnit.SECONDS);
            if (got) {
                theirs.unlock();
            }
            return got;
        });
        Thread.sleep(300);
        Support.expect(kind.of(clients.get(2), name).forceUnlock(), true);
        Support.expect(waiter.get(20, TimeUnit.SECONDS), true);
        Support.expect(mine.isLocked(), false);
        Support.expect(mine.forceUnlock(), false);
    }

    private void renewed(Kind kind, String name) throws Exception {
        RLock mine = kind.of(clients.get(0), name);
        mine.lock();
        Thread.sleep(Support.WATCHDOG_MILLIS + 1_500);
        Support.expect(kind.of(clients.get(1), name).tryLock(), false);
        mine.unlock();
        Support.expect(Support.result(Support.apart(() -> kind.of(clients.get(1), name).tryLock(5, 1, TimeUnit.SECONDS))), true);
    }

    private void readWrite() throws Exception {
        String name = name("read-write", "shared");
        CountDownLatch reading = new CountDownLatch(6);
        CountDownLatch leave = new CountDownLatch(1);
        AtomicInteger readers = new AtomicInteger();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            RLock read = clients.get(i % clients.size()).getReadWriteLock(name).readLock();
            all.add(Support.apart(() -> {
                read.lock();
                read.lock();
                readers.incrementAndGet();
                reading.countDown();
                leave.await();
                readers.decrementAndGet();
                read.unlock();
                read.unlock();
                return null;
            }));
        }
        Support.expect(reading.await(30, TimeUnit.SECONDS), true);
        RReadWriteLock both = clients.get(1).getReadWriteLock(name);
        Support.expect(both.writeLock().tryLock(200, TimeUnit.MILLISECONDS), false);
        Future<Integer> writer = Support.apart(() -> {
            both.writeLock().lock();
            int seen = readers.get();
            both.readLock().lock(); // a writer may read, too
            both.writeLock().unlock();
            return seen;
        });
        Thread.sleep(Support.WATCHDOG_MILLIS + 1_000); // readers are renewed
        Support.expectWaits(writer);
        leave.countDown();
        for (Future<Void> one : all) {
            Support.result(one);
        }
        Support.expect(Support.result(writer), 0);
        // The writer has become a reader: others can read, and not write.
        Support.expect(Support.result(Support.apart(() -> clients.get(2).getReadWriteLock(name).writeLock().tryLock())), false);
        Support.expect(Support.result(Support.apart(() -> clients.get(2).getReadWriteLock(name).readLock().tryLock())), true);
    }

    private void fenced() throws Exception {
        String name = name("fenced", "tokens");
        AtomicInteger inside = new AtomicInteger();
        long[] last = {0};
        List<Callable<Void>> threads = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            RFencedLock lock = clients.get(i % clients.size()).getFencedLock(name);
            threads.add(() -> {
                for (int round = 0; round < 3; round++) {
                    long token = lock.lockAndGetToken();
                    Support.expect(inside.incrementAndGet(), 1);
                    Support.expect(token > last[0], "token " + token + " is after " + last[0]);
                    Support.expect(lock.getToken(), token);
                    last[0] = token;
                    inside.decrementAndGet();
                    lock.unlock();
                }
                return null;
            });
        }
        Support.together(threads);
        Support.expect(last[0], 18L);
    }

    private void order(Kind kind, String name) throws Exception {
        RLock mine = kind.of(clients.get(0), name);
        mine.lock(60, TimeUnit.SECONDS);
        List<Integer> served = new ArrayList<>();
        List<Future<Void>> all = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            int number = i;
            RLock theirs = kind.of(clients.get(i % clients.size()), name);
            all.add(Support.apart(() -> {
                theirs.lock(60, TimeUnit.SECONDS);
                served.add(number);
                theirs.unlock();
                return null;
            }));
            int queued = i + 1;
            Support.within(10_000, () -> clients.get(0).getDeque("redisson_lock_queue:{" + name + "}").size() == queued);
        }
        mine.unlock();
        for (Future<Void> one : all) {
            Support.result(one);
        }
        Support.expect(served, List.of(0, 1, 2, 3, 4, 5));
    }

    private void leftQueue() throws Exception {
        String name = name("fair lock", "left");
        Kind kind = KINDS.get("fair lock");
        RLock mine = kind.of(clients.get(0), name);
        mine.lock(60, TimeUnit.SECONDS);
        Support.expect(Support.result(Support.apart(() -> kind.of(clients.get(1), name).tryLock(300, TimeUnit.MILLISECONDS))), false);
        Future<Boolean> waiter = Support.apart(() -> kind.of(clients.get(2), name).tryLock(20, 5, TimeUnit.SECONDS));
        Thread.sleep(300);
        mine.unlock();
        Support.expect(Support.result(waiter), true);
    }
}
