package io.github.holdfast;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** One grant of a lock, asked for or held. The monitor of its session guards it. */
final class Grant {
    private enum State { WAITING, HELD, LOST, RELEASED }

    final Session session;
    final List<String> names;
    final String owner; // never the same: a repeated command concerns no other hold
    private final List<Object> options;
    private final boolean waits;
    /** Completed by threads of the client, and so never for users to see. */
    final CompletableFuture<Grant> granted = new CompletableFuture<>();
    private final CompletableFuture<LockLostException> lost = new CompletableFuture<>();
    private State state = State.WAITING;
    private long fence;
    private String askedIn; // the session that the lock was asked for in last; null: in none, or in vain
    private Session.Call asking;
    private LockLostException loss;
    private int shares = 1; // of a reentrant lock

    Grant(Session session, String owner, List<String> names, List<Object> options, boolean waits) {
        this.session = session;
        this.owner = owner;
        this.names = names;
        this.options = options;
        this.waits = waits;
    }

    /** Stands in line for the lock. */
    void begin() {
        synchronized (session) {
            session.add(this);
            ask();
        }
    }

    /** Asks for the lock, or for the place in line, unless it is held or being asked for. */
    void ask() {
        if (state != State.WAITING || asking != null) {
            return;
        }
        asking = new Session.Call(null, !waits, () -> {
            askedIn = session.id();
            return acquireWords(askedIn);
        }, this::answered);
        session.start(asking);
    }

    private List<Object> acquireWords(String in) {
        var words = new ArrayList<Object>();
        if (names.size() == 1) {
            words.add("LOCK.ACQUIRE");
        } else {
            words.addAll(List.of("LOCK.ACQUIREALL", names.size()));
        }
        words.addAll(names);
        words.addAll(List.of(owner, "SESSION", in));
        words.addAll(options);
        if (waits) {
            words.addAll(List.of("WAIT", 0, "NOTIFY"));
        }
        return words;
    }

    private void answered(Object reply, HoldfastException error) {
        var asked = asking;
        asking = null;
        if (state != State.WAITING) {
            return;
        }
        if (error != null || reply == null) {
            if (!asked.isRepeated()) {
                askedIn = null; // there is no place in line to give up
            }
            giveUp(error != null ? error : new NotAcquiredException("lock \"" + names.get(0) + "\" is not free"));
        } else if ((Long) reply > 0) {
            grant((Long) reply);
        }
    }

    /** Notes a grant. One in a session that was given up does not count. */
    private void grant(long number) {
        if (state == State.WAITING && askedIn != null && askedIn.equals(session.id())) {
            fence = number;
            state = State.HELD;
            granted.complete(this);
        }
    }

    void pushed(boolean current, Resp.Push push) {
        Object first = push.words().size() > 4 ? push.words().get(4) : null;
        switch (push.word(1)) {
            case "granted" -> {
                if (first instanceof Long number) {
                    grant(number);
                }
            }
            case "timeout", "failed" -> {
                if (current) {
                    ask();
                }
            }
            case "lost" -> {
                if (Long.valueOf(fence).equals(first)) {
                    lose(push.word(5), push.word(6), push.word(7), 0);
                }
            }
            default -> { }
        }
    }

    /** Stops waiting, for a reason that the caller is told. False: the lock was granted before, or given up. */
    boolean giveUp(HoldfastException why) {
        synchronized (session) {
            if (state != State.WAITING) {
                return false;
            }
            leave();
            granted.completeExceptionally(why);
            if (askedIn != null) {
                giveBack();
            }
            return true;
        }
    }

    private void leave() {
        state = State.RELEASED;
        session.remove(this);
        if (asking != null) {
            session.forget(asking);
        }
    }

    /** Tells the cluster that nobody wants the lock any more, unless the session has ended, and the lock with it. */
    private void giveBack() {
        session.start(new Session.Call(askedIn, false, () -> List.of("LOCK.CANCEL", names.get(0), owner), (left, error) -> {
            if (error == null) {
                session.start(new Session.Call(askedIn, false, this::releaseWords, (ended, why) -> { }));
            }
        }));
    }

    private List<Object> releaseWords() {
        if (names.size() == 1) {
            return List.of("LOCK.RELEASE", names.get(0), owner, "ALL");
        }
        var words = new ArrayList<Object>(List.of("LOCK.RELEASEALL", names.size()));
        words.addAll(names);
        words.add(owner);
        return words;
    }

    // What is held.

    boolean isHeld() {
        return state == State.HELD;
    }

    long fence() {
        return fence;
    }

    /** Notes a loss; left is for how many nanoseconds nobody else is granted the lock. */
    void lose(String reason, String text, String by, long left) {
        if (state != State.HELD && state != State.RELEASED || loss != null) {
            return;
        }
        loss = new LockLostException(names.get(0), fence, reason, text, by, Duration.ofNanos(left));
        if (state == State.RELEASED) {
            return;
        }
        state = State.LOST;
        session.remove(this);
        session.warn(loss);
        session.users.execute(() -> lost.complete(loss));
        if (names.size() > 1) {
            giveBack();
        }
    }

    /** The loss; null while the lock is held. It is found here if the client's threads were frozen until now. */
    LockLostException loss() {
        synchronized (session) {
            if (loss == null && state == State.HELD && session.sureNanos() <= 0) {
                return new LockLostException(names.get(0), fence, "no node could be reached", "", "",
                        Duration.ofNanos(session.leftNanos()));
            }
            return loss;
        }
    }

    CompletableFuture<LockLostException> lost() {
        return lost;
    }

    /** Has another hold share this grant, unless that is over. */
    boolean share() {
        synchronized (session) {
            if (state != State.HELD) {
                return false;
            }
            shares++;
            return true;
        }
    }

    /** Releases the lock. The future ends with the loss, if the lock was lost before. */
    CompletableFuture<Void> release() {
        var released = new CompletableFuture<Void>();
        synchronized (session) {
            if (--shares > 0 && loss == null) {
                return CompletableFuture.completedFuture(null);
            }
            if (loss != null) {
                return CompletableFuture.failedFuture(loss);
            }
            state = State.RELEASED;
            start(released);
        }
        return released;
    }

    private void start(CompletableFuture<Void> released) {
        var call = new Session.Call[1];
        call[0] = new Session.Call(askedIn, false, this::releaseWords, (ended, error) -> {
            session.remove(this);
            boolean some = ended instanceof Long count && (names.size() == 1 || count == names.size());
            if (error != null) {
                released.completeExceptionally(error);
            } else if (some || call[0].isRepeated()) { // the reply to the first try may have been lost
                released.complete(null);
            } else {
                released.completeExceptionally(loss != null ? loss
                        : new LockLostException(names.get(0), fence, "unknown", "", "", Duration.ZERO));
            }
        });
        session.start(call[0]);
    }

    /** Notes that the client is closed, and the lock free by that. */
    void closed() {
        if (state == State.HELD) {
            state = State.LOST;
            loss = new LockLostException(names.get(0), fence, "the client was closed", "", "", Duration.ZERO);
        } else if (state == State.WAITING) {
            leave();
            granted.completeExceptionally(new HoldfastException("the client is closed", null));
        }
    }
}
