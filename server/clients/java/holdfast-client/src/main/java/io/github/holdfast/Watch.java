package io.github.holdfast;

/** The changes of a lock, as {@link HoldfastClient#watch} tells them. It is for one thread. */
public final class Watch {
    private final Session session;
    private final String channel;
    private final String name;
    private LockInfo last;
    private long seen = -1;

    Watch(Session session, String channel, String name) {
        this.session = session;
        this.channel = channel;
        this.name = name;
    }

    /**
     * Who holds the lock and who waits for it: at once the first time, then after the next change. Quick changes may be seen
     * as one.
     *
     * @throws InterruptedException if the thread is interrupted
     * @throws RefusedException if a node refuses the command or the client
     * @throws HoldfastException if the client is closed
     */
    public LockInfo next() throws InterruptedException {
        while (true) {
            try {
                if (seen < 0) {
                    session.subscribe(channel);
                } else {
                    session.awaitMessage(channel, seen);
                }
                seen = session.messages(channel);
                var info = LockInfo.of(session.execute("LOCK.INFO", name));
                if (!info.equals(last)) {
                    last = info;
                    return info;
                }
            } catch (UnreachableException e) {
                // until a node answers
            }
        }
    }
}
