import io.lettuce.core.RedisClient;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

/** Takes a lock by Lettuce on all servers that it is given: see ../bridge.sh. */
public final class Bridge {
    // <lock>
    /** A lock on all servers, taken in this order: Redis first. */
    record Lock(List<RedisCommands<String, String>> servers, String name, String token) {
        static final String RELEASE =
                "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

        boolean acquire(long millis) {
            boolean all = servers.stream().allMatch(s -> s.set(name, token, SetArgs.Builder.nx().px(millis)) != null);
            if (!all) {
                release(); // what was taken before
            }
            return all;
        }

        void release() {
            servers.forEach(s -> s.eval(RELEASE, ScriptOutputType.INTEGER, new String[] {name}, token));
        }
    }
    // </lock>

    public static void main(String[] addresses) throws Exception {
        var servers = Arrays.stream(addresses).map(a -> RedisClient.create("redis://" + a).connect().sync()).toList();
        var job = new Lock(servers, "job", UUID.randomUUID().toString());
        if (!job.acquire(30_000)) {
            System.out.println("refused");
            System.exit(0);
        }
        System.out.println("held");
        System.in.read();
        job.release();
        System.out.println("released");
        System.exit(0);
    }
}
