package io.github.holdfast;

import java.util.Objects;

/** A user and the password. Without a user (empty or null), the password is that of {@code default}. */
public record Credentials(String user, String password) {
    /** A password is never null: who has none gives no credentials. */
    public Credentials {
        user = Objects.requireNonNullElse(user, "");
        Objects.requireNonNull(password, "password");
    }

    @Override
    public String toString() {
        return "Credentials[user=" + user + "]";
    }
}
