package io.github.holdfast;

/** What every exception of this package is. The texts name the node and its words. */
public class HoldfastException extends RuntimeException {
    private static final long serialVersionUID = 1;

    HoldfastException(String message, Throwable cause) {
        super(message, cause);
    }

    /** The exception of a future, with the stack of the thread that waited for it. */
    static HoldfastException of(Throwable failed) {
        return (HoldfastException) failed.getCause().fillInStackTrace();
    }
}
