package io.github.holdfast;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;

/**
 * A client of native locks. It connects at the first use, and may be used by all threads of a program. Locks of one client
 * have one session: they stay held while the client reaches any of its nodes.
 *
 * <pre>{@code
 * var client = HoldfastClient.of("10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379");
 * try (var held = client.lock("nightly").acquire()) {
 *     write(row, held.fence());
 * }
 * }</pre>
 */
public final class HoldfastClient implements AutoCloseable {
    final Session session;
    private final Builder settings;
    private final String id = HexFormat.of().toHexDigits(new SecureRandom().nextLong());
    private final AtomicLong numbers = new AtomicLong();
    private Session observer;
    private boolean closed;

    private HoldfastClient(Builder settings) {
        this.settings = settings;
        session = new Session(settings);
    }

    /** A client of nodes, each {@code host:port}. With several it outlives the death of its node. */
    public static HoldfastClient of(String... nodes) {
        return builder(nodes).build();
    }

    /** The settings of a client of nodes, each {@code host:port}. */
    public static Builder builder(String... nodes) {
        return new Builder(List.of(nodes));
    }

    /** Settings of a client. */
    public static final class Builder {
        final List<String> nodes;
        Supplier<Credentials> credentials = () -> null;
        SSLContext tls;
        int database;
        Duration ttl = Duration.ofSeconds(10);
        String name = "java:" + ProcessHandle.current().pid();

        private Builder(List<String> nodes) {
            if (nodes.isEmpty() || !nodes.stream().allMatch(Builder::isNode)) {
                throw new IllegalArgumentException("nodes " + nodes + ": each is host:port, with a port of 1 to 65535");
            }
            this.nodes = nodes;
        }

        private static boolean isNode(String node) {
            if (!node.matches("[^/]+:\\d{1,5}")) {
                return false;
            }
            int port = Integer.parseInt(node.substring(node.lastIndexOf(':') + 1));
            return port >= 1 && port <= 65535;
        }

        private Builder(Builder from) {
            nodes = from.nodes;
            credentials = from.credentials;
            tls = from.tls;
            database = from.database;
            ttl = from.ttl;
            name = from.name;
        }

        /** User and password; without a user (empty or null) the password is that of Redis's default user. */
        public Builder credentials(String user, String password) {
            var both = new Credentials(user, password);
            return credentials(() -> both);
        }

        /** Who is asked for user and password at each connection. */
        public Builder credentials(Supplier<Credentials> source) {
            credentials = Objects.requireNonNull(source, "source");
            return this;
        }

        /** Connects by TLS. The certificate must be of the node's host. */
        public Builder tls(SSLContext context) {
            tls = context;
            return this;
        }

        /** The database of the locks; 0 if not said. */
        public Builder database(int number) {
            database = number;
            return this;
        }

        /**
         * How long locks stay held when this process dies or freezes, or no node can be reached: at least a second, 10 s if
         * not said. Below 5 s it is hardly longer than the failover of a cluster.
         */
        public Builder ttl(Duration time) {
            if (time.compareTo(Duration.ofSeconds(1)) < 0) {
                throw new IllegalArgumentException("ttl " + time + ": at least a second");
            }
            ttl = time;
            return this;
        }

        /** By which nodes and {@code holdfast locks} know the client, without spaces; {@code java:pid} if not said. */
        public Builder name(String text) {
            name = Objects.requireNonNull(text, "name");
            return this;
        }

        /** A client with these settings. */
        public HoldfastClient build() {
            return new HoldfastClient(new Builder(this));
        }
    }

    String newOwner() {
        return id + ":" + numbers.incrementAndGet();
    }

    /** A lock that excludes all others. */
    public HoldfastLock lock(String name) {
        return new HoldfastLock(this, List.of(name), List.of(), false);
    }

    /** A lock that is held together with other read locks, and excludes write locks. */
    public HoldfastLock readLock(String name) {
        return new HoldfastLock(this, List.of(name), List.of("SHARED"), false);
    }

    /** The same as {@link #lock}. */
    public HoldfastLock writeLock(String name) {
        return lock(name);
    }

    /** A lock that several hold, a permit each. */
    public HoldfastLock semaphore(String name, int limit) {
        return semaphore(name, limit, 1);
    }

    /** A lock that several hold until limit permits are taken. All programs have to say the same limit. */
    public HoldfastLock semaphore(String name, int limit, int permits) {
        return new HoldfastLock(this, List.of(name), List.of("LIMIT", limit, "PERMITS", permits), false);
    }

    /** Up to 128 locks that are granted together, with one fence. The loss of one is the loss of all. */
    public HoldfastLock locks(String... names) {
        if (names.length == 0) {
            throw new IllegalArgumentException("names: at least one");
        }
        return new HoldfastLock(this, List.of(names), List.of(), false);
    }

    /**
     * Takes a lock for a time, in milliseconds, if nobody holds it or waits for it; empty: somebody does.
     *
     * @throws InterruptedException if the thread is interrupted; what was granted is given back
     * @throws RefusedException if a node refuses the command or the client
     * @throws UnreachableException if no node answers within the TTL; what was granted is given back once one does
     */
    public Optional<Lease> lease(String name, Duration time) throws InterruptedException {
        return Lease.take(session, name, newOwner(), time);
    }

    /**
     * Who holds a lock and who waits for it.
     *
     * @throws InterruptedException if the thread is interrupted
     * @throws RefusedException if a node refuses the command or the client
     * @throws UnreachableException if no node answers within the TTL
     */
    public LockInfo inspect(String name) throws InterruptedException {
        return LockInfo.of(session.execute("LOCK.INFO", name));
    }

    /**
     * Tells who holds a lock and who waits for it after each change. With a note each leader tells its address so. It has a
     * connection of its own, for all locks that are watched.
     */
    public synchronized Watch watch(String name) {
        if (observer == null) {
            observer = new Session(settings);
            if (closed) {
                observer.close();
            }
        }
        return new Watch(observer, "__lock@" + settings.database + "__:" + name, name);
    }

    /**
     * Whether no larger fence has passed at key before: whether the holder with this fence may still write to the resource
     * that key stands for. It is for resources that cannot compare fences themselves.
     *
     * @throws InterruptedException if the thread is interrupted; the fence may have passed
     * @throws RefusedException if a node refuses the command or the client
     * @throws UnreachableException if no node answers within the TTL; the fence may have passed
     */
    public boolean fencePass(String key, long fence) throws InterruptedException {
        return Long.valueOf(1).equals(session.execute("FENCE.PASS", key, fence));
    }

    /**
     * Releases all locks. If no node answers in a fifth of the TTL, 3 s at most, the locks are free after the TTL. An
     * interrupt stays for the caller to see.
     */
    @Override
    public void close() {
        session.close();
        Session other;
        synchronized (this) {
            closed = true;
            other = observer;
        }
        if (other != null) {
            other.close();
        }
    }
}
