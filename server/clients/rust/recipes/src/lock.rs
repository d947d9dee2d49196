//! The recipe for redis-rs: copy this file.

use redis::{cmd, Cmd, Connection, FromRedisValue, PushInfo, PushKind, RedisResult, Value};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// A native lock that ends with its connection: with this process, too.
pub struct Lock {
    connection: Connection,
    pushes: Receiver<PushInfo>,
    pub name: String,
    pub owner: String,
    pub session: i64,
    /// Why the lock was lost, once that is known.
    pub lost: Option<String>,
}

const SLICE: Duration = Duration::from_secs(2); // of one wait

impl Lock {
    /// Opens a session on a connection of its own. The owner must be nobody else's.
    pub fn open(node: &str, name: &str, owner: &str, lease_millis: u64) -> RedisResult<Lock> {
        let mut connection = redis::Client::open(format!("redis://{node}/?protocol=resp3"))?.get_connection()?;
        connection.set_read_timeout(Some(3 * SLICE))?;
        let (sender, pushes) = channel();
        connection.set_push_sender(sender);
        let session = cmd("SESSION.OPEN").arg("PX").arg(lease_millis).arg("CONNECTION").query(&mut connection)?;
        Ok(Lock { connection, pushes, name: name.into(), owner: owner.into(), session, lost: None })
    }

    /// Stands in line; the fence, or None in the end. Asking again keeps the place.
    pub fn acquire(&mut self, wait: Duration, note: &str) -> RedisResult<Option<i64>> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now()).min(SLICE).as_millis().max(1) as u64;
            let mut ask = self.ask("LOCK.ACQUIRE");
            ask.arg("SESSION").arg(self.session).arg("WAIT").arg(left).arg("NOTE").arg(note);
            let fence: Option<i64> = ask.query(&mut self.connection)?;
            if fence.is_some() || Instant::now() >= until {
                return Ok(fence);
            }
        }
    }

    /// Whether the lock is still held. A notice of its loss is read at the latest then.
    pub fn held(&mut self) -> RedisResult<bool> {
        let fence: Option<i64> = self.ask("LOCK.CHECK").query(&mut self.connection)?;
        for push in self.pushes.try_iter().filter(|p| p.kind == PushKind::Other("lock".into())) {
            let words: Vec<String> = push.data.iter().filter_map(|v: &Value| String::from_redis_value_ref(v).ok()).collect();
            if words.len() > 4 && words[..3] == ["lost", &self.name, &self.owner] {
                self.lost = Some(words[4].clone());
            }
        }
        Ok(fence.is_some())
    }

    pub fn release(&mut self) -> RedisResult<Option<i64>> {
        self.ask("LOCK.RELEASE").query(&mut self.connection)
    }

    fn ask(&self, word: &str) -> Cmd {
        let mut ask = cmd(word);
        ask.arg(&self.name).arg(&self.owner);
        ask
    }
}

/// Whether the holder with this fence may still write to the resource.
pub fn may_write(connection: &mut Connection, resource: &str, fence: i64) -> RedisResult<bool> {
    cmd("FENCE.PASS").arg(resource).arg(fence).query(connection)
}
