// ioredis and node-redis find the leader by Sentinel, or as a Redis Cluster, and again after a kill.
//
// Usage: discovery.mjs sentinel|cluster. Environment: HOLDFAST_NODES, HOLDFAST_SENTINELS
// (host:port,...), HOLDFAST_START, which starts the nodes that do not run, and HOLDFAST_KILL, a
// command that kills the leader and prints the address it had.

import { execSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { Cluster as Cluster6, Redis as Redis6 } from 'ioredis'
import { createCluster, createSentinel } from 'redis'

const address = text => ({ host: text.split(':')[0], port: Number(text.split(':')[1]) })
const nodes = process.env.HOLDFAST_NODES.split(',').map(address)
const sentinels = process.env.HOLDFAST_SENTINELS.split(',').map(address)
const soon = 10_000 // milliseconds within which a lock can be taken after the kill
let failures = 0

function say (name, good, why = '') {
  if (!good) failures++
  console.log(`  ${good ? 'ok   ' : 'FAIL '} ${name}${good ? '' : ': ' + why}`)
}

async function within (millis, run) {
  const deadline = Date.now() + millis
  while (true) {
    try {
      return await Promise.race([run(), sleep(3000).then(() => { throw new Error('no reply') })])
    } catch (e) {
      if (Date.now() > deadline) throw e
      await sleep(50)
    }
  }
}

// whole has all nodes run. A client that connects while a node is newly dead waits for that node.
async function whole () {
  execSync(process.env.HOLDFAST_START)
  await sleep(3000)
}

// overTheKill has the client take a lock, kills the leader, and looks for the lock by the same client.
async function overTheKill (name, client) {
  try {
    await within(soon, () => client.set('node:held', 'token'))
    const fence = Number(await within(soon, () => client.incr('node:fence')))
    const dead = execSync(process.env.HOLDFAST_KILL).toString().trim()
    say(`${name}: the lock is held when ${dead} is gone`, await within(soon, () => client.get('node:held')) === 'token')
    say(`${name}: fencing grows`, Number(await within(soon, () => client.incr('node:fence'))) > fence)
    await within(soon, () => client.del('node:held'))
    await within(soon, () => client.del('node:fence'))
  } catch (e) {
    say(name, false, e)
  }
}

const suites = {
  async sentinel () {
    await whole()
    const io = new Redis6({ sentinels, name: 'mymaster', role: 'master' })
    io.on('error', () => {})
    await overTheKill('ioredis 6 by Sentinel', io)
    io.disconnect()
    for (const RESP of [2, 3]) {
      await whole()
      const nr = createSentinel({ name: 'mymaster', sentinelRootNodes: sentinels, RESP, scanInterval: 1000, nodeClientOptions: { RESP }, sentinelClientOptions: { RESP } })
      nr.on('error', () => {})
      await nr.connect()
      await overTheKill(`node-redis 6 RESP${RESP} by Sentinel`, nr)
      nr.destroy()
    }
  },
  async cluster () {
    await whole()
    const io = new Cluster6(nodes, { scaleReads: 'all' })
    io.on('error', () => {})
    await overTheKill('ioredis 6 as a Cluster', io)
    io.disconnect()
    for (const RESP of [2, 3]) {
      await whole()
      const nr = createCluster({ rootNodes: nodes.map(n => ({ url: `redis://${n.host}:${n.port}` })), useReplicas: true, RESP })
      nr.on('error', () => {})
      await nr.connect()
      await overTheKill(`node-redis 6 RESP${RESP} as a Cluster`, nr)
      nr.destroy()
    }
  }
}

await suites[process.argv[2]]()
process.exit(failures > 0 ? 1 : 0)
