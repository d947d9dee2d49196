// Lock libraries of Node under contention: see ../exclusive.sh.
//
// Environment: HOLDFAST_NODES (host:port,...).

import { setTimeout as sleep } from 'node:timers/promises'
import Bottleneck from 'bottleneck'
import Queue from 'bull'
import { within } from './checks.mjs'

const nodes = process.env.HOLDFAST_NODES.split(',').map((node) => {
  const [host, port] = node.split(':')
  return { host, port: Number(port) }
})
const [, , name] = process.argv
const lease = 5000 // milliseconds

async function inside (worker, section) {
  console.log('+', worker, section)
  await sleep(5)
  console.log('-', worker, section)
}

// Limiters of one id are one: maxConcurrent jobs run on all nodes. One that the others gave up for dead, while its node was
// down, must be made anew: it waits for the error UNKNOWN_CLIENT, to which servers like Redis 7 add an ERR.
const bottleneck = (maxConcurrent) => async function work (worker, redis) {
  const limiter = new Bottleneck({ id: name, datastore: 'ioredis', clientOptions: redis, maxConcurrent })
  const dead = new Promise((resolve, reject) => limiter.on('error', (e) => e.message.includes('UNKNOWN_CLIENT') && reject(e)))
  try {
    await limiter.ready()
    for (;; await sleep(5)) await Promise.race([dead, limiter.schedule({ expiration: lease }, () => inside(worker, 'job'))])
  } catch (e) {
    console.error(worker, e.message)
    limiter.disconnect(false)
    await sleep(50)
    work(worker, redis)
  }
}

// A job is with one worker at a time; each adds the next.
async function bull (worker, redis) {
  const queue = new Queue(name, { redis, settings: { lockDuration: lease, stalledInterval: 1000 }, defaultJobOptions: { removeOnComplete: true } })
  queue.on('error', (e) => console.error(worker, e.message))
  for (let i = 0; i < 3; i++) await queue.add({})
  queue.process(async (job) => {
    await inside(worker, job.id)
    queue.add({})
  })
}

const cases = { // how many may hold, and what a worker does at its node
  bottleneck: [1, bottleneck(1)],
  'bottleneck-three': [3, bottleneck(3)],
  bull: [1, bull]
}

// clean removes all jobs that are done, by one script, which may cost a busy machine its leader: then again.
async function clean () {
  const queue = new Queue('done', { redis: nodes[1] })
  for (let first = 1; first <= 100_000; first += 2000) {
    const pipe = queue.client.pipeline()
    for (let id = first; id < first + 2000; id++) {
      pipe.hset(`bull:done:${id}`, 'timestamp', 1000, 'finishedOn', 1000, 'data', '{}').zadd('bull:done:completed', id, id)
    }
    await pipe.exec()
  }
  await within(50_000, async () => (await queue.clean(0, 'completed'), await queue.getCompletedCount() === 0))
  console.log('100000 jobs removed')
  process.exit()
}

process.on('unhandledRejection', (e) => console.error(e.message)) // of libraries whose connection has ended

if (name === 'bull-clean') {
  clean().catch((e) => { console.error(e.message); process.exit(1) })
} else if (name) {
  const [limit, work] = cases[name]
  console.log('locks', limit)
  for (let worker = 0; worker < 6; worker++) work(worker, nodes[worker % 3])
} else {
  console.log([...Object.keys(cases), 'bull-clean'].join('\n'))
}
