import java.util.Objects;
import java.util.concurrent.Callable;

/** What the suites share. */
abstract class Checks {
    /** How many checks there were so far, and how many failed. */
    static int ran;
    static int failures;

    interface Step {
        void run() throws Exception;
    }

    static void check(String name, Step step) {
        ran++;
        try {
            step.run();
            System.out.println("  ok    " + name);
        } catch (Exception | AssertionError e) {
            failures++;
            System.out.println("  FAIL  " + name + ": " + e);
            e.printStackTrace(System.out);
        }
    }

    static void expect(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError("found " + found + ", expected " + wanted);
        }
    }

    /** Repeats attempt until it answers true; errors count as not yet. */
    static void within(long millis, Callable<Boolean> attempt) throws Exception {
        long deadline = System.nanoTime() + millis * 1_000_000;
        for (String failure = "it answered false";; Thread.sleep(50)) {
            try {
                if (attempt.call()) {
                    return;
                }
            } catch (Exception e) {
                failure = e.toString();
            }
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + millis + " ms: " + failure);
            }
        }
    }
}
