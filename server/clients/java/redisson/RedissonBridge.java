import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Takes a lock by Redisson on all servers that it is given: see ../../bridge.sh. */
public final class RedissonBridge {
    /** The lock on all servers, or not at all; it asks them in this order: Redis first. */
    static RLock lockOn(List<RedissonClient> servers, String name) {
        var locks = servers.stream().map(server -> server.getLock(name)).toArray(RLock[]::new);
        return locks.length == 1 ? locks[0] : servers.get(0).getMultiLock(locks);
    }

    static RedissonClient client(String address) {
        var config = new Config();
        config.useSingleServer().setAddress("redis://" + address);
        return Redisson.create(config);
    }

    public static void main(String[] addresses) throws Exception {
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
