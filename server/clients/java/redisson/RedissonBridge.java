import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Takes a lock by Redisson on all servers that it is given: see ../../bridge.sh. */
public final class RedissonBridge {
    // <lock>
    /** The lock on all servers, or not at all; it asks them in this order: Redis first. */
    static RLock lockOn(List<RedissonClient> servers, String name) {
        var locks = servers.stream().map(server -> server.getLock(name)).toArray(RLock[]::new);
        return locks.length == 1 ? locks[0] : servers.get(0).getMultiLock(locks);
    }
    // </lock>

    // <fence>
    /** A fencing token while fenced locks are held on all servers: above all that one of them gave out. */
    static long fence(List<RFencedLock> locks) {
        return locks.stream().mapToLong(RFencedLock::getToken).max().orElseThrow();
    }
    // </fence>

    /** Over the bridge and back, holders in any order: fences only grow. In between counters are copied, as by import. */
    private static void fences(List<RedissonClient> servers) {
        var locks = servers.stream().map(server -> server.getFencedLock("job")).toList();
        var both = servers.get(0).getMultiLock(locks.toArray(RLock[]::new));
        var random = new Random(1);
        long last = 41;
        int given = 0;
        for (int beside : new int[] {0, 1, 0}) { // the server of the release that runs beside the bridge
            for (var server : servers) {
                server.getAtomicLong("redisson_lock_token:{job}").set(last);
            }
            for (int i = 0; i < 50; i++, given++) {
                RLock lock = random.nextInt(5) < 3 ? both : locks.get(beside);
                lock.lock();
                long token = fence(lock == both ? locks : List.of(locks.get(beside)));
                lock.unlock();
                if (token <= last) {
                    throw new AssertionError(token + " is after " + last);
                }
                last = token;
            }
        }
        servers.forEach(server -> server.getKeys().delete("redisson_lock_token:{job}"));
        System.out.println("fences grow: " + given);
    }

    static RedissonClient client(String address) {
        var config = new Config();
        config.useSingleServer().setAddress("redis://" + address);
        return Redisson.create(config);
    }

    public static void main(String[] addresses) throws Exception {
        if (addresses[0].equals("fences")) {
            fences(Arrays.stream(addresses).skip(1).map(RedissonBridge::client).toList());
            System.exit(0);
        }
        var job = lockOn(Arrays.stream(addresses).map(RedissonBridge::client).toList(), "job");
        if (!job.tryLock(0, 30, TimeUnit.SECONDS)) {
            System.out.println("refused");
            System.exit(0);
        }
        System.out.println("held");
        System.in.read();
        job.unlock();
        System.out.println("released");
        System.exit(0);
    }
}
