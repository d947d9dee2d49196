package io.github.holdfast;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * A lock as everybody can see it.
 *
 * @param holders who holds it, at most 1,000
 * @param waiters who waits for it, in line, at most 1,000
 * @param holderCount how many hold it
 * @param waiterCount how many wait for it
 */
public record LockInfo(List<Party> holders, List<Party> waiters, long holderCount, long waiterCount) {
    /**
     * Who holds a lock or waits for it.
     *
     * @param owner a name that no other hold has
     * @param note what the owner says of itself
     * @param mode {@code exclusive}, {@code shared}, {@code permits} or {@code stock}
     * @param fence of the hold; 0 of who waits
     * @param permits that are held or asked for
     * @param since when, by the clock of the cluster
     * @param client node and number of the connection
     * @param state {@code connected}, {@code gone}, {@code unknown} or empty
     * @param addr the client's address, if connected
     * @param name the client's name, if connected
     */
    public record Party(String owner, String note, String mode, long fence, long permits, Instant since, String client,
            String state, String addr, String name) { }

    static LockInfo of(Object reply) {
        if (!(reply instanceof Map<?, ?> found)) {
            return new LockInfo(List.of(), List.of(), 0, 0);
        }
        return new LockInfo(parties(found.get("holders")), parties(found.get("waiters")), number(found, "holders-count"),
                number(found, "waiters-count"));
    }

    private static List<Party> parties(Object list) {
        return ((List<?>) list).stream().map(each -> {
            var of = (Map<?, ?>) each;
            return new Party(text(of, "owner"), text(of, "note"), text(of, "mode"), number(of, "fence"), number(of, "permits"),
                    Instant.ofEpochMilli(number(of, "since")), text(of, "client"), text(of, "client-state"),
                    text(of, "client-addr"), text(of, "client-name"));
        }).toList();
    }

    private static String text(Map<?, ?> of, String field) {
        return of.get(field) instanceof String text ? text : "";
    }

    private static long number(Map<?, ?> of, String field) {
        return of.get(field) instanceof Long number ? number : 0;
    }
}
