package io.github.holdfast;

import java.time.Duration;
import java.util.Optional;

/**
 * A lock that is held for a time, whatever becomes of the program that took it: it belongs to no session, and nobody is told
 * of its loss. Each method asks the cluster.
 */
public final class Lease {
    private final Session session;
    private final String name;
    private final String owner;
    private final long fence;

    private Lease(Session session, String name, String owner, long fence) {
        this.session = session;
        this.name = name;
        this.owner = owner;
        this.fence = fence;
    }

    static Optional<Lease> take(Session session, String name, String owner, Duration time) throws InterruptedException {
        try {
            var reply = session.execute("LOCK.ACQUIRE", name, owner, "PX", time.toMillis());
            return reply instanceof Long fence ? Optional.of(new Lease(session, name, owner, fence)) : Optional.empty();
        } catch (InterruptedException | HoldfastException e) { // it may have been taken, or be yet
            session.giveBack(name, owner);
            throw e;
        }
    }

    /** As {@link Hold#fence}. */
    public long fence() {
        return fence;
    }

    /**
     * Has the lock held for that long from now, in milliseconds, be it more or less than before. False: it is no longer held.
     *
     * @throws InterruptedException if the thread is interrupted; the lease may have been renewed
     * @throws RefusedException if a node refuses the command or the client
     * @throws UnreachableException if no node answers within the TTL of the client; the lease may have been renewed
     */
    public boolean renew(Duration time) throws InterruptedException {
        return session.execute("LOCK.RENEW", name, owner, "PX", time.toMillis()) != null;
    }

    /**
     * Releases the lock, unless it is no longer held.
     *
     * @throws InterruptedException if the thread is interrupted; the lock may have been released
     * @throws RefusedException if a node refuses the command or the client
     * @throws UnreachableException if no node answers within the TTL of the client; the lock may have been released
     */
    public void release() throws InterruptedException {
        session.execute("LOCK.RELEASE", name, owner);
    }
}
