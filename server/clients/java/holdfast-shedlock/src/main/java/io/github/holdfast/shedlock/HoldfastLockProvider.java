package io.github.holdfast.shedlock;

import io.github.holdfast.HoldfastClient;
import io.github.holdfast.Lease;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;

/** ShedLock's locks as leases of native locks, timed by the clock of the cluster. The caller closes the client. */
public final class HoldfastLockProvider implements ExtensibleLockProvider {
    private final HoldfastClient client;
    private final String prefix;

    /** Locks are named {@code shedlock:} and the name of the task. */
    public HoldfastLockProvider(HoldfastClient client) {
        this(client, "shedlock:");
    }

    /** Locks are named by the prefix and the name of the task. */
    public HoldfastLockProvider(HoldfastClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        try {
            return client.lease(prefix + configuration.getName(), configuration.getLockAtMostFor())
                    .map(lease -> new Lock(configuration, lease));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new LockException("interrupted", e);
        }
    }

    private interface Call<T> {
        T run() throws InterruptedException;
    }

    /**
     * uninterruptibly repeats an interrupted call until it is answered, and then sets the thread's interrupt flag again.
     */
    private static <T> T uninterruptibly(Call<T> call) {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return call.run();
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static final class Lock extends AbstractSimpleLock {
        private final Lease lease;

        Lock(LockConfiguration configuration, Lease lease) {
            super(configuration);
            this.lease = lease;
        }

        @Override
        protected void doUnlock() {
            var left = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
            uninterruptibly(() -> {
                if (left.toMillis() > 0) {
                    lease.renew(left);
                } else {
                    lease.release();
                }
                return null;
            });
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration longer) {
            boolean held = uninterruptibly(() -> lease.renew(longer.getLockAtMostFor()));
            return held ? Optional.of(new Lock(longer, lease)) : Optional.empty();
        }
    }
}
