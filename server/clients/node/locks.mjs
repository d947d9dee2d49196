// Lock libraries of Node under contention: see ../exclusive.sh.
//
// Environment: HOLDFAST_NODES (host:port,...).

import { setTimeout as sleep } from 'node:timers/promises'
import Queue from 'bull'

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
  bull: [1, bull]
}

if (name) {
  const [limit, work] = cases[name]
  console.log('locks', limit)
  for (let worker = 0; worker < 6; worker++) work(worker, nodes[worker % 3])
} else {
  console.log(Object.keys(cases).join('\n'))
}
