// ioredis and node-redis connect as CONNECT.md has it: by one address, by Sentinel and as a Redis Cluster, over a kill of
// the leader.
//
// Usage: connect.mjs ioredis|node-redis single|sentinel|cluster, in the folder of ca.crt. Environment: HOLDFAST_PASSWORD,
// and HOLDFAST_KILL, a command that kills the leader.

import { execSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
// <tls>
import { readFileSync } from 'node:fs'
const password = process.env.HOLDFAST_PASSWORD
const tls = { ca: readFileSync('ca.crt') }
const hosts = ['10.0.0.1', '10.0.0.2', '10.0.0.3']
// </tls>
// <ioredis>
import { Cluster, Redis } from 'ioredis'
// </ioredis>
// <node-redis>
import { createClient, createCluster, createSentinel } from 'redis'
const socket = { ...tls, tls: true, connectTimeout: 1000 }
// </node-redis>

const snippets = {
  ioredis: {
    single () {
      // <ioredis single>
      const client = new Redis({ host: hosts[0], port: 6379, password, tls, commandTimeout: 3000, connectTimeout: 1000 })
      // </ioredis single>
      return client
    },
    sentinel () {
      // <ioredis sentinel>
      const client = new Redis({
        sentinels: hosts.map(host => ({ host, port: 26379 })), name: 'mymaster', password, sentinelPassword: password,
        tls, sentinelTLS: tls, enableTLSForSentinelMode: true, connectTimeout: 1000
      })
      // </ioredis sentinel>
      return client
    },
    cluster () {
      // <ioredis cluster>
      const client = new Cluster(hosts.map(host => ({ host, port: 6379 })), { redisOptions: { password, tls, connectTimeout: 1000 } })
      // </ioredis cluster>
      return client
    }
  },
  'node-redis': {
    single () {
      // <node-redis single>
      const client = createClient({ password, socket: { ...socket, host: hosts[0], port: 6379 }, socketTimeout: 3000 })
      // </node-redis single>
      return client
    },
    sentinel () {
      // <node-redis sentinel>
      const client = createSentinel({
        name: 'mymaster', sentinelRootNodes: hosts.map(host => ({ host, port: 26379 })), scanInterval: 1000,
        nodeClientOptions: { password, socket }, sentinelClientOptions: { password, socket }
      })
      // </node-redis sentinel>
      return client
    },
    cluster () {
      // <node-redis cluster>
      const client = createCluster({
        rootNodes: hosts.map(host => ({ url: `rediss://${host}:6379` })), defaults: { password, socket },
        topologyRefreshOnReconnectionAttemptStrategy: 500
      })
      // </node-redis cluster>
      return client
    }
  }
}

snippets['node-redis-defaults'] = {
  cluster: () => createCluster({ rootNodes: hosts.map(host => ({ url: `rediss://${host}:6379` })), defaults: { password, socket: { ...tls, tls: true } } })
}

const [name, mode] = process.argv.slice(2)
const client = snippets[name][mode]()
client.on('error', () => {}) // without a listener an error ends the process
if (name !== 'ioredis') await client.connect()
const key = `connect:${name}:${mode}`
const take = name === 'ioredis' ? client.set(key, 'token', 'EX', 120, 'NX') : client.set(key, 'token', { EX: 120, NX: true })
if (await take !== 'OK') throw new Error('the lock is taken')
const fence = Number(await client.incr(`${key}:fence`))
const dead = execSync(process.env.HOLDFAST_KILL).toString().trim()
const began = performance.now()
while (true) {
  try {
    const next = Number(await Promise.race([client.incr(`${key}:fence`), sleep(31_000).then(() => { throw new Error('no reply') })]))
    if (next <= fence) throw new Error(`fence ${next} after ${fence}`)
    break
  } catch (e) {
    if (performance.now() - began > 30_000) throw e
    await sleep(10)
  }
}
const took = (performance.now() - began) / 1000
if (await client.get(key) !== 'token') throw new Error('the lock is lost')
console.log(`  ok    ${name}, ${mode}: ${took.toFixed(2)} s after the end of ${dead}`)
process.exit(0)
