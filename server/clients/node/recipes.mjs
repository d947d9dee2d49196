// Native locks by ioredis: the recipe, and checks of it against three nodes.
// Environment: HOLDFAST_NODES (host:port,...) and HOLDFAST_KILL, a command that kills the leader and
// prints the address it had.
import { Redis } from 'ioredis'
import { execSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const NODES = process.env.HOLDFAST_NODES.split(',')

// The recipe begins. ioredis shows no pushes, so what happens to a lock is read on its channel, by a second
// connection; and NOTIFY leaves the first one free for other commands while the lock is waited for.
class Lock {
  constructor (node, name, { note = '', lease = 30_000 } = {}) {
    const [host, port] = node.split(':')
    const options = { host, port: Number(port), retryStrategy: null, maxRetriesPerRequest: 0 }
    Object.assign(this, { name, note, lease, owner: randomUUID(), lost: null, listeners: new Set() })
    this.redis = new Redis(options)
    this.channel = new Redis(options)
    for (const c of [this.redis, this.channel]) c.on('error', () => {})
    this.channel.on('message', (_, text) => this.listeners.forEach((heard) => heard(text.split(' '))))
    this.listeners.add(([what, owner, fence, reason]) => {
      if (what === 'lost' && owner === this.owner) this.lost = reason
    })
  }

  async open () {
    await this.channel.subscribe(`__lock@0__:${this.name}`)
    this.session = await this.redis.call('SESSION.OPEN', 'PX', this.lease, 'CONNECTION')
    return this
  }

  // acquire stands in line for so many milliseconds: the fence, or null.
  async acquire (wait) {
    const told = new Promise((resolve) => {
      this.listeners.add(([what, owner, fence]) => {
        if (owner !== this.owner) return
        if (what === 'granted') resolve(Number(fence))
        if (what === 'timeout') resolve(null)
      })
    })
    const fence = await this.redis.call(
      'LOCK.ACQUIRE', this.name, this.owner, 'SESSION', this.session, 'WAIT', wait, 'NOTIFY', 'NOTE', this.note,
    )
    return fence === 0 ? told : fence
  }

  held = async () => (await this.redis.call('LOCK.CHECK', this.name, this.owner)) !== null
  release = () => this.redis.call('LOCK.RELEASE', this.name, this.owner)
  close = () => [this.redis, this.channel].forEach((c) => c.disconnect())
}

// mayWrite tells whether the holder with this fence may still write to the resource.
const mayWrite = async (client, resource, fence) => (await client.call('FENCE.PASS', resource, fence)) === 1
// The recipe ends.

const clients = NODES.map((node) => new Redis(`redis://${node}`, { retryStrategy: () => 50 }))
clients.forEach((c) => c.on('error', () => {}))

function expect (found, wanted) {
  if (found !== wanted) throw new Error(`found ${found}, expected ${wanted}`)
}

async function within (seconds, run) {
  for (const deadline = Date.now() + seconds * 1000; ; await sleep(50)) {
    if (await run().catch(() => false)) return
    if (Date.now() > deadline) throw new Error(`not within ${seconds} s`)
  }
}

// infoOf is LOCK.INFO, whose map RESP2 sends flat.
const fields = (flat) => Object.fromEntries(flat.flatMap((name, i) => (i % 2 ? [] : [[name, flat[i + 1]]])))
const infoOf = async (name) => fields(await clients[2].call('LOCK.INFO', name))

async function waiting () {
  const [first, second] = [await new Lock(NODES[0], 'node:job').open(), await new Lock(NODES[1], 'node:job').open()]
  const old = await first.acquire(10_000)
  const granted = second.acquire(20_000)
  await within(10, async () => (await infoOf('node:job'))['waiters-count'] === 1)
  expect(await first.release(), 0)
  const fence = await granted
  if (fence <= old) throw new Error(`fence ${fence} after ${old}`)
  expect(await mayWrite(clients[2], 'node:resource', fence), true)
  expect(await mayWrite(clients[1], 'node:resource', old), false)
  expect(await first.acquire(100), null)
  second.close(); // its session ends, and with it the hold
  if ((await first.acquire(10_000)) <= fence) throw new Error('the fence does not grow')
  first.close()
}

async function leases () {
  const fence = await clients[0].call('LOCK.ACQUIRE', 'node:lease', 'me', 'PX', 10_000)
  expect(await clients[1].call('LOCK.RENEW', 'node:lease', 'me', 'PX', 60_000), fence)
  expect(await clients[2].call('LOCK.RENEW', 'node:lease', 'you', 'PX', 60_000), null)
  expect(await clients[0].call('LOCK.RELEASE', 'node:lease', 'me'), 0)
}

async function losses () {
  const lock = await new Lock(NODES[0], 'node:lost').open()
  await lock.acquire(10_000)
  expect(await clients[2].call('LOCK.BREAK', 'node:lost', 'REASON', 'a test'), 1)
  await within(10, async () => lock.lost === 'broken' && !(await lock.held()))
  lock.close()
}

async function election () {
  const note = async () => fields((await infoOf('node:leader')).holders[0]).note
  const leader = await new Lock(NODES[0], 'node:leader', { note: '10.0.0.1:80' }).open()
  const candidate = await new Lock(NODES[1], 'node:leader', { note: '10.0.0.2:80' }).open()
  await leader.acquire(10_000)
  expect(await note(), '10.0.0.1:80')
  const won = candidate.acquire(20_000)
  leader.close()
  await won
  expect(await note(), '10.0.0.2:80')
  candidate.close()
}

async function kill () {
  const locks = {}
  for (const node of NODES) {
    const lock = await new Lock(node, `node:kill:${node}`).open()
    locks[node] = { lock, fence: await lock.acquire(10_000) }
  }
  const dead = execSync(process.env.HOLDFAST_KILL).toString().trim()
  const alive = clients[NODES.findIndex((node) => node !== dead)]
  await within(20, async () => (await alive.call('SESSION.ATTACH', locks[dead].lock.session)) === 1)
  for (const [node, { lock, fence }] of Object.entries(locks)) {
    expect(await alive.call('LOCK.CHECK', lock.name, lock.owner), fence)
    if (node !== dead) expect(await lock.held(), true)
  }
}

let failures = 0
for (const check of [waiting, leases, losses, election, kill]) {
  try {
    await check()
    console.log(`  ok    ioredis: ${check.name}`)
  } catch (e) {
    failures += 1
    console.log(`  FAIL  ioredis: ${check.name}\n${e.stack}`)
  }
}
process.exit(failures > 0 ? 1 : 0)
