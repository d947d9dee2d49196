import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * Redisson, the package as published, against three nodes of Holdfast. Arguments are the modes:
 * single (each client at its own node), replicated, sentinel, cluster. The leader is killed in each
 * mode; HOLDFAST_START starts the killed node again.
 *
 * <p>Environment: HOLDFAST_NODES (host:port,...), HOLDFAST_KILL, a command that kills the leader and
 * prints the address it had, HOLDFAST_START, and HOLDFAST_SENTINELS in mode sentinel.
 */
public final class RedissonSuite {
    private RedissonSuite() {}

    public static void main(String[] modes) throws Exception {
        System.out.println("  redisson " + Redisson.class.getPackage().getImplementationVersion());
        for (String mode : modes) {
            with(mode, Support.WATCHDOG_MILLIS, clients -> {
                new Locks(clients, mode + ": ").run();
                new Permits(clients, mode + ": ").run();
                new Failures(clients, mode).holderKilled();
            });
            with(mode, Support.PATIENT_WATCHDOG_MILLIS, clients -> new Failures(clients, mode).leaderKilled());
            new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_START")).inheritIO().start().waitFor();
        }
        System.exit(Support.finish() > 0 ? 1 : 0);
    }

    interface Cases {
        void run(List<RedissonClient> clients) throws Exception;
    }

    /** Runs cases with three clients, one for each node, if all three connect. */
    private static void with(String mode, long watchdogMillis, Cases cases) throws Exception {
        List<RedissonClient> clients = new ArrayList<>();
        Support.check(mode + ": three clients connect", () -> {
            for (int i = 0; i < 3; i++) {
                clients.add(Support.client(mode, i, watchdogMillis));
            }
        });
        if (clients.size() == 3) {
            cases.run(clients);
        }
        for (RedissonClient client : clients) {
            client.shutdown(0, 2, TimeUnit.SECONDS);
        }
    }
}
