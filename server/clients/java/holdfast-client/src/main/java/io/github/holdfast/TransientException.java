package io.github.holdfast;

import java.util.stream.Stream;

/** An error reply that another node or another moment may not give. */
final class TransientException extends HoldfastException {
    private static final long serialVersionUID = 1;

    private final String reply;

    private TransientException(String node, String reply) {
        super(node + ": " + reply, null);
        this.reply = reply;
    }

    boolean is(String... kinds) {
        return Stream.of(kinds).anyMatch(reply::startsWith);
    }

    /** The exception for an error reply. */
    static HoldfastException of(String node, String reply) {
        var error = new TransientException(node, reply);
        return error.is("CLUSTERDOWN", "TRYAGAIN", "UNCERTAIN", "LOADING", "MASTERDOWN", "NOSESSION", "ERR max number of clients")
                ? error : new RefusedException(error.getMessage(), null);
    }
}
