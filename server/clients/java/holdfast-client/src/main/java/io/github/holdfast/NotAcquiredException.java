package io.github.holdfast;

/** The lock was not granted in time. */
public final class NotAcquiredException extends HoldfastException {
    private static final long serialVersionUID = 1;

    NotAcquiredException(String message) {
        super(message, null);
    }
}
