<?php
// Lock libraries of PHP under contention: see ../exclusive.sh.
//
// Environment: HOLDFAST_NODES (host:port,...).

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

require 'Symfony/Component/Lock/autoload.php';

const LEASE = 5; // seconds

function inside(int $worker): void
{
    fwrite(STDOUT, "+ $worker job\n");
    usleep(5000);
    fwrite(STDOUT, "- $worker job\n");
}

function connect(string $host, int $port): Redis
{
    $redis = new Redis();
    $redis->connect($host, $port, LEASE);
    return $redis;
}

// What a worker does with its connection, whose errors make it connect again.
$cases = [
    'symfony-lock' => function (string $name, int $worker, string $host, int $port) {
        $factory = new LockFactory(new RedisStore(connect($host, $port), LEASE));
        while (true) {
            $lock = $factory->createLock($name, LEASE);
            if ($lock->acquire()) {
                inside($worker);
                $lock->release();
            }
            usleep(random_int(5000, 20000));
        }
    },
    // A page has its session's lock until it has written the session.
    'phpredis-session' => function (string $name, int $worker, string $host, int $port) {
        session_abort(); // of the request before an error
        ini_set('session.save_handler', 'redis');
        ini_set('session.save_path', "tcp://$host:$port");
        ini_set('session.use_cookies', '0');
        ini_set('session.cache_limiter', '');
        ini_set('redis.session.locking_enabled', '1');
        ini_set('redis.session.lock_expire', (string) LEASE);
        ini_set('redis.session.lock_retries', '1000');
        while (true) {
            session_id($name);
            if (session_start()) {
                inside($worker);
                session_write_close();
            }
            usleep(random_int(5000, 20000));
        }
    },
];

$name = $argv[1] ?? null;
if ($name === null) {
    new Redis();
    function_exists('pcntl_fork') || exit(1);
    echo implode("\n", array_keys($cases)), "\n";
    exit;
}
set_error_handler(fn (int $level, string $text) => throw new ErrorException($text));
fwrite(STDOUT, "locks 1\n");
foreach ([...explode(',', getenv('HOLDFAST_NODES')), ...explode(',', getenv('HOLDFAST_NODES'))] as $worker => $node) {
    if (pcntl_fork() > 0) {
        continue;
    }
    while (true) {
        try {
            $cases[$name]($name, $worker, ...explode(':', $node));
        } catch (Throwable $e) {
            fwrite(STDERR, "worker $worker: {$e->getMessage()}\n");
            usleep(50000);
        }
    }
}
pcntl_wait($status);
