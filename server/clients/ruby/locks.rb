# Lock libraries of Ruby under contention: see ../exclusive.sh.
#
# Environment: HOLDFAST_NODES (host:port,...).

require "redlock"
require "sidekiq-unique-jobs"

LEASE = 5 # seconds
NAME = ARGV[0]

# Each makes a worker's lock at its node: a function that calls the block while it holds the lock.
redlock = lambda do |url|
  manager = Redlock::Client.new([url], retry_count: 0)
  ->(&inside) { manager.lock(NAME, LEASE * 1000) { |held| inside.call if held } }
end

# With wait it is the lock of a job that waits for its turn (BLMOVE), without that of one that is dropped.
unique_jobs = lambda do |limit, wait|
  lambda do |url|
    Sidekiq.default_configuration.redis = { url: url }
    lambda do |&inside|
      lock = SidekiqUniqueJobs::Locksmith.new(
        "jid" => SecureRandom.hex(12), "lock_digest" => "uniquejobs:#{NAME}", "lock" => "until_executed",
        "lock_limit" => limit, "lock_ttl" => LEASE, "lock_timeout" => wait
      )
      wait.zero? ? lock.lock && inside.call : lock.execute(&inside)
    ensure
      lock.unlock
    end
  end
end

CASES = { # how many may hold, and a worker's lock
  "redlock" => [1, redlock],
  "sidekiq-unique-jobs" => [1, unique_jobs.call(1, 0)],
  "sidekiq-unique-jobs-three" => [3, unique_jobs.call(3, 0)],
  "sidekiq-unique-jobs-wait" => [1, unique_jobs.call(1, 1)],
}.freeze

# The reaper removes the locks of jobs that no queue has, by a script that leaves half of them, as it pages on while it
# removes. In 8.1.0 the setting :lua chooses the reaper of Ruby.
REAPER = "sidekiq-unique-jobs-reaper"

def reap
  Sidekiq.default_configuration.redis = { url: "redis://#{ENV.fetch("HOLDFAST_NODES").split(",")[1]}", timeout: 60 }
  SidekiqUniqueJobs.configure { |config| config.reaper_count = 1000 }
  Sidekiq.redis do |c|
    c.call("DEL", "uniquejobs:digests") # of the workers of other cases, which were killed
    c.call("SADD", "queues", "default")
    c.call("RPUSH", "queue:default", (1..1000).map { |i| JSON.generate("jid" => i, "lock_digest" => "uniquejobs:queued#{i}") })
    c.call("ZADD", "uniquejobs:digests", (1..1000).flat_map { |i| [i, format("uniquejobs:%032x", i)] })
    reaper = SidekiqUniqueJobs::Orphans::LuaReaper.new(c)
    nil while reaper.call.positive?
    left = c.call("ZCARD", "uniquejobs:digests")
    puts "#{left} of 1000 orphans left"
    exit(left.zero?)
  end
end

def work(worker, url, make)
  lock = make.call(url)
  loop do
    lock.call do
      $stdout.syswrite("+ #{worker} job\n")
      sleep(0.005)
      $stdout.syswrite("- #{worker} job\n")
    end
    sleep(rand(0.005..0.02))
  rescue StandardError => e
    warn "worker #{worker}: #{e.inspect}"
    sleep(0.05)
  end
end

if NAME == REAPER
  reap
elsif NAME
  limit, make = CASES.fetch(NAME)
  Sidekiq.logger.level = Logger::WARN
  $stdout.syswrite("locks #{limit}\n")
  nodes = ENV.fetch("HOLDFAST_NODES").split(",")
  6.times { |worker| fork { work(worker, "redis://#{nodes[worker % 3]}", make) } }
  Process.waitall
else
  puts CASES.keys, REAPER
end
