package io.github.holdfast.spring;

import io.github.holdfast.Hold;
import io.github.holdfast.HoldfastClient;
import io.github.holdfast.HoldfastException;
import io.github.holdfast.LockLostException;
import io.github.holdfast.NotAcquiredException;
import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * Native locks for Spring Integration, each reentrant for the thread that holds it. They are fair over all programs, need no
 * renewal, and survive the death of their node. A lock that was lost is not acquired by its holder again: {@code tryLock}
 * answers false, {@code lock} throws, and so does {@code unlock}, until the thread has let go of it. The caller closes the
 * client.
 */
public final class HoldfastLockRegistry implements LockRegistry {
    private final HoldfastClient client;
    private final String prefix;
    private final Map<String, RegistryLock> locks = new ConcurrentHashMap<>(); // as many as there are names

    /** Locks are named by the prefix, a colon, and what is obtained. */
    public HoldfastLockRegistry(HoldfastClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    /** The lock of that name. The fence of a hold is {@link #fence}. */
    @Override
    public Lock obtain(Object lockKey) {
        return lockOf(lockKey);
    }

    /**
     * The fence of the lock of that name, which the calling thread holds.
     *
     * @throws IllegalMonitorStateException if the thread does not hold it
     * @throws LockLostException if the lock was lost
     */
    public long fence(Object lockKey) {
        return lockOf(lockKey).fence();
    }

    private RegistryLock lockOf(Object lockKey) {
        return locks.computeIfAbsent(prefix + ":" + lockKey, RegistryLock::new);
    }

    private final class RegistryLock implements Lock {
        private final String name;
        private final ReentrantLock local = new ReentrantLock(); // one thread of this program asks the cluster
        private Hold hold; // guarded by local

        RegistryLock(String name) {
            this.name = name;
        }

        /** Whether the thread holds the lock already. False: the cluster has to be asked. */
        private boolean isHeldAgain() {
            if (local.getHoldCount() == 1) {
                return false;
            }
            try {
                hold.check();
                return true;
            } catch (LockLostException e) {
                forget();
                throw e;
            }
        }

        /** Lets go of a lock that was lost, as often as the thread holds it. */
        private void forget() {
            hold = null;
            while (local.isHeldByCurrentThread()) {
                local.unlock();
            }
        }

        private interface Ask {
            Hold run() throws InterruptedException;
        }

        private boolean take(Ask ask) throws InterruptedException {
            if (isHeldAgain()) {
                return true;
            }
            boolean held = false;
            try {
                hold = ask.run();
                held = hold != null;
            } finally {
                if (!held) {
                    local.unlock();
                }
            }
            return held;
        }

        @Override
        public void lock() {
            local.lock();
            boolean interrupted = false;
            try {
                while (true) {
                    try {
                        take(client.lock(name)::acquire);
                        return;
                    } catch (InterruptedException e) {
                        interrupted = true;
                        local.lock();
                    }
                }
            } finally {
                if (interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            local.lockInterruptibly();
            take(client.lock(name)::acquire);
        }

        @Override
        public boolean tryLock() {
            try {
                return local.tryLock() && take(() -> client.lock(name).tryAcquire().orElse(null));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            } catch (LockLostException e) {
                return false;
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            long end = System.nanoTime() + unit.toNanos(time);
            try {
                return local.tryLock(time, unit)
                        && take(() -> client.lock(name).acquire(Duration.ofNanos(Math.max(0, end - System.nanoTime()))));
            } catch (LockLostException | NotAcquiredException e) {
                return false;
            }
        }

        @Override
        public void unlock() {
            if (!local.isHeldByCurrentThread()) {
                throw new IllegalMonitorStateException("lock " + name + " is not held by this thread, or was lost");
            }
            var held = hold;
            if (local.getHoldCount() == 1) {
                hold = null;
            }
            local.unlock();
            try {
                if (local.isHeldByCurrentThread()) {
                    return;
                }
                held.close();
            } catch (HoldfastException e) {
                var lost = new ConcurrentModificationException(e.getMessage());
                lost.initCause(e);
                throw lost;
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("a lock of several programs has no conditions");
        }

        long fence() {
            if (!local.isHeldByCurrentThread()) {
                throw new IllegalMonitorStateException("lock " + name + " is not held by this thread, or was lost");
            }
            hold.check();
            return hold.fence();
        }
    }
}
