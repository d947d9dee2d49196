package io.github.holdfast;

/** A user and the password. Without a user, the password is that of {@code default}. */
public record Credentials(String user, String password) {
    @Override
    public String toString() {
        return "Credentials[user=" + user + "]";
    }
}
