// Stock Node clients and lock libraries against three nodes of Holdfast.
//
// Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that
// kills the leader and prints the address it had.

import assert from 'node:assert/strict'
import { execSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Redis as Redis6 } from 'ioredis'
import { Redis as Redis5 } from 'ioredis5'
import { createClient, WatchError } from 'redis'
import { Mutex } from 'redis-semaphore'
import { Redlock as SesameRedlock } from '@sesamecare-oss/redlock'
import { check, tally, within } from './checks.mjs'

// The types of redlock 5 are for import, its exports for require.
const Redlock = createRequire(import.meta.url)('redlock').default

const nodes = process.env.HOLDFAST_NODES.split(',')
const release = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
const extend = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"
const long = 120_000 // TTL of what is held over the kill, in milliseconds
const soon = 5_000 // milliseconds within which a lock can be taken after the kill
const opened = []

// Connecting: every client becomes {send(...words), pipeline, transaction, watched, select}.

function ioredis (Redis, options) {
  return async (node, db = 0) => {
    const [host, port] = node.split(':')
    const raw = new Redis({ host, port: Number(port), db, connectionName: 'suite', maxRetriesPerRequest: 1, ...options })
    raw.on('error', () => {}) // the killed node's connection ends
    opened.push(() => raw.disconnect())
    await raw.ping()
    return {
      raw,
      send: (...words) => raw.call(...words),
      pipeline: async (count, key) => {
        const pipe = raw.pipeline()
        for (let i = 0; i < count; i++) pipe.incr(key)
        return (await pipe.exec()).map(([err, reply]) => { assert.ifError(err); return reply })
      },
      // watched runs between and then MULTI, SET and INCR; it answers null when the watch failed.
      watched: async (key, between) => {
        await raw.watch(key)
        await between()
        const replies = await raw.multi().set(key, '7').incr(key).exec()
        return replies && replies.map(([err, reply]) => { assert.ifError(err); return reply })
      }
    }
  }
}

function nodeRedis (options) {
  return async (node, db = 0) => {
    const raw = createClient({ url: `redis://${node}`, database: db, name: 'suite', ...options })
    raw.on('error', () => {})
    opened.push(() => raw.destroy())
    await raw.connect()
    return {
      raw,
      send: (...words) => raw.sendCommand(words.map(String)),
      pipeline: (count, key) => Promise.all(Array.from({ length: count }, () => raw.incr(key))),
      watched: async (key, between) => {
        await raw.watch(key)
        await between()
        try {
          return await raw.multi().set(key, '7').incr(key).exec()
        } catch (e) {
          if (e instanceof WatchError) return null
          throw e
        }
      }
    }
  }
}

const connects = {
  'ioredis 6 default': ioredis(Redis6, {}),
  'ioredis 6 RESP2': ioredis(Redis6, { protocol: 2 }),
  'ioredis 5': ioredis(Redis5, {}),
  'node-redis default': nodeRedis({}),
  'node-redis RESP3': nodeRedis({ RESP: 3 }),
  'node-redis RESP2': nodeRedis({ RESP: 2 })
}

async function commands (connect, name, node, other) {
  const c = await connect(node)
  const o = await connect(other)
  const key = `node:${name}:${node}`
  await c.send('DEL', key)
  assert.equal(await c.send('SET', key, 'a', 'NX', 'PX', '30000'), 'OK')
  assert.equal(await o.send('SET', key, 'b', 'NX', 'PX', '30000'), null)
  const ttl = await o.send('PTTL', key)
  assert.ok(ttl > 0 && ttl <= 30000)
  assert.equal(await c.send('EVAL', release, '1', key, 'b'), 0)
  const sha = await o.send('SCRIPT', 'LOAD', extend)
  assert.equal(await c.send('EVALSHA', sha, '1', key, 'a', String(long)), 1)
  assert.ok(await o.send('PTTL', key) > 30000)
  assert.equal(await o.send('EVAL', release, '1', key, 'a'), 1)
  assert.equal(await c.send('GET', key), null)
  const fence = await c.send('INCR', 'node:fence')
  assert.ok(await o.send('INCR', 'node:fence') > fence)
  assert.deepEqual(await c.pipeline(1000, key), Array.from({ length: 1000 }, (_, i) => i + 1))
  await assert.rejects(c.send('NOSUCH', 'x'), /unknown command/)
  await assert.rejects(c.send('GET'), /wrong number of arguments/)
  await c.send('SET', key, 'text')
  await assert.rejects(c.send('INCR', key), /not an integer/)
  await assert.rejects(c.send('EVALSHA', '0'.repeat(40), '0'), /^[A-Za-z]*Error: NOSCRIPT/)
  assert.deepEqual(Array.from(await c.watched(key, async () => {})), ['OK', 8])
  assert.equal(await c.watched(key, () => o.send('SET', key, 'theirs')), null)
  assert.equal(await c.send('GET', key), 'theirs')
  const nine = await connect(node, 9)
  assert.equal(await nine.send('GET', key), null)
  await nine.send('SET', key, 'nine', 'PX', '30000')
  assert.equal(await c.send('GETDEL', key), 'theirs')
  assert.equal(await nine.send('GETDEL', key), 'nine')
  assert.equal(await c.send('CLIENT', 'GETNAME'), 'suite')
}

// Libraries: each makes, on a node, something with acquire, extend and release that answer true or false.

const no = (promise) => promise.then(() => true, (e) => { if (/unknown|syntax|WRONGTYPE/i.test(String(e))) throw e; return false })

function redlock (Kind, Redis) {
  return async (node, name) => {
    const { raw } = await ioredis(Redis, {})(node)
    const library = new Kind([raw], { retryCount: 0 })
    let held = null
    return {
      acquire: () => no(library.acquire([name], long).then((lock) => { held = lock })),
      extend: () => no(held.extend(long).then((lock) => { held = lock })),
      release: () => no(library.release(held ?? { resources: [name], value: 'stranger', attempts: [], expiration: Date.now() + long }))
    }
  }
}

function mutex (connect) {
  return async (node, name) => {
    const { raw, send } = await connect(node)
    const lock = new Mutex(raw, name, { lockTimeout: long, refreshInterval: 0, acquireAttemptsLimit: 1 })
    const key = `mutex:${name}`
    return {
      acquire: () => lock.tryAcquire(),
      extend: () => lock._refresh(), // what its timer calls
      release: async () => { // the library does not say whether it released
        const before = await send('EXISTS', key)
        await lock.release()
        return before > await send('EXISTS', key)
      }
    }
  }
}

const libraries = {
  'redlock on ioredis 5': redlock(Redlock, Redis5),
  'redlock on ioredis 6': redlock(Redlock, Redis6),
  '@sesamecare-oss/redlock on ioredis 6': redlock(SesameRedlock, Redis6),
  'redis-semaphore Mutex on ioredis 6': mutex(connects['ioredis 6 default']),
  'redis-semaphore Mutex on ioredis 5': mutex(connects['ioredis 5'])
}

async function roundTrip (library, node, other, name) {
  const holder = await library(node, name)
  const stranger = await library(other, name)
  assert.equal(await holder.acquire(), true)
  assert.equal(await stranger.acquire(), false)
  assert.equal(await stranger.release(), false)
  assert.equal(await stranger.acquire(), false)
  assert.equal(await holder.extend(), true)
  assert.equal(await holder.release(), true)
  assert.equal(await stranger.acquire(), true)
  assert.equal(await stranger.release(), true)
}

async function stillHeld (library, held, dead, name) {
  const alive = nodes.filter((n) => n !== dead)
  for (const [node, lock] of Object.entries(held)) {
    for (const other of alive) {
      const { send } = await connects['ioredis 5'](other)
      await within(soon, async () => await send('EXISTS', `${name}:${node}`, `mutex:${name}:${node}`) === 1)
      assert.equal(await (await library(other, `${name}:${node}`)).acquire(), false)
    }
    if (node === dead) continue
    assert.equal(await lock.extend(), true)
    assert.equal(await lock.release(), true)
    const fresh = await library(node, `${name}:${node}`)
    assert.equal(await fresh.acquire(), true)
    assert.equal(await fresh.release(), true)
  }
}

async function killed (held, fence, clients) {
  const dead = execSync(process.env.HOLDFAST_KILL, { encoding: 'utf8' }).trim()
  const alive = nodes.filter((n) => n !== dead)
  const started = Date.now()
  for (const [name, byNode] of Object.entries(clients)) {
    await check(`${name} takes a new lock on its open connection`, () =>
      within(soon, async () => await byNode[alive[0]].send('SET', `node:new:${name}`, 't', 'NX', 'PX', String(long)) === 'OK'))
    if (name === Object.keys(clients)[0]) console.log(`  killed the leader, ${dead}; a new lock was taken ${Date.now() - started} ms later`)
    await check(`${name} sees fencing grow over the kill`, async () => assert.ok(await byNode[alive[1]].send('INCR', 'node:fence') > fence))
  }
  for (const [name, library] of Object.entries(libraries)) {
    await check(`${name} over the kill`, () => stillHeld(library, held[name], dead, `node:${name}:held`))
  }
}

async function main () {
  for (const name of Object.keys(JSON.parse(readFileSync('package.json')).dependencies)) {
    console.log(`  ${name} ${JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version}`)
  }
  for (const [i, node] of nodes.entries()) {
    const other = nodes[(i + 1) % nodes.length]
    for (const [name, connect] of Object.entries(connects)) await check(`${name} on ${node}`, () => commands(connect, name, node, other))
    for (const [name, library] of Object.entries(libraries)) await check(`${name} on ${node}`, () => roundTrip(library, node, other, `node:${name}:${node}`))
  }
  const held = {}
  const clients = {}
  for (const node of nodes) {
    for (const [name, connect] of Object.entries(connects)) (clients[name] ??= {})[node] = await connect(node)
    for (const [name, library] of Object.entries(libraries)) {
      const lock = (held[name] ??= {})[node] = await library(node, `node:${name}:held:${node}`)
      await check(`${name} takes a lock on ${node} to hold over the kill`, async () => assert.equal(await lock.acquire(), true))
    }
  }
  const fence = await clients['ioredis 5'][nodes[0]].send('INCR', 'node:fence')
  await killed(held, fence, clients)
  for (const close of opened) close()
  process.exitCode = tally.failures ? 1 : 0
}

await main()
