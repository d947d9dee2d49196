package io.github.holdfast;

/** A node refuses what another try would meet again: rights, passwords, certificates or values. */
public final class RefusedException extends HoldfastException {
    private static final long serialVersionUID = 1;

    RefusedException(String message, Throwable cause) {
        super(message, cause);
    }
}
