package io.github.holdfast;

import io.github.holdfast.Connection.ConnectionLostException;
import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiConsumer;
import java.util.function.Supplier;

/**
 * The session of a client, kept attached to some node by a thread of its own. Commands are repeated until they are
 * answered; the thread that reads a connection, and the timer, do what follows. The monitor guards all fields, and no code
 * of the user runs under it.
 */
final class Session {
    private static final System.Logger LOG = System.getLogger("io.github.holdfast");
    private static final long FIRST_PAUSE = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long MAX_PAUSE = TimeUnit.SECONDS.toNanos(1);

    private final HoldfastClient.Builder settings;
    private final long ttl;
    private final long patience;
    private final ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, daemon("timer"));
    /** Runs what is the user's. */
    final Executor users = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(),
            daemon("listener"));

    private boolean running;
    private boolean closed;
    private Connection current; // that the session is attached to
    private List<Connection> former = new ArrayList<>(); // closed once the session is attached elsewhere
    private int next;
    private HoldfastException roundError; // why the last round over all nodes failed; null: it did not
    private String id; // null: none
    private long goodUntil; // the session cannot end before, unless a command ends it
    private final Map<String, Grant> grants = new LinkedHashMap<>();
    private final Set<Call> calls = new LinkedHashSet<>();
    private final Map<String, Long> messages = new HashMap<>(); // how many a watched channel has had

    Session(HoldfastClient.Builder settings) {
        this.settings = settings;
        ttl = settings.ttl.toNanos();
        patience = Math.min(ttl / 5, TimeUnit.SECONDS.toNanos(3));
        timer.setRemoveOnCancelPolicy(true);
    }

    private static ThreadFactory daemon(String name) {
        return run -> {
            var thread = new Thread(run, "holdfast " + name);
            thread.setDaemon(true);
            return thread;
        };
    }

    /** A command that is sent until it is answered, refused, or moot. */
    static final class Call {
        private final String session; // with whose end the command is moot: it is answered by null; null: never
        private final boolean once; // fails when a round over all nodes does
        private final Supplier<List<?>> words;
        private final BiConsumer<Object, HoldfastException> then; // under the monitor of the Session
        private Connection sentOn; // null: not sent, or again to be sent
        private boolean unanswered; // an earlier try had no answer

        Call(String session, boolean once, Supplier<List<?>> words, BiConsumer<Object, HoldfastException> then) {
            this.session = session;
            this.once = once;
            this.words = words;
            this.then = then;
        }

        boolean isRepeated() {
            return unanswered;
        }
    }

    // Called by Grant, under the monitor.

    String id() {
        return id;
    }

    void add(Grant grant) {
        grants.put(grant.owner, grant);
    }

    void remove(Grant grant) {
        grants.remove(grant.owner);
    }

    Future<?> after(long nanos, Runnable run) {
        try {
            return timer.schedule(run, nanos, TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.completedFuture(null); // the client is closed, and so has failed what waits
        }
    }

    void start(Call call) {
        if (closed) {
            call.then.accept(null, new HoldfastException("the client is closed", null));
            return;
        }
        if (!running) {
            running = true;
            daemon("session").newThread(this::run).start();
        }
        if (call.session != null && !call.session.equals(id)) {
            call.then.accept(null, null);
            return;
        }
        calls.add(call);
        send(call);
    }

    /** Releases a lease that nobody waits for, if it was granted. */
    synchronized void giveBack(String name, String owner) {
        start(new Call(null, false, () -> List.of("LOCK.RELEASE", name, owner), (reply, error) -> { }));
    }

    void forget(Call call) {
        calls.remove(call);
    }

    /** How long the session is sure to exist; at most zero if the client counts it as lost. */
    long sureNanos() {
        return goodUntil - ttl / 3 - System.nanoTime();
    }

    long leftNanos() {
        return Math.max(0, goodUntil - System.nanoTime());
    }

    void warn(HoldfastException loss) {
        users.execute(() -> LOG.log(Level.WARNING, loss.getMessage()));
    }

    // Commands.

    private void send(Call call) {
        if (current == null || id == null || call.sentOn == current || !calls.contains(call)) {
            return;
        }
        var connection = call.sentOn = current;
        var session = id;
        connection.send(call.words.get(), (reply, error) -> answered(call, connection, session, reply, error));
    }

    private synchronized void answered(Call call, Connection connection, String session, Object reply, HoldfastException error) {
        if (call.sentOn != connection || !calls.contains(call)) {
            return;
        }
        if (error == null || error instanceof RefusedException) {
            calls.remove(call);
            call.then.accept(reply, error);
            return;
        }
        call.unanswered = true;
        call.sentOn = null;
        if (error instanceof TransientException failure) {
            if (failure.is("NOSESSION")) {
                end(session);
            } else if (failure.is("CLUSTERDOWN", "LOADING", "MASTERDOWN")) {
                connection.leave();
            } else {
                after(FIRST_PAUSE, () -> sendAgain(call));
            }
        }
    }

    private synchronized void sendAgain(Call call) {
        send(call);
    }

    /** Executes a command, for at most a TTL. */
    Object execute(Object... words) throws InterruptedException {
        var answer = new CompletableFuture<Object>();
        var call = new Call(null, false, () -> List.of(words), (reply, error) -> {
            if (error != null) {
                answer.completeExceptionally(error);
            } else {
                answer.complete(reply);
            }
        });
        synchronized (this) {
            start(call);
        }
        try {
            return answer.get(ttl, TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw HoldfastException.of(e);
        } catch (TimeoutException e) {
            throw new UnreachableException(words[0] + " not answered in time" + unreachable(), null);
        } finally {
            synchronized (this) {
                calls.remove(call);
            }
        }
    }

    /** What a message about too long a wait ends with. */
    synchronized String unreachable() {
        return roundError == null ? "" : ", no node can be used: " + roundError.getMessage();
    }

    // Watching.

    /** Has messages of a channel counted, over all connections to come. */
    void subscribe(String channel) throws InterruptedException {
        synchronized (this) {
            messages.putIfAbsent(channel, 0L);
        }
        execute("SUBSCRIBE", channel);
    }

    synchronized long messages(String channel) {
        return messages.get(channel);
    }

    synchronized void awaitMessage(String channel, long seen) throws InterruptedException {
        while (!closed && messages.get(channel) == seen) {
            wait();
        }
    }

    // The session.

    private void run() {
        try {
            long pause = FIRST_PAUSE;
            while (!isClosed()) {
                var connection = connect();
                if (connection == null) {
                    pause(pause);
                    pause = Math.min(2 * pause, MAX_PAUSE);
                    continue;
                }
                pause = FIRST_PAUSE;
                keep(connection);
                left(connection);
            }
        } catch (InterruptedException e) {
            // nobody interrupts it
        }
    }

    private synchronized boolean isClosed() {
        return closed;
    }

    private synchronized void pause(long nanos) throws InterruptedException {
        long end = System.nanoTime() + nanos;
        for (long left = nanos; !closed && left > 0; left = end - System.nanoTime()) {
            TimeUnit.NANOSECONDS.timedWait(this, left);
        }
    }

    /** Sends signs of life until another node must be looked for. */
    private void keep(Connection connection) throws InterruptedException {
        while (!connection.awaitGone(ttl / 4)) {
            try {
                keepAlive(connection, attachedTo());
            } catch (HoldfastException e) {
                return;
            }
        }
    }

    private synchronized String attachedTo() {
        return id;
    }

    private synchronized void left(Connection connection) {
        retire(connection);
        current = null;
        for (var grant : List.copyOf(grants.values())) {
            grant.ask(); // in line, and maybe no longer
        }
    }

    /** Closes a connection that is used no more; if the session may be attached to it, once that is attached elsewhere. */
    private void retire(Connection connection) {
        if (id == null || closed) {
            connection.close();
        } else {
            former.add(connection);
        }
    }

    /** Tries each node once, and attaches the session to the first that answers; null: to none. */
    private Connection connect() throws InterruptedException {
        var failed = new ArrayList<String>();
        RefusedException refused = null;
        for (int i = 0; i < settings.nodes.size() && !isClosed(); i++) {
            var node = settings.nodes.get(next++ % settings.nodes.size());
            Connection connection = null;
            try {
                connection = new Connection(node, patience, settings.tls, timer, this::pushed);
                attach(connection);
                LOG.log(Level.DEBUG, "connected to {0}", node);
                return connection;
            } catch (HoldfastException e) {
                failed.add(e.getMessage());
                refused = e instanceof RefusedException refusal ? refusal : refused;
            } catch (RuntimeException e) { // of the user's credentials
                failed.add(node + ": " + e);
                refused = new RefusedException(node + ": " + e, e);
            }
            if (connection != null) {
                synchronized (this) {
                    retire(connection);
                }
            }
        }
        LOG.log(roundFailed(String.join("; ", failed), refused) ? Level.WARNING : Level.DEBUG, "no node can be used: {0}", failed);
        return null;
    }

    /** Notes that no node can be used. True: the round before had not failed. */
    private synchronized boolean roundFailed(String text, RefusedException refused) {
        boolean first = roundError == null;
        roundError = refused != null ? new RefusedException(text, refused) : new UnreachableException(text, null);
        for (var call : List.copyOf(calls)) {
            if ((refused != null || call.once) && calls.remove(call)) {
                call.then.accept(null, roundError);
            }
        }
        return first;
    }

    /** Logs in, attaches the session or opens one, and proves the locks that are held. */
    private void attach(Connection connection) throws InterruptedException {
        var hello = new ArrayList<Object>(List.of("HELLO", 3));
        var credentials = settings.credentials.get();
        if (credentials != null) {
            hello.addAll(List.of("AUTH", credentials.user().isEmpty() ? "default" : credentials.user(), credentials.password()));
        }
        hello.addAll(List.of("SETNAME", settings.name));
        connection.call(hello.toArray());
        if (settings.database != 0) {
            connection.call("SELECT", settings.database);
        }
        var session = open(connection);
        prove(connection);
        for (var channel : watched()) {
            connection.call("SUBSCRIBE", channel);
        }
        synchronized (this) {
            if (closed || !session.equals(id)) {
                throw new ConnectionLostException(connection.node, "the session ended");
            }
            former.forEach(Connection::close);
            former = new ArrayList<>();
            current = connection;
            roundError = null;
            messages.replaceAll((channel, count) -> count + 1); // some were missed
            notifyAll();
            List.copyOf(calls).forEach(this::send);
        }
    }

    private synchronized List<String> watched() {
        return List.copyOf(messages.keySet());
    }

    private String open(Connection connection) throws InterruptedException {
        var session = attachedTo();
        if (session != null) {
            Object attached;
            try {
                attached = connection.call("SESSION.ATTACH", session, "HEARTBEAT");
            } catch (TransientException e) {
                if (!e.is("NOSESSION")) {
                    throw e;
                }
                attached = null;
            }
            if (attached != null) {
                keepAlive(connection, session);
                return session;
            }
            end(session);
        }
        long begun = System.nanoTime();
        session = String.valueOf(connection.call("SESSION.OPEN", "PX", TimeUnit.NANOSECONDS.toMillis(ttl), "CONNECTION",
                "HEARTBEAT", "NAME", settings.name));
        synchronized (this) {
            id = session;
            goodUntil = begun + ttl;
            expireIn(sureNanos());
        }
        return session;
    }

    private void keepAlive(Connection connection, String session) throws InterruptedException {
        long begun = System.nanoTime();
        Object left = null;
        try {
            left = session == null ? null : connection.call("SESSION.KEEPALIVE", session);
        } catch (TransientException e) {
            if (!e.is("NOSESSION")) {
                throw e;
            }
        }
        if (left == null) {
            end(session);
            throw new ConnectionLostException(connection.node, "the session ended");
        }
        synchronized (this) {
            if (session.equals(id)) {
                goodUntil = begun + Math.min(ttl, TimeUnit.MILLISECONDS.toNanos((Long) left));
            }
        }
    }

    /** Asks for each hold whether it is held: the notice of its loss may have gone to a former connection. */
    private void prove(Connection connection) throws InterruptedException {
        record Proof(Grant grant, CompletableFuture<Object> fence) { }
        var proofs = new ArrayList<Proof>();
        synchronized (this) {
            for (var grant : grants.values()) {
                if (grant.isHeld()) {
                    grant.names.forEach(name -> proofs.add(new Proof(grant, connection.submit("LOCK.CHECK", name, grant.owner))));
                }
            }
        }
        for (var proof : proofs) {
            var fence = connection.await(proof.fence);
            synchronized (this) {
                if (!Long.valueOf(proof.grant.fence()).equals(fence)) {
                    proof.grant.lose("unknown", "", "", 0);
                }
            }
        }
    }

    private void expireIn(long nanos) {
        var session = id;
        after(Math.max(0, nanos), () -> expire(session));
    }

    /** Gives up the session with a third of the TTL left, if no node could be reached in time to renew it. */
    private synchronized void expire(String session) {
        if (!session.equals(id) || closed) {
            return;
        }
        if (sureNanos() > 0) {
            expireIn(sureNanos());
            return;
        }
        giveUp("no node could be reached" + (roundError == null ? "" : ": " + roundError.getMessage()), leftNanos());
    }

    private synchronized void end(String session) {
        if (session != null && session.equals(id)) {
            giveUp("session", 0);
        }
    }

    private void giveUp(String reason, long left) {
        id = null;
        for (var grant : List.copyOf(grants.values())) {
            grant.lose(reason, "", "", left);
        }
        former.forEach(Connection::close);
        former = new ArrayList<>();
        if (current != null) {
            current.leave();
        }
        for (var call : List.copyOf(calls)) {
            if (call.session != null && calls.remove(call)) {
                call.then.accept(null, null);
            }
        }
    }

    private synchronized void pushed(Connection connection, Resp.Push push) {
        if (push.word(0).equals("message")) {
            messages.computeIfPresent(push.word(1), (channel, count) -> count + 1);
            notifyAll();
        } else if (push.word(0).equals("lock")) {
            var grant = grants.get(push.word(3));
            if (grant != null && grant.names.contains(push.word(2))) {
                grant.pushed(connection == current, push);
            }
        }
    }

    void close() {
        Connection last;
        String session;
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
            last = current;
            session = id;
            for (var grant : List.copyOf(grants.values())) {
                grant.closed();
            }
            notifyAll();
        }
        try {
            if (last != null && session != null) {
                last.call("SESSION.CLOSE", session);
            }
        } catch (HoldfastException e) {
            // the session ends with its TTL
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        synchronized (this) {
            id = null;
            former.forEach(Connection::close);
            if (current != null) {
                current.close();
            }
            for (var call : List.copyOf(calls)) {
                if (calls.remove(call)) {
                    call.then.accept(null, new HoldfastException("the client is closed", null));
                }
            }
            timer.shutdownNow();
        }
    }
}
