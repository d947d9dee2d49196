package io.github.holdfast;

import java.time.Duration;

/** The lock is no longer held, or can soon no longer be proved to be. */
public final class LockLostException extends HoldfastException {
    private static final long serialVersionUID = 1;

    private final String name;
    private final long fence;
    private final String reason;
    private final String text;
    private final String by;
    private final Duration left;

    LockLostException(String name, long fence, String reason, String text, String by, Duration left) {
        super("lock \"" + name + "\" lost, fence " + fence + ": " + reason + (by.isEmpty() ? "" : " by " + by)
                + (text.isEmpty() ? "" : ": " + text), null);
        this.name = name;
        this.fence = fence;
        this.reason = reason;
        this.text = text;
        this.by = by;
        this.left = left;
    }

    /** To be thrown: Java refuses an exception that the end of a try block throws behind the same one of the block. */
    LockLostException copy() {
        return new LockLostException(name, fence, reason, text, by, left);
    }

    /** The name of the lock; of several that are held together, the first. */
    public String name() {
        return name;
    }

    /** The fence of the lost hold. */
    public long fence() {
        return fence;
    }

    /** {@code broken}, {@code expired}, {@code session} or {@code flushed}, as LOCKS.md defines them, {@code unknown}, or a sentence. */
    public String reason() {
        return reason;
    }

    /** The reason that was given to LOCK.BREAK, or empty. */
    public String text() {
        return text;
    }

    /** Name and address of the client that took the lock away, or empty. */
    public String by() {
        return by;
    }

    /** For how long nobody else is granted the lock, if no node could be asked. Zero: somebody else may hold it now. */
    public Duration left() {
        return left;
    }
}
