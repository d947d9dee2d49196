package io.github.holdfast;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/**
 * A lock that several programs share, to be acquired any number of times, by any thread. Each hold excludes the others, also
 * those of the same thread, unless the lock is {@link #reentrant}.
 */
public final class HoldfastLock {
    private final HoldfastClient client;
    private final List<String> names;
    private final List<Object> words;
    private final boolean reentrant;
    private Grant shared; // of a reentrant lock

    HoldfastLock(HoldfastClient client, List<String> names, List<Object> words, boolean reentrant) {
        this.client = client;
        this.names = names;
        this.words = words;
        this.reentrant = reentrant;
    }

    private HoldfastLock with(String option, Object value) {
        var more = new ArrayList<>(words);
        more.addAll(List.of(option, value));
        return new HoldfastLock(client, names, more, reentrant);
    }

    /** The same lock, with a note of up to 1024 bytes that is shown to everybody who looks. */
    public HoldfastLock note(String text) {
        return with("NOTE", text);
    }

    /** The same lock; after a loss nobody is granted it for that long, in milliseconds, a day at most. */
    public HoldfastLock delay(Duration delay) {
        return with("DELAY", delay.toMillis());
    }

    /** The same lock; while this object holds it, it is acquired at once, and released by the last {@link Hold#close}. */
    public HoldfastLock reentrant() {
        return new HoldfastLock(client, names, words, true);
    }

    /**
     * Waits in line for the lock.
     *
     * @throws InterruptedException if the thread is interrupted; the place in line is given up
     * @throws RefusedException if a node refuses the command or the client
     */
    public Hold acquire() throws InterruptedException {
        return await(begin(true));
    }

    /**
     * Waits in line for the lock, for a time at most. The time in which no node answers is part of it.
     *
     * @throws NotAcquiredException if the lock is not granted in time; the place in line is given up
     * @throws InterruptedException if the thread is interrupted; the place in line is given up
     * @throws RefusedException if a node refuses the command or the client
     */
    public Hold acquire(Duration timeout) throws InterruptedException {
        return await(limit(begin(true), timeout));
    }

    /**
     * Takes the lock if nobody holds it or waits for it; empty: somebody does.
     *
     * @throws InterruptedException if the thread is interrupted
     * @throws RefusedException if a node refuses the command or the client
     * @throws UnreachableException if no node answers
     */
    public Optional<Hold> tryAcquire() throws InterruptedException {
        try {
            return Optional.of(await(begin(false)));
        } catch (NotAcquiredException e) {
            return Optional.empty();
        }
    }

    /** As {@link #acquire()}, without a thread that waits. Who cancels the future gives up the place in line. */
    public CompletableFuture<Hold> acquireAsync() {
        return async(begin(true));
    }

    /** As {@link #acquire(Duration)}, without a thread that waits. Who cancels the future gives up the place in line. */
    public CompletableFuture<Hold> acquireAsync(Duration timeout) {
        return async(limit(begin(true), timeout));
    }

    private Grant begin(boolean waits) {
        synchronized (this) {
            if (shared != null && shared.share()) {
                return shared;
            }
        }
        var grant = new Grant(client.session, client.newOwner(), names, words, waits);
        grant.begin();
        return grant;
    }

    private Grant limit(Grant grant, Duration timeout) {
        var timer = grant.session.after(Math.max(0, timeout.toNanos()), () -> grant.giveUp(new NotAcquiredException(
                "lock \"" + names.get(0) + "\" not granted within " + timeout.toMillis() + " ms" + grant.session.unreachable())));
        grant.granted.whenComplete((granted, error) -> timer.cancel(false));
        return grant;
    }

    private Hold await(Grant grant) throws InterruptedException {
        try {
            return hold(grant.granted.get());
        } catch (InterruptedException e) {
            abandon(grant);
            throw e;
        } catch (ExecutionException e) {
            throw HoldfastException.of(e);
        }
    }

    private CompletableFuture<Hold> async(Grant grant) {
        var held = new CompletableFuture<Hold>();
        grant.granted.whenCompleteAsync((granted, error) -> {
            if (error != null) {
                held.completeExceptionally(error instanceof CompletionException ? error.getCause() : error);
            } else if (!held.complete(hold(granted))) {
                abandon(granted);
            }
        }, grant.session.users);
        held.whenComplete((hold, error) -> {
            if (error != null) {
                grant.giveUp(new NotAcquiredException("cancelled"));
            }
        });
        return held;
    }

    private Hold hold(Grant grant) {
        if (reentrant) {
            synchronized (this) {
                shared = grant;
            }
        }
        return new Hold(grant);
    }

    /** Gives up what nobody waits for any more, be it granted or not. */
    private static void abandon(Grant grant) {
        if (!grant.giveUp(new NotAcquiredException("cancelled")) && grant.granted.isDone() && !grant.granted.isCompletedExceptionally()) {
            grant.release();
        }
    }
}
