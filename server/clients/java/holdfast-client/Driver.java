import io.github.holdfast.Credentials;
import io.github.holdfast.Hold;
import io.github.holdfast.HoldfastClient;
import io.github.holdfast.HoldfastException;
import io.github.holdfast.HoldfastLock;
import io.github.holdfast.LockInfo;
import io.github.holdfast.LockLostException;
import io.github.holdfast.NotAcquiredException;
import io.github.holdfast.RefusedException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;

/**
 * The client's part of the scenarios of server/clients/CONTRACT.md: see cmd/internal/clienttest. With --async locks
 * are taken by futures, else by threads.
 */
public final class Driver {
    private static final Map<String, Hold> HOLDS = new ConcurrentHashMap<>();
    private static final Map<String, HoldfastLock> REENTRANT = new ConcurrentHashMap<>();
    private static final Map<String, Thread> WAITING = new ConcurrentHashMap<>();
    private static final Map<String, CompletableFuture<Hold>> FUTURES = new ConcurrentHashMap<>();
    private static boolean async;

    private interface Act {
        void run() throws InterruptedException;
    }

    private static synchronized void say(String event) {
        System.out.println(event);
    }

    private static String of(HoldfastException e) {
        return e instanceof LockLostException ? " lost" : e instanceof RefusedException ? " refused " + e : " error " + e;
    }

    private static Credentials credentials() {
        try {
            return new Credentials(null, Files.readString(Path.of(System.getenv("HOLDFAST_PASSWORD_FILE"))).strip());
        } catch (NoSuchFileException e) {
            return null;
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static String option(String[] words, String name) {
        for (var word : words) {
            if (word.startsWith(name + "=")) {
                return word.substring(name.length() + 1);
            }
        }
        return null;
    }

    private static HoldfastLock lock(HoldfastClient client, String[] words) {
        var permits = option(words, "semaphore");
        if (words[0].equals("all")) {
            return client.locks(java.util.Arrays.copyOfRange(words, 2, words.length));
        } else if (words.length > 3 && words[3].equals("shared")) {
            return client.readLock(words[2]);
        } else if (permits != null) {
            var of = permits.split("/");
            return client.semaphore(words[2], Integer.parseInt(of[1]), Integer.parseInt(of[0]));
        } else if (option(words, "reentrant") != null) {
            return REENTRANT.computeIfAbsent(words[2] + words[3], name -> client.lock(words[2]).reentrant());
        }
        var note = option(words, "note");
        return note == null ? client.lock(words[2]) : client.lock(words[2]).note(note);
    }

    private static Duration time(String[] words) {
        var timeout = option(words, "timeout");
        return timeout == null ? null : Duration.ofNanos((long) (1e9 * Double.parseDouble(timeout)));
    }

    private static Hold acquire(HoldfastLock lock, String[] words) throws InterruptedException, ExecutionException {
        var time = time(words);
        if (words[0].equals("try")) {
            return lock.tryAcquire().orElse(null);
        } else if (async) {
            return FUTURES.get(words[1]).get();
        }
        return time == null ? lock.acquire() : lock.acquire(time);
    }

    /** Asks at once, so that a cancel behind it finds what to cancel. */
    private static void begin(HoldfastClient client, String[] words) {
        var lock = lock(client, words);
        if (async && !words[0].equals("try")) {
            var time = time(words);
            FUTURES.put(words[1], time == null ? lock.acquireAsync() : lock.acquireAsync(time));
        }
        start(words[1], () -> take(lock, words));
    }

    private static void take(HoldfastLock lock, String[] words) {
        var call = words[1];
        try {
            var hold = acquire(lock, words);
            if (hold == null) {
                say("refused " + call + " not-granted");
                return;
            }
            HOLDS.put(call, hold);
            say("granted " + call + " " + hold.fence());
            hold.onLost(loss -> say("lost " + call + (loss.left().isZero() ? " now " : " later ") + loss.reason()
                    + (loss.by().isEmpty() ? "" : " by " + loss.by() + ": " + loss.text())));
        } catch (InterruptedException | CancellationException e) {
            say("refused " + call + " cancelled");
        } catch (NotAcquiredException e) {
            say("refused " + call + " not-granted");
        } catch (ExecutionException e) {
            say("refused " + call + (e.getCause() instanceof NotAcquiredException ? " not-granted" : of((HoldfastException) e.getCause())));
        } catch (HoldfastException e) {
            say("refused " + call + of(e));
        }
    }

    private static void unlock(String call) {
        try {
            try (var hold = HOLDS.get(call)) { // that both throw the loss is as usual
                hold.check();
            }
            say("released " + call);
        } catch (HoldfastException e) {
            say("released " + call + of(e));
        }
    }

    private static void lease(HoldfastClient client, String call, String name) throws InterruptedException {
        try {
            var lease = client.lease(name, Duration.ofHours(1));
            say(lease.isPresent() ? "granted " + call + " " + lease.get().fence() : "refused " + call + " not-granted");
        } catch (HoldfastException e) {
            say("refused " + call + of(e));
        }
    }

    private static void look(HoldfastClient client, String name) throws InterruptedException {
        try {
            var info = client.inspect(name);
            say("seen " + name + " " + info.holderCount() + " " + info.waiterCount());
        } catch (HoldfastException e) {
            say("seen " + name + " 0 0" + of(e));
        }
    }

    private static void watch(HoldfastClient client, String name) throws InterruptedException {
        for (var watch = client.watch(name); ; ) {
            var change = new StringBuilder("change " + name);
            LockInfo info = watch.next();
            change.append(' ').append(info.holderCount());
            info.holders().forEach(party -> change.append(' ').append(party.note()));
            say(change.toString());
        }
    }

    private static void cancel(String call) {
        if (async) {
            FUTURES.get(call).cancel(false);
        } else {
            WAITING.get(call).interrupt();
        }
    }

    private static void start(String call, Act act) {
        var thread = new Thread(() -> {
            try {
                act.run();
            } catch (InterruptedException | HoldfastException e) {
                // the client is closed
            }
        });
        thread.setDaemon(true);
        WAITING.put(call, thread);
        thread.start();
    }

    private static void obey(HoldfastClient client, String[] words) throws InterruptedException {
        switch (words[0]) {
            case "lock", "try", "all" -> begin(client, words);
            case "lease" -> start(words[1], () -> lease(client, words[1], words[2]));
            case "unlock" -> start("unlock", () -> unlock(words[1]));
            case "cancel" -> cancel(words[1]);
            case "look" -> look(client, words[1]);
            case "watch" -> start("watch", () -> watch(client, words[1]));
            case "pass" -> say("passes " + words[1] + " " + client.fencePass(words[1], HOLDS.get(words[2]).fence()));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        async = args.length > 0 && args[0].equals("--async");
        try {
            HoldfastClient.builder("node:1").credentials("user", null);
            throw new AssertionError("a user without a password");
        } catch (NullPointerException e) {
            // told before it connects
        }
        var client = HoldfastClient.builder(System.getenv("HOLDFAST_NODES").split(",")).credentials(Driver::credentials)
                .ttl(Duration.parse("PT" + System.getenv("HOLDFAST_TTL"))).name("driver").build();
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (var line = in.readLine(); line != null; line = in.readLine()) {
            obey(client, line.split(" "));
        }
        client.close();
        say("closed");
    }
}
