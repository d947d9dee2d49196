package io.github.holdfast;

/** No node could execute the command in time. It may have been executed. */
public final class UnreachableException extends HoldfastException {
    private static final long serialVersionUID = 1;

    UnreachableException(String message, Throwable cause) {
        super(message, cause);
    }
}
