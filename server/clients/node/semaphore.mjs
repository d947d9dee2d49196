// redis-semaphore, all classes, against three nodes of Holdfast. The package has no tests of its own.
//
// Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the leader and
// prints the address it had. The Redlock classes get three databases as their independent servers,
// each through a node of its own.

import assert from 'node:assert/strict'
import { execSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import {
  LostLockError, MultiSemaphore, Mutex, RedlockMultiSemaphore, RedlockMutex, RedlockSemaphore, Semaphore, TimeoutError
} from 'redis-semaphore'
import { check, tally, within } from './checks.mjs'

const nodes = process.env.HOLDFAST_NODES.split(',')
const soon = 10_000 // milliseconds within which a lock can be taken after the kill
const opened = []

function connect (node, db) {
  const [host, port] = node.split(':')
  const redis = new Redis({ host, port: Number(port), db, enableOfflineQueue: false, retryStrategy: () => 500 })
  redis.on('error', () => {}) // the killed node's connection ends
  opened.push(redis)
  return redis
}

// The library's timer leaves a refresh that failed to nobody: so end those at the killed node.
process.on('unhandledRejection', (e) => { if (!/Connection is closed|isn't writeable|ECONN/.test(e.message)) throw e })

const single = nodes.map((node) => connect(node, 0))
const servers = nodes.map(() => nodes.map((node, i) => connect(node, i + 1)))
await Promise.all(opened.map((redis) => new Promise((resolve) => redis.once('ready', resolve))))

// Classes: how many hold at a time, and one for a caller at node number i.
const classes = {
  Mutex: { limit: 1, make: (i, key, options) => new Mutex(single[i], key, options) },
  Semaphore: { limit: 3, make: (i, key, options) => new Semaphore(single[i], key, 3, options) },
  'MultiSemaphore, two permits of seven': { limit: 3, make: (i, key, options) => new MultiSemaphore(single[i], key, 7, 2, options) },
  RedlockMutex: { limit: 1, make: (i, key, options) => new RedlockMutex(servers[i], key, options) },
  RedlockSemaphore: { limit: 3, make: (i, key, options) => new RedlockSemaphore(servers[i], key, 3, options) },
  'RedlockMultiSemaphore, two permits of seven': { limit: 3, make: (i, key, options) => new RedlockMultiSemaphore(servers[i], key, 7, 2, options) }
}

// limited: callers on all nodes; never more inside than the class allows. A Redlock's callers, who can
// keep each other from a majority for long, are fewer. Three permits at each of three servers, two of
// which suffice, let four in.
async function limited (name, { limit, make }, key) {
  const redlock = name.startsWith('Redlock')
  const callers = redlock ? 5 : 9
  const allowed = redlock && limit > 1 ? 4 : limit
  let inside = 0
  let most = 0
  let done = 0
  await Promise.all(Array.from({ length: callers }, async (_, i) => {
    for (let round = 0; round < 4; round++) {
      const lock = make(i % nodes.length, key, { acquireTimeout: 60_000, retryInterval: redlock ? 10 + 13 * i : 10 })
      await lock.acquire()
      inside++
      most = Math.max(most, inside)
      await sleep(2)
      inside--
      done++
      await lock.release()
    }
  }))
  assert.equal(done, 4 * callers)
  assert.ok(most <= allowed, `${most} at a time`)
}

async function full ({ limit, make }, key, options = {}, at = [0, 1, 2]) {
  const holders = Array.from({ length: limit }, (_, i) => make(at[i % at.length], key, options))
  for (const holder of holders) assert.equal(await holder.tryAcquire(), true)
  return holders
}

// refused: one caller too many is turned away, and let in by a release.
async function refused (kind, key) {
  const holders = await full(kind, key)
  const rival = kind.make(1, key, { acquireAttemptsLimit: 1 })
  assert.equal(await rival.tryAcquire(), false)
  assert.equal(rival.isAcquired, false)
  await assert.rejects(kind.make(2, key, { acquireTimeout: 100 }).acquire(), TimeoutError)
  const waiter = kind.make(2, key, { acquireTimeout: 30_000 })
  const waits = waiter.acquire()
  await sleep(50)
  await holders[0].release()
  await waits
  assert.equal(await rival.tryAcquire(), false)
  for (const lock of [...holders.slice(1), waiter]) await lock.release()
  assert.equal(await rival.tryAcquire(), true)
  await rival.release()
}

// refreshed: a holder that refreshes keeps what it holds; one that stopped loses it, and is told.
async function refreshed (kind, key) {
  const lost = []
  const options = { lockTimeout: 2000, refreshInterval: 400, onLockLost: (e) => lost.push(e) }
  const holders = await full(kind, key, options)
  const rival = kind.make(0, key, { acquireTimeout: 20_000, acquireAttemptsLimit: 1 })
  await sleep(2600)
  assert.deepEqual(lost, [])
  assert.equal(await rival.tryAcquire(), false)
  for (const holder of holders) holder.stopRefresh()
  const late = kind.make(1, key, { acquireTimeout: 20_000 })
  await late.acquire()
  await within(5000, () => kind.make(2, key, {}).tryAcquire().then(() => true))
  await holders[0]._processRefresh() // what its timer calls
  if (kind.limit === 1) assert.ok(lost[0] instanceof LostLockError)
  await late.release()
}

// overTheKill: holders and waiters are on the nodes that are left; a Redlock loses one of its servers.
async function overTheKill () {
  const roles = await Promise.all(single.map((redis) => redis.info('replication')))
  const doomed = roles.findLastIndex((info) => info.includes('role:master'))
  const alive = [0, 1, 2].filter((i) => i !== doomed)
  const held = {}
  for (const [name, kind] of Object.entries(classes)) {
    await check(`${name}: held before the kill`, async () => { held[name] = await full(kind, `node:${name}:kill`, { lockTimeout: 20_000, refreshInterval: 500, onLockLost: (e) => console.log(`  lost  ${e}`) }, alive) })
  }
  // Callers that wait for a Redlock of two servers can take one each for ever: there one waits.
  const waiting = Object.fromEntries(Object.entries(classes).map(([name, kind]) => [name, (name.startsWith('Redlock') ? [0] : alive).map((i) => {
    const lock = kind.make(i, `node:${name}:kill`, { acquireTimeout: 60_000, retryInterval: 50 })
    return { lock, got: lock.acquire().then(() => true, (e) => e) }
  })]))
  await sleep(200)
  const dead = execSync(process.env.HOLDFAST_KILL, { encoding: 'utf8' }).trim()
  const started = Date.now()
  assert.equal(dead, nodes[doomed])
  await within(soon, () => classes.Mutex.make(alive[0], 'node:new', {}).tryAcquire())
  console.log(`  killed the leader, ${dead}; a new lock was taken ${Date.now() - started} ms later`)
  for (const [name, kind] of Object.entries(classes)) await check(`${name} over the kill`, () => survived(name, kind, held[name], waiting[name], alive))
}

// survived: what was held is held, on the nodes that are left; a release lets a caller in that waits.
async function survived (name, kind, holders, waiters, alive) {
  const key = `node:${name}:kill`
  for (const i of alive) {
    await within(soon, async () => await kind.make(i, key, { acquireAttemptsLimit: 1 }).tryAcquire() === false)
  }
  for (const holder of holders) await within(soon, () => holder._refresh())
  assert.equal(await Promise.race([...waiters.map(({ got }) => got), sleep(100, 'waits')]), 'waits')
  for (const holder of holders) await within(soon, () => holder.release().then(() => true))
  await Promise.all(waiters.map(async ({ lock, got }) => {
    const found = await got
    if (found === true) await lock.release()
    else assert.match(String(found), /UNCERTAIN|TRYAGAIN|CLUSTERDOWN/) // it asked while no node led
  }))
  for (const i of alive) {
    const fresh = kind.make(i, key, { acquireTimeout: 30_000 })
    await fresh.acquire()
    await fresh.release()
  }
}

console.log(`  redis-semaphore ${JSON.parse(readFileSync('node_modules/redis-semaphore/package.json')).version}`)
for (const [name, kind] of Object.entries(classes)) {
  await check(`${name}: callers on all nodes`, () => limited(name, kind, `node:${name}:limited`))
  await check(`${name}: one too many`, () => refused(kind, `node:${name}:refused`))
}
await Promise.all(Object.entries(classes).map(([name, kind]) => check(`${name}: refresh keeps, no refresh loses`, () => refreshed(kind, `node:${name}:refreshed`))))
await overTheKill()
for (const redis of opened) redis.disconnect()
console.log(`  ${tally.ran - tally.failures} of ${tally.ran} pass`)
process.exit(tally.failures ? 1 : 0)
