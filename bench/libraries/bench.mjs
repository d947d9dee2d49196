// The benchmark's driver for TypeScript's lock libraries: reads a request, prints a reply, as bench/internal/drive.
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'holdfast-client'
import { Redis } from 'ioredis'
import Redlock from 'redlock'

const request = JSON.parse(readFileSync(0, 'utf8'))
const { addrs } = request.target
const hot = request.workload === 'hot'
const run = randomUUID() // names of locks: what a former run left behind disturbs none
const counts = { pair: 0, handoff: 0 }
const errors = {}
const served = new Set()
let last

const libraries = {
  'typescript-holdfast' () {
    const client = new Client({ nodes: addrs })
    return (name) => client.lock(name)
  },
  'typescript-redlock' () {
    const [host, port] = addrs[0].split(':')
    const redlock = new Redlock([new Redis(Number(port), host)], { retryCount: -1 })
    return (name) => redlock.acquire([name], 30_000)
  },
}

async function work (worker) {
  try {
    const acquire = libraries[request.target.name]()
    for (;;) {
      const lock = await acquire(`bench:${run}:${hot ? 'hot' : worker}`)
      counts.pair++
      if (last !== worker) counts.handoff++
      last = worker
      served.add(worker)
      await lock.release()
      if (hot) await sleep(request.sizes.Poll / 1e6 * (0.5 + Math.random()))
    }
  } catch (error) {
    errors[error] = (errors[error] ?? 0) + 1
  }
}

for (let i = 0; i < request.connections; i++) work(i)
while (served.size < request.connections && Object.keys(errors).length === 0) await sleep(10) // all are connected
await sleep(request.warmup / 1e6)
const begun = performance.now()
const before = { ...counts }
await sleep(request.measure / 1e6)
const seconds = (performance.now() - begun) / 1e3
const steps = {}
for (const step in counts) {
  const count = counts[step] - before[step]
  steps[step] = { count, per_second: count / seconds }
}
process.stdout.write(JSON.stringify({ figures: { steps, errors } }), () => process.exit()) // some wait
