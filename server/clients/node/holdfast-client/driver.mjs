// The client's part of the scenarios of server/clients/CONTRACT.md: see cmd/internal/clienttest. It reads commands,
// one a line, and prints what happens.
import { existsSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { Client, LockLost, NotAcquired, RefusedError } from './dist/index.mjs'

const { HOLDFAST_NODES, HOLDFAST_TTL, HOLDFAST_PASSWORD_FILE } = process.env
const client = new Client({
  nodes: HOLDFAST_NODES.split(','),
  ttl: Number.parseFloat(HOLDFAST_TTL) * 1000,
  name: 'driver',
  password: () => (existsSync(HOLDFAST_PASSWORD_FILE) ? readFileSync(HOLDFAST_PASSWORD_FILE, 'utf8').trim() : ''),
})
const calls = new Map() // by the word of the test: {abort, lock}
let closing = false

/** Prints an event, or what became of it: an error is told by its kind. */
async function say (event, work) {
  try {
    console.log(`${event} ${(await work?.()) ?? ''}`.trim())
  } catch (error) {
    if (error === 'cancelled') console.log(`${event} cancelled`)
    else if (error instanceof NotAcquired) console.log(`${event} not-granted`)
    else if (error instanceof LockLost) console.log(`${event} lost`)
    else if (error instanceof RefusedError) console.log(`${event} refused ${error.message}`)
    else console.log(`${event} error ${error.message}`)
  }
}

async function acquire (kind, call, name, ...words) {
  const abort = new AbortController()
  calls.set(call, { abort })
  const options = {}
  for (const [option, value] of words.map((word) => word.split('='))) {
    if (option === 'shared') options.shared = true
    if (option === 'semaphore') [options.permits, options.limit] = value.split('/').map(Number)
    if (option === 'timeout') options.timeout = Number(value) * 1000
    if (option === 'note') options.note = value
    if (option === 'reentrant') options.reentrant = value
  }
  let lock
  try {
    if (kind === 'try') lock = await client.tryLock(name, options)
    else if (kind === 'all') lock = await client.lock([name, ...words], { signal: abort.signal })
    else lock = await client.lock(name, { ...options, signal: abort.signal })
  } catch (error) {
    return say(`refused ${call}`, () => { throw error })
  }
  if (!lock) return say(`refused ${call} not-granted`)
  calls.get(call).lock = lock
  say(`granted ${call} ${lock.fence}`)
  const tell = () => {
    const { reason, millisLeft, by, text } = lock.signal.reason
    if (!closing) say(`lost ${call} ${millisLeft > 0 ? 'later' : 'now'} ${reason}${by && ` by ${by}: ${text}`}`)
  }
  if (lock.signal.aborted) tell()
  else lock.signal.addEventListener('abort', tell)
}

async function watch (name) {
  for await (const { holderCount, holders } of client.watch(name)) {
    say(['change', name, holderCount, ...holders.map((holder) => holder.note)].join(' '))
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [command, word, other] = line.split(' ')
  if (['lock', 'try', 'all'].includes(command)) acquire(...line.split(' '))
  if (command === 'cancel') calls.get(word).abort.abort('cancelled')
  if (command === 'unlock') say(`released ${word}`, () => calls.get(word).lock.release())
  if (command === 'watch') watch(word)
  if (command === 'pass') await say(`passes ${word}`, () => client.fencePass(word, calls.get(other).lock.fence))
  if (command === 'look') {
    let seen = { holderCount: 0, waiterCount: 0 }
    const refused = await client.inspect(word).then((info) => { seen = info }, (error) => error)
    await say(`seen ${word} ${seen.holderCount} ${seen.waiterCount}`, () => { if (refused) throw refused })
  }
}
closing = true
await client.close()
say('closed')
