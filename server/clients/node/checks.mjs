// What the suites share.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'

// tally counts the checks so far.
export const tally = { ran: 0, failures: 0 }

export async function check (name, run) {
  tally.ran++
  try {
    await run()
    console.log(`  ok    ${name}`)
  } catch (e) {
    tally.failures++
    console.log(`  FAIL  ${name}\n`, e)
  }
}

// within repeats run until it answers something true; errors count as not yet.
export async function within (millis, run) {
  const deadline = Date.now() + millis
  for (;;) {
    let failure = 'it answered false'
    try {
      if (await run()) return
    } catch (e) {
      failure = e
    }
    if (Date.now() > deadline) assert.fail(`not within ${millis} ms: ${failure}`)
    await sleep(20)
  }
}
