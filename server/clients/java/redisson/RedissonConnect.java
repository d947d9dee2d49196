import java.util.concurrent.TimeUnit;
import java.time.Duration;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;

/**
 * Redisson connects as CONNECT.md has it: by one address, by Sentinel and as a Redis Cluster, over a kill of the leader.
 * Arguments: redisson; single, sentinel or cluster. Environment: HOLDFAST_PASSWORD, and HOLDFAST_KILL, a command that kills
 * the leader. The CA is in the truststore of the JVM.
 */
public final class RedissonConnect {
    private RedissonConnect() {}

    static RedissonClient client(String mode) {
        // <redisson>
        Config config = new Config();
        config.setPassword(System.getenv("HOLDFAST_PASSWORD"));
        // </redisson>
        switch (mode) {
            case "single":
                // <redisson single>
                config.useSingleServer().setAddress("rediss://10.0.0.1:6379").setConnectTimeout(1000);
                // </redisson single>
                break;
            case "sentinel":
                // <redisson sentinel>
                config.useSentinelServers().setMasterName("mymaster").setSentinelPassword(System.getenv("HOLDFAST_PASSWORD"))
                        .addSentinelAddress("rediss://10.0.0.1:26379", "rediss://10.0.0.2:26379", "rediss://10.0.0.3:26379")
                        .setScanInterval(500).setConnectTimeout(1000).setRetryDelay(new ConstantDelay(Duration.ofMillis(200)));
                // </redisson sentinel>
                break;
            default:
                // <redisson cluster>
                config.useClusterServers().addNodeAddress("rediss://10.0.0.1:6379", "rediss://10.0.0.2:6379", "rediss://10.0.0.3:6379")
                        .setScanInterval(500).setConnectTimeout(1000).setRetryDelay(new ConstantDelay(Duration.ofMillis(200)));
                // </redisson cluster>
                break;
        }
        return Redisson.create(config);
    }

    public static void main(String[] args) throws Exception {
        RedissonClient client = client(args[1]);
        RLock lock = client.getLock("connect:redisson:" + args[1]);
        lock.lock(120, TimeUnit.SECONDS);
        String counter = "connect:redisson:fence:" + args[1];
        long fence = client.getAtomicLong(counter).incrementAndGet();
        Process kill = new ProcessBuilder("sh", "-c", System.getenv("HOLDFAST_KILL")).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String dead = new String(kill.getInputStream().readAllBytes()).trim();
        long began = System.nanoTime();
        while (true) {
            try {
                if (client.getAtomicLong(counter).incrementAndGet() <= fence) {
                    throw new AssertionError("the fence has not grown");
                }
                break;
            } catch (RuntimeException e) {
                if (System.nanoTime() - began > 30_000_000_000L) {
                    throw e;
                }
                Thread.sleep(10);
            }
        }
        double took = (System.nanoTime() - began) / 1e9;
        if (!lock.isHeldByCurrentThread()) {
            throw new AssertionError("the lock is lost");
        }
        System.out.printf("  ok    redisson, %s: %.2f s after the end of %s%n", args[1], took, dead);
        System.exit(0);
    }
}
