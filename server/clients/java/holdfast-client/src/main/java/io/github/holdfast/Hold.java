package io.github.holdfast;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;

/** A lock that is held, until {@link #close}. It may be used by several threads. */
public final class Hold implements AutoCloseable {
    private final Grant grant;
    private CompletableFuture<Void> released;

    Hold(Grant grant) {
        this.grant = grant;
    }

    /**
     * The number of this hold, larger than that of every hold before. It goes with every write to a resource that refuses
     * smaller ones; see also {@link HoldfastClient#fencePass}.
     */
    public long fence() {
        return grant.fence();
    }

    /** Whether the lock is still held. It asks no node. */
    public synchronized boolean isHeld() {
        return released == null && grant.loss() == null;
    }

    /**
     * Throws if the lock is no longer held. It asks no node.
     *
     * @throws LockLostException if the lock was lost, or no node could be reached for two thirds of the TTL
     */
    public void check() {
        var loss = grant.loss();
        if (loss != null) {
            throw loss.copy();
        }
    }

    /**
     * Completed with the loss, by a thread of the client, as soon as the client learns of it. Never completed for a lock
     * that is released, or whose client is closed.
     */
    public CompletionStage<LockLostException> lost() {
        return grant.lost().minimalCompletionStage();
    }

    /** Has a listener called when the lock is lost, by a thread of the client; at once if it is lost already. */
    public void onLost(Consumer<LockLostException> listener) {
        grant.lost().thenAccept(listener);
    }

    /**
     * Releases the lock, and waits for the cluster's answer. A second call does nothing, and an interrupt stays for the
     * caller to see.
     *
     * @throws LockLostException if the lock was lost before: others may have held it meanwhile
     * @throws RefusedException if a node refuses the command
     */
    @Override
    public void close() {
        boolean again;
        synchronized (this) {
            again = released != null;
        }
        if (again) {
            return;
        }
        try {
            release().join();
        } catch (CompletionException e) {
            throw e.getCause() instanceof LockLostException loss ? loss.copy() : HoldfastException.of(e);
        }
    }

    /** Releases the lock without waiting. The stage completes as {@link #close} does. */
    public CompletableFuture<Void> closeAsync() {
        return release().whenCompleteAsync((none, error) -> { }, grant.session.users);
    }

    private synchronized CompletableFuture<Void> release() {
        if (released == null) {
            released = grant.release();
        }
        return released;
    }
}
