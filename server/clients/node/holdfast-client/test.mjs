// What the scenarios of cmd/internal/clienttest cannot reach: bytes of a hostile node, and the package itself.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { test } from 'node:test'
import * as holdfast from 'holdfast-client'
import { Decoder, ErrorReply, Push, encode } from './dist/resp.js'

const { Client, LockLost, RefusedError } = holdfast

/** Decodes bytes in pieces of so many. */
function decode (bytes, size) {
  const values = []
  const decoder = new Decoder((value) => values.push(value))
  const buffer = Buffer.from(bytes)
  for (let i = 0; i < buffer.length; i += size) decoder.write(buffer.subarray(i, i + size))
  return values
}

test('replies may be split anywhere', () => {
  const bytes = '+OK\r\n:7\r\n$5\r\nä\r\nb\r\n*2\r\n:1\r\n*0\r\n>2\r\n$4\r\nlock\r\n$-1\r\n' +
    '%1\r\n$1\r\nk\r\n%1\r\n+a\r\n_\r\n-ERR no\r\n!6\r\nERR no\r\n~1\r\n,1.5\r\n:-3\r\n'
  const values = [
    'OK', 7, 'ä\r\nb', [1, []], new Push(['lock', null]), new Map([['k', new Map([['a', null]])]]),
    new ErrorReply('ERR no'), new ErrorReply('ERR no'), ['1.5'], -3,
  ]
  for (let size = 1; size <= bytes.length + 1; size++) assert.deepEqual(decode(bytes, size), values, `pieces of ${size}`)
})

test('a long text is decoded in linear time, also a byte at a time', () => {
  const text = 'x'.repeat(1 << 20)
  assert.deepEqual(decode(`$${text.length}\r\n${text}\r\n`, 16), [text])
})

test('hostile replies are refused before they are stored', () => {
  for (const bytes of [
    '?1\r\n', ':x\r\n', ':1e3\r\n', ':9007199254740993\r\n', '$-2\r\n', '$1\r\nabc', '$999999999\r\n', '*999999999\r\n',
    '%-9\r\n', '$ 1\r\nx\r\n', '$\r\n\r\n', '*1\r\n'.repeat(10), 'x'.repeat(70_000), '*2000000\r\n*4000000\r\n',
  ]) assert.throws(() => decode(bytes, bytes.length), /RESP3|too long/, bytes.slice(0, 20))
})

test('words are counted in bytes', () => {
  assert.equal(encode(['ä', 1]), '*2\r\n$2\r\nä\r\n$1\r\n1\r\n')
})

/** A node that answers each command by what answer returns, as long as the test runs. */
async function startNode (t, answer) {
  const sockets = new Set()
  const server = createServer((socket) => {
    sockets.add(socket)
    const decoder = new Decoder((words) => {
      const reply = answer(words, socket)
      if (reply) socket.write(reply)
    })
    socket.on('data', (piece) => decoder.write(piece))
    socket.on('error', () => {})
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return `127.0.0.1:${server.address().port}`
}

const replies = { HELLO: '%0\r\n', 'SESSION.OPEN': ':5\r\n', 'SESSION.KEEPALIVE': ':3000\r\n', 'SESSION.CLOSE': ':0\r\n',
  'SESSION.ATTACH': ':1\r\n', 'LOCK.ACQUIRE': ':7\r\n', 'LOCK.RELEASE': ':0\r\n', 'LOCK.CHECK': ':7\r\n' }

async function until (holds) {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 1))
}

/** Blocks the event loop. */
function block (millis) {
  for (const end = performance.now() + millis; performance.now() < end;);
}

test('a blocked event loop does not hide that the lock may be lost', async (t) => {
  const node = await startNode(t, ([name]) => replies[name])
  const client = new Client({ nodes: [node], ttl: 1500 })
  t.after(() => client.close())
  const lock = await client.lock('job')
  const { signal } = lock
  lock.check()
  block(1100)
  assert.throws(() => lock.check(), (error) => error instanceof LockLost && /no node/.test(error.reason) && error.millisLeft > 0)
  assert.equal(signal.reason, lock.lost)
  await assert.rejects(lock.release(), LockLost)
})

test('a hostile node costs the connection, and the next address is asked', async (t) => {
  const hostile = await startNode(t, () => '?\r\n')
  const honest = await startNode(t, ([name]) => replies[name])
  const client = new Client({ nodes: [hostile, honest], ttl: 2000 })
  t.after(() => client.close())
  assert.equal((await client.lock('job')).fence, 7)
})

test('an abort does not wait for a node that hangs', async (t) => {
  const seen = []
  const node = await startNode(t, ([name]) => {
    seen.push(name)
    return name === 'LOCK.ACQUIRE' ? '' : replies[name]
  })
  const client = new Client({ nodes: [node], ttl: 15_000 })
  t.after(() => client.close())
  const abort = new AbortController()
  const asked = client.lock('job', { signal: abort.signal })
  await until(() => seen.includes('LOCK.ACQUIRE'))
  const begun = performance.now()
  abort.abort(new Error('enough'))
  await assert.rejects(asked, /enough/)
  await assert.rejects(client.lock('job', { signal: AbortSignal.abort() }), { name: 'AbortError' })
  assert.ok(performance.now() - begun < 1000)
})

test('reentrant calls that wait share a place, and each may give up alone', async (t) => {
  let socket, owner
  const node = await startNode(t, (words, from) => {
    if (words[0] !== 'LOCK.ACQUIRE') return replies[words[0]]
    assert.equal(owner, undefined, 'asked twice')
    ;[socket, owner] = [from, words[2]]
    return ':0\r\n'
  })
  const client = new Client({ nodes: [node], ttl: 10_000 })
  t.after(() => client.close())
  const first = client.lock('job', { reentrant: 'me', timeout: 20 })
  const second = client.lock('job', { reentrant: 'me' })
  await assert.rejects(first, { name: 'NotAcquired' })
  await until(() => socket)
  socket.write(encode(['lock', 'granted', 'job', owner]).replace('*4', '>5') + ':9\r\n')
  const lock = await second
  assert.equal(lock.fence, 9)
  await lock.release()
  await lock.release() // is the same release
  assert.throws(() => lock.check(), /released/)
})

test('refused words are the caller\'s', async (t) => {
  const node = await startNode(t, ([name]) => (name === 'LOCK.ACQUIRE' ? '-NOPERM no\r\n' : replies[name]))
  const client = new Client({ nodes: [node] })
  t.after(() => client.close())
  await assert.rejects(client.lock('job'), (error) => error instanceof RefusedError && error.node === node && error.text === 'NOPERM no')
})

test('withLock tells the loss rather than the abort that it caused', async (t) => {
  let socket, owner
  const node = await startNode(t, (words, from) => {
    if (words[0] === 'LOCK.ACQUIRE') [socket, owner] = [from, words[2]]
    return replies[words[0]]
  })
  const client = new Client({ nodes: [node] })
  t.after(() => client.close())
  const work = client.withLock('job', async ({ signal }) => {
    socket.write(encode(['lock', 'lost', 'job', owner]).replace('*4', '>8') + ':7\r\n+broken\r\n+drill\r\n+ops 10.0.0.9:1\r\n')
    await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new DOMException('', 'AbortError'))))
  })
  await assert.rejects(work, { name: 'LockLost', reason: 'broken', text: 'drill', by: 'ops 10.0.0.9:1', millisLeft: 0 })
  await assert.rejects(client.withLock('job', () => { throw new Error('mine') }), /mine/)
  assert.equal(await client.withLock('job', () => 5), 5)
})

test('import and require give the same classes', () => {
  const required = createRequire(import.meta.url)('holdfast-client')
  assert.equal(required.LockLost, LockLost)
  assert.deepEqual(Object.keys(holdfast).sort(), ['Client', 'ClosedError', 'HoldfastError', 'Lock', 'LockLost', 'NotAcquired', 'RefusedError'])
})

test('wrong settings are told at once', () => {
  for (const nodes of [[], 'a:1', ['a'], ['a:0'], [':1'], ['a:70000'], ['redis://a:1']]) assert.throws(() => new Client({ nodes }), TypeError)
  assert.throws(() => new Client({ nodes: ['[::1]:1'], ttl: 10 }), RangeError)
})

test('null is no user, and no password', async (t) => {
  const logins = []
  const node = await startNode(t, (words) => {
    if (words[0] === 'HELLO') logins.push(words.slice(2, -2))
    return replies[words[0]]
  })
  for (const given of [
    { username: null, password: 'secret' }, { username: 'user', password: null }, { username: 'user', password: () => undefined },
    { username: null, password: null },
  ]) {
    const client = new Client({ nodes: [node], ...given })
    await client.lock('job')
    await client.close()
  }
  assert.deepEqual(logins, [['AUTH', 'default', 'secret'], ['AUTH', 'user', ''], ['AUTH', 'user', ''], []])
})

test('a port that closes in silence may want TLS', async (t) => {
  const server = createServer((socket) => socket.on('error', () => {}).on('data', () => socket.end()))
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const client = new Client({ nodes: [`127.0.0.1:${server.address().port}`] })
  t.after(() => client.close())
  await assert.rejects(client.tryLock('job'), /does the port want TLS\?/)
})

test('that no node can be used is told once, in a line', async (t) => {
  const warnings = []
  const logger = { debug: () => {}, warn: (message) => warnings.push(message) }
  const server = createServer((socket) => socket.on('error', () => {}).write('-ERR this is no TLS\r\n'))
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  const client = new Client({ nodes: [`127.0.0.1:${server.address().port}`], tls: true, logger })
  t.after(() => client.close())
  for (let i = 0; i < 2; i++) await assert.rejects(client.tryLock('job'), /no node can be used/)
  assert.equal(warnings.length, 1)
  assert.doesNotMatch(warnings[0], /\n/)
})
