// Takes a lock by redlock on all servers that it is given: see ../bridge.sh.
import { Redis } from 'ioredis'
import { once } from 'node:events'
import { createRequire } from 'node:module'

const Redlock = createRequire(import.meta.url)('redlock').default

// <locks>
const locksOf = address => new Redlock([new Redis(`redis://${address}`)], { retryCount: 0 })

// The lock on all servers, in this order: Redis first. One Redlock of two servers would wait for ever if one refused.
async function acquire (servers, name, millis) {
  const held = []
  const release = () => Promise.all(held.toReversed().map(lock => lock.release()))
  try {
    for (const server of servers) held.push(await server.acquire([name], millis))
  } catch (refused) {
    await release()
    throw refused
  }
  return { release }
}
// </locks>

const job = await acquire(process.argv.slice(2).map(locksOf), 'job', 30_000).catch(() => null)
console.log(job ? 'held' : 'refused')
if (job) {
  await once(process.stdin, 'data')
  await job.release()
  console.log('released')
}
process.exit()
