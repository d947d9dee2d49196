//! Checks of the recipe in lock.rs against three nodes.
//!
//! Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the leader and
//! prints the address it had.

mod lock;

use lock::{may_write, Lock};
use redis::{cmd, Connection, RedisResult};
use std::env;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const PATIENT: Duration = Duration::from_secs(20);

fn nodes() -> Vec<String> {
    env::var("HOLDFAST_NODES").unwrap().split(',').map(String::from).collect()
}

fn connect(node: usize) -> RedisResult<Connection> {
    redis::Client::open(format!("redis://{}/", nodes()[node]))?.get_connection()
}

fn open(node: usize, name: &str) -> RedisResult<Lock> {
    Lock::open(&nodes()[node], name, &format!("owner-{node}"), 30_000)
}

fn within(mut run: impl FnMut() -> RedisResult<bool>) -> Outcome {
    let deadline = Instant::now() + PATIENT;
    while !run().unwrap_or(false) {
        if Instant::now() > deadline {
            return Err("it takes too long".into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn info(name: &str) -> RedisResult<String> {
    let value: redis::Value = cmd("LOCK.INFO").arg(name).query(&mut connect(2)?)?;
    Ok(format!("{value:?}"))
}

fn waiting() -> Outcome {
    let mut first = open(0, "rust:job")?;
    let old = first.acquire(PATIENT, "")?.ok_or("not granted")?;
    let waiter = thread::spawn(|| -> RedisResult<(Option<i64>, Lock)> {
        let mut second = open(1, "rust:job")?;
        Ok((second.acquire(PATIENT, "")?, second))
    });
    within(|| Ok(info("rust:job")?.contains("owner-1")))?;
    assert_eq!(first.release()?, Some(0));
    let (fence, second) = waiter.join().unwrap()?;
    let fence = fence.ok_or("not granted")?;
    assert!(fence > old);
    assert!(may_write(&mut connect(2)?, "rust:resource", fence)?);
    assert!(!may_write(&mut connect(1)?, "rust:resource", old)?);
    assert_eq!(first.acquire(Duration::from_millis(100), "")?, None);
    drop(second); // its session ends, and with it the hold
    assert!(first.acquire(PATIENT, "")? > Some(fence));
    Ok(())
}

fn leases() -> Outcome {
    let renew = |node, owner: &str| -> RedisResult<Option<i64>> {
        cmd("LOCK.RENEW").arg("rust:lease").arg(owner).arg("PX").arg(60_000).query(&mut connect(node)?)
    };
    let fence: Option<i64> = cmd("LOCK.ACQUIRE").arg("rust:lease").arg("me").arg("PX").arg(10_000).query(&mut connect(0)?)?;
    assert!(fence.is_some());
    assert_eq!(renew(1, "me")?, fence);
    assert_eq!(renew(2, "you")?, None);
    Ok(cmd("LOCK.RELEASE").arg("rust:lease").arg("me").exec(&mut connect(0)?)?)
}

fn losses() -> Outcome {
    let mut subscriber = connect(1)?;
    let mut channel = subscriber.as_pubsub();
    channel.subscribe("__lock@0__:rust:lost")?;
    channel.set_read_timeout(Some(PATIENT))?;
    let mut lock = open(0, "rust:lost")?;
    let fence = lock.acquire(PATIENT, "")?.ok_or("not granted")?;
    cmd("LOCK.BREAK").arg("rust:lost").arg("REASON").arg("a test").exec(&mut connect(2)?)?;
    within(|| Ok(!lock.held()? && lock.lost.as_deref() == Some("broken")))?;
    let told = format!("lost {} {fence} broken", lock.owner);
    while channel.get_message()?.get_payload::<String>()? != told {}
    Ok(())
}

fn election() -> Outcome {
    let mut leader = open(0, "rust:leader")?;
    leader.acquire(PATIENT, "10.0.0.1:80")?.ok_or("not granted")?;
    assert!(info("rust:leader")?.contains("10.0.0.1:80"));
    let candidate = thread::spawn(|| -> RedisResult<Lock> {
        let mut candidate = open(1, "rust:leader")?;
        candidate.acquire(PATIENT, "10.0.0.2:80")?;
        Ok(candidate)
    });
    drop(leader);
    let mut candidate = candidate.join().unwrap()?;
    assert!(candidate.held()?);
    assert!(info("rust:leader")?.contains("10.0.0.2:80"));
    Ok(())
}

fn kill() -> Outcome {
    let mut held = Vec::new();
    for (i, node) in nodes().into_iter().enumerate() {
        let mut lock = open(i, &format!("rust:kill:{i}"))?;
        let fence = lock.acquire(PATIENT, "")?.ok_or("not granted")?;
        held.push((node, lock, fence));
    }
    let killed = Command::new("sh").arg("-c").arg(env::var("HOLDFAST_KILL")?).output()?;
    let dead = String::from_utf8(killed.stdout)?.trim().to_string();
    let alive = nodes().iter().position(|node| *node != dead).unwrap();
    for (node, lock, fence) in &mut held {
        within(|| {
            let mut c = connect(alive)?;
            if *node == dead {
                cmd("SESSION.ATTACH").arg(lock.session).exec(&mut c)?;
            }
            let found: Option<i64> = cmd("LOCK.CHECK").arg(&lock.name).arg(&lock.owner).query(&mut c)?;
            Ok(found == Some(*fence) && (*node == dead || lock.held()?))
        })?;
    }
    Ok(())
}

fn main() {
    let mut failures = 0;
    let checks: [(&str, fn() -> Outcome); 5] =
        [("waiting", waiting), ("leases", leases), ("losses", losses), ("election", election), ("kill", kill)];
    for (name, check) in checks {
        match std::panic::catch_unwind(check) {
            Ok(Ok(())) => println!("  ok    redis-rs: {name}"),
            Ok(Err(e)) => {
                failures += 1;
                println!("  FAIL  redis-rs: {name}: {e}");
            }
            Err(_) => failures += 1,
        }
    }
    std::process::exit((failures > 0) as i32);
}
