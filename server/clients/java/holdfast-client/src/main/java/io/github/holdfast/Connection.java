package io.github.holdfast;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.security.cert.CertificateException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiConsumer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;

/**
 * A connection to a node. Replies come in the order of the commands, pushes between them. One thread reads, which calls
 * what waits for replies and pushes; another writes, as a write to a node that hangs may last.
 */
final class Connection {
    /** What is called with the reply, or with why there is none. */
    interface Then extends BiConsumer<Object, HoldfastException> { }

    private record Request(boolean subscribes, long sentAt, Then then) {
        boolean isAnsweredBy(Object value) {
            return !(value instanceof Resp.Push push) || subscribes && push.word(0).equals("subscribe");
        }
    }

    final String node;
    private final long patienceNanos;
    private final ScheduledExecutorService timer;
    private final BiConsumer<Connection, Resp.Push> onPush;
    private final CountDownLatch gone = new CountDownLatch(1);
    private final Socket raw;
    private final Socket socket;
    // Guarded by this.
    private final Deque<Request> pending = new ArrayDeque<>();
    private final Deque<byte[]> unsent = new ArrayDeque<>();
    private boolean timing;
    private ConnectionLostException error;

    /** The connection ended, or the node did not answer in time. The command may have been executed. */
    static final class ConnectionLostException extends HoldfastException {
        private static final long serialVersionUID = 1;

        ConnectionLostException(String node, String why) {
            super(node + ": " + why, null);
        }
    }

    Connection(String node, long patienceNanos, SSLContext tls, ScheduledExecutorService timer,
            BiConsumer<Connection, Resp.Push> onPush) {
        this.node = node;
        this.patienceNanos = patienceNanos;
        this.timer = timer;
        this.onPush = onPush;
        raw = new Socket();
        try {
            int patienceMillis = (int) TimeUnit.NANOSECONDS.toMillis(patienceNanos);
            int colon = node.lastIndexOf(':');
            String host = node.substring(0, colon).replaceAll("[\\[\\]]", "");
            int port = Integer.parseInt(node.substring(colon + 1));
            raw.connect(new InetSocketAddress(host, port), patienceMillis);
            raw.setTcpNoDelay(true);
            raw.setSoTimeout(patienceMillis);
            socket = tls == null ? raw : handshake((SSLSocket) tls.getSocketFactory().createSocket(raw, host, port, true));
            raw.setSoTimeout(0);
            start("reader", this::read);
            start("writer", this::write);
        } catch (IOException e) {
            close();
            throw e instanceof SSLException && causedBy(e, CertificateException.class)
                    ? new RefusedException(node + ": " + e.getMessage(), e) : new ConnectionLostException(node, String.valueOf(e.getMessage()));
        }
    }

    private static SSLSocket handshake(SSLSocket socket) throws IOException {
        var parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        return socket;
    }

    private static boolean causedBy(Throwable e, Class<?> kind) {
        return e != null && (kind.isInstance(e) || causedBy(e.getCause(), kind));
    }

    private interface Loop {
        void run() throws IOException, InterruptedException;
    }

    private void start(String name, Loop loop) {
        var thread = new Thread(() -> {
            try {
                loop.run();
            } catch (IOException | InterruptedException e) {
                end(String.valueOf(e.getMessage()));
            } catch (RuntimeException e) {
                end(e.toString());
            }
        }, "holdfast " + name + " " + node);
        thread.setDaemon(true);
        thread.start();
    }

    /** Has the client look for another node. The connection stays open: a node ends the sessions of one that closes. */
    void leave() {
        gone.countDown();
    }

    boolean isGone() {
        return gone.getCount() == 0;
    }

    /** Whether the client has to look for another node; waits for that at most so long. */
    boolean awaitGone(long nanos) throws InterruptedException {
        return gone.await(nanos, TimeUnit.NANOSECONDS);
    }

    void close() {
        try {
            raw.close(); // ends reads and writes under way, those of TLS, too
        } catch (IOException e) {
            // it is as good as closed
        }
        gone.countDown();
    }

    private void end(String why) {
        List<Request> unanswered;
        synchronized (this) {
            if (error == null) {
                error = new ConnectionLostException(node, "connection lost: " + why);
            }
            unanswered = List.copyOf(pending);
            pending.clear();
            notifyAll();
        }
        close();
        for (var request : unanswered) {
            request.then.accept(null, error);
        }
    }

    private void read() throws IOException {
        InputStream in = new BufferedInputStream(socket.getInputStream());
        var value = first(in);
        while (true) {
            Request request = null;
            synchronized (this) {
                if (!pending.isEmpty() && pending.peek().isAnsweredBy(value)) {
                    request = pending.poll();
                }
            }
            if (request != null) {
                if (value instanceof Resp.Failure failure) {
                    request.then.accept(null, TransientException.of(node, failure.text()));
                } else {
                    request.then.accept(value, null);
                }
            } else if (value instanceof Resp.Push push) {
                onPush.accept(this, push);
            } else {
                throw new IOException("a reply that nobody asked for");
            }
            value = Resp.read(in);
        }
    }

    private Object first(InputStream in) throws IOException {
        try {
            return Resp.read(in);
        } catch (EOFException e) {
            throw socket instanceof SSLSocket ? e
                    : new EOFException(e.getMessage() + " before an answer: does the port want TLS?");
        }
    }

    private void write() throws IOException, InterruptedException {
        var out = new BufferedOutputStream(socket.getOutputStream());
        while (true) {
            byte[] data;
            synchronized (this) {
                while (unsent.isEmpty()) {
                    if (error != null) {
                        return;
                    }
                    wait();
                }
                data = unsent.poll();
                if (data == null) {
                    continue;
                }
            }
            out.write(data);
            synchronized (this) {
                if (!unsent.isEmpty()) {
                    continue;
                }
            }
            out.flush();
        }
    }

    /** Sends a command. then is called by the thread that reads, before that reads what follows. */
    void send(List<?> words, Then then) {
        synchronized (this) {
            if (error == null) {
                pending.add(new Request(words.get(0).equals("SUBSCRIBE"), System.nanoTime(), then));
                unsent.add(Resp.command(words));
                notifyAll();
                if (!timing) {
                    timing = true;
                    checkIn(patienceNanos);
                }
                return;
            }
        }
        then.accept(null, error);
    }

    private void checkIn(long nanos) {
        try {
            timer.schedule(this::checkAnswered, nanos, TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            leave(); // the client is closed
        }
    }

    private synchronized void checkAnswered() {
        var first = pending.peek();
        if (first == null || error != null) {
            timing = false;
            return;
        }
        long left = patienceNanos - (System.nanoTime() - first.sentAt);
        if (left <= 0) {
            leave();
            timing = false;
        } else {
            checkIn(left);
        }
    }

    /** Sends a command and waits for the reply. */
    Object call(Object... words) throws InterruptedException {
        return await(submit(words));
    }

    CompletableFuture<Object> submit(Object... words) {
        var answered = new CompletableFuture<Object>();
        send(List.of(words), (reply, why) -> {
            if (why != null) {
                answered.completeExceptionally(why);
            } else {
                answered.complete(reply);
            }
        });
        return answered;
    }

    Object await(CompletableFuture<Object> answered) throws InterruptedException {
        try {
            return answered.get(patienceNanos, TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            leave();
            throw new ConnectionLostException(node, "no answer in " + TimeUnit.NANOSECONDS.toMillis(patienceNanos) + " ms");
        } catch (ExecutionException e) {
            throw HoldfastException.of(e);
        }
    }
}
