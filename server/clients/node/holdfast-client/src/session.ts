import { randomBytes } from 'node:crypto'
import { uptime } from 'node:os'
import type { ConnectionOptions } from 'node:tls'
import { Conn } from './conn.js'
import {
  ClosedError, ConnectionLost, HoldfastError, LockLost, NotAcquired, RefusedError, TransientError, isRetried,
} from './errors.js'
import type { Value } from './resp.js'

export interface SessionOptions {
  nodes: readonly string[]
  username: string
  password: () => string | Promise<string>
  tls: ConnectionOptions | undefined
  database: number
  ttl: number
  name: string
  log: { debug(message: string): void; warn(message: string): void }
}

type Words = (string | number)[]

interface Attached {
  conn: Conn
  session: number
}

const firstPauseMillis = 50
const maxPauseMillis = 1000
const maxTimerMillis = 2 ** 31 - 1

/** Milliseconds by a clock that is never set, and that counts while the machine is suspended. */
export const now = process.platform === 'linux' ? () => uptime() * 1000 : () => performance.now()

/** Has calls wait until something has changed. */
class Condition {
  private readonly waiting = new Set<() => void>()

  notify(): void {
    for (const wake of [...this.waiting]) wake()
  }

  /** Waits for the next notify, at most so many milliseconds. */
  wait(millis = maxTimerMillis): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer)
        this.waiting.delete(wake)
        resolve()
      }
      const timer = millis < maxTimerMillis ? setTimeout(wake, Math.max(0, millis)) : undefined
      this.waiting.add(wake)
    })
  }
}

/** One grant of a lock, asked for or held. Its calls are handles of it: several, if it is reentrant. */
export class Hold {
  state: 'waiting' | 'held' | 'lost' | 'released' = 'waiting'
  fence = 0
  handles = 0
  loss: LockLost | undefined
  readonly lost = new AbortController()
  /** In which the lock was asked for last; 0: in none, or the cluster has refused it. */
  session = 0
  askAgain = false
  readonly changed = new Condition()
  /** Whether the lock was granted, once that is known. */
  asked: Promise<boolean> = Promise.resolve(false)

  constructor(
    readonly names: readonly string[],
    /** Never the same: so a repeated command never concerns another hold. */
    readonly owner: string,
    private readonly options: Words,
    /** Of a reentrant hold: its names and the caller's owner. */
    readonly key: string | undefined,
  ) {}

  acquireWords(session: number, wait: boolean): Words {
    const several = this.names.length > 1
    const words: Words = several ? ['LOCK.ACQUIREALL', this.names.length, ...this.names] : ['LOCK.ACQUIRE', this.names[0]!]
    words.push(this.owner, 'SESSION', session, ...this.options)
    return wait ? [...words, 'WAIT', 0, 'NOTIFY'] : words
  }

  releaseWords(): Words {
    if (this.names.length === 1) return ['LOCK.RELEASE', this.names[0]!, this.owner, 'ALL']
    return ['LOCK.RELEASEALL', this.names.length, ...this.names, this.owner]
  }

  /** A loss of this hold. */
  lossBy(reason: string, text = '', by = '', millisLeft = 0): LockLost {
    return new LockLost(this.names[0]!, this.fence, reason, text, by, millisLeft)
  }
}

/** The session of a client, its connection and its holds. */
export class Session {
  closed = false
  private readonly id = randomBytes(8).toString('hex')
  private readonly patience: number // for one reply, in milliseconds
  private readonly changed = new Condition()
  private running = false
  private closing: Promise<void> | undefined
  private dialing: Conn | undefined
  private conn: Conn | undefined // that the session is attached to
  private former: Conn[] = [] // closed once the session is attached elsewhere: see retire
  private next = 0 // node
  private rounds = 0 // over all nodes that failed
  private roundError: HoldfastError | undefined
  private refused = false // a node refused the client in the last round
  private session = 0
  private goodUntil = 0 // the session cannot end before, unless a command ends it
  private expiry: NodeJS.Timeout | undefined
  private owners = 0
  private readonly holds = new Map<string, Hold>() // by owner
  private readonly reentrant = new Map<string, Hold>() // by key
  private readonly watched = new Map<string, { watchers: number; messages: number }>() // by channel

  constructor(private readonly options: SessionOptions) {
    this.patience = Math.min(options.ttl / 5, 3000)
  }

  // Locks.

  /** Acquires a lock: a handle of a hold. It rejects with NotAcquired, or with the reason of the signal. */
  async acquire(
    names: readonly string[], words: Words, wait: boolean, signal: AbortSignal, key: string | undefined,
  ): Promise<Hold> {
    signal.throwIfAborted()
    let stop = () => {}
    const stopped = new Promise<never>((_, reject) => {
      stop = () => reject(signal.reason)
    })
    stopped.catch(() => {})
    signal.addEventListener('abort', stop)
    try {
      for (;;) {
        let hold = key === undefined ? undefined : this.reentrant.get(key)
        if (hold?.state === 'waiting' && !wait) throw new NotAcquired(`lock '${names[0]}' is waited for`)
        hold ??= this.ask(names, words, wait, key)
        hold.handles++
        try {
          if (await Promise.race([hold.asked, stopped])) return hold
        } catch (error) {
          if (--hold.handles === 0) this.abandon(hold)
          throw error
        }
        if (!wait) throw new NotAcquired(`lock '${names[0]}' is not free`)
      }
    } finally {
      signal.removeEventListener('abort', stop)
    }
  }

  private ask(names: readonly string[], words: Words, wait: boolean, key: string | undefined): Hold {
    const hold = new Hold(names, `${this.id}:${++this.owners}`, words, key)
    this.holds.set(hold.owner, hold)
    if (key !== undefined) this.reentrant.set(key, hold)
    const granted = async () => {
      try {
        return await this.untilGranted(hold, wait)
      } finally {
        if (hold.state === 'waiting') this.abandon(hold)
      }
    }
    hold.asked = granted()
    hold.asked.catch(() => {})
    return hold
  }

  private async untilGranted(hold: Hold, wait: boolean): Promise<boolean> {
    const isOver = () => hold.state !== 'waiting'
    let unknown = false // whether an earlier try was executed
    for (;;) {
      const attached = await this.attached({ changed: hold.changed, isOver, rounds: wait ? 'refused' : 'all' })
      if (!attached) return hold.state !== 'released'
      const { conn, session } = attached
      hold.session = session
      hold.askAgain = false
      try {
        const reply = await conn.do(hold.acquireWords(session, wait), (fence) => this.grant(hold, fence))
        if (reply === null && hold.state === 'waiting') {
          hold.session = 0
          return false
        }
      } catch (error) {
        if (!isRetried(error)) {
          if (!unknown) hold.session = 0
          throw error
        }
        unknown = true
        await this.beforeRetry(conn, error, session)
        continue
      }
      while (hold.state === 'waiting' && !hold.askAgain && !conn.gone && !this.closed && this.session === session) {
        await hold.changed.wait()
      }
      unknown = true
    }
  }

  /** Notes a grant; 0 is none. One in a session that was given up does not count. */
  private grant(hold: Hold, fence: Value | undefined): void {
    this.judge()
    if (!(Number(fence) > 0) || hold.state !== 'waiting' || hold.session !== this.session) return
    hold.fence = Number(fence)
    hold.state = 'held'
    hold.changed.notify()
  }

  /** Ends a hold that nobody wants any more, and gives up its place in line. */
  private abandon(hold: Hold): void {
    if (hold.state !== 'waiting' && hold.state !== 'held') return
    hold.state = 'released'
    this.forget(hold)
    hold.changed.notify()
    void this.giveBack(hold)
  }

  private forget(hold: Hold): void {
    this.holds.delete(hold.owner)
    if (hold.key !== undefined && this.reentrant.get(hold.key) === hold) this.reentrant.delete(hold.key)
  }

  /** Tells the cluster that the lock is not wanted, unless the session has ended, and the lock with it. */
  private async giveBack(hold: Hold): Promise<void> {
    const isOver = () => this.session !== hold.session
    while (!this.closed && hold.session !== 0) {
      const attached = await this.attached({ isOver }).catch(() => undefined)
      if (!attached) return
      try {
        await Promise.all([
          attached.conn.do(['LOCK.CANCEL', hold.names[0]!, hold.owner]), attached.conn.do(hold.releaseWords()),
        ])
        return
      } catch (error) {
        if (!isRetried(error)) return
        await this.beforeRetry(attached.conn, error, attached.session)
      }
    }
  }

  /** Ends a handle, and the hold with the last one. Rejects with LockLost if the lock was lost before. */
  async release(hold: Hold): Promise<void> {
    this.judge()
    if (hold.loss) throw hold.loss
    if (--hold.handles > 0) return
    hold.state = 'released'
    if (hold.key !== undefined) this.reentrant.delete(hold.key)
    let unknown = false // whether an earlier try was executed
    try {
      for (;;) {
        const attached = await this.attached({ isOver: () => this.session !== hold.session })
        let ended: Value = null
        try {
          if (attached) ended = await attached.conn.do(hold.releaseWords())
        } catch (error) {
          if (!isRetried(error)) throw error
          unknown = true
          await this.beforeRetry(attached!.conn, error, attached!.session)
          continue
        }
        const isLost = ended === null || (hold.names.length > 1 && Number(ended) < hold.names.length)
        if (isLost && !unknown) throw hold.loss ?? hold.lossBy('unknown')
        return
      }
    } finally {
      this.forget(hold)
    }
  }

  private lose(hold: Hold, loss: LockLost): void {
    if ((hold.state !== 'held' && hold.state !== 'released') || hold.loss) return
    hold.loss = loss
    if (hold.state === 'released') return // which tells it
    hold.state = 'lost'
    this.forget(hold)
    hold.changed.notify()
    if (!this.closed) this.options.log.warn(loss.message)
    hold.lost.abort(loss)
    if (hold.names.length > 1) void this.giveBack(hold)
  }

  /**
   * Gives up the session with a third of the TTL left, if no node could be reached in time to renew it. Every use of a
   * hold asks, as timers are late when the event loop is blocked or the process was frozen.
   */
  judge(): void {
    clearTimeout(this.expiry)
    if (!this.session) return
    const left = this.goodUntil - this.options.ttl / 3 - now()
    if (left > 0) {
      this.expiry = setTimeout(() => this.judge(), left)
      return
    }
    this.giveUpSession(`no node could be reached${this.trouble}`, Math.max(0, this.goodUntil - now()))
  }

  /** Why no node can be used; empty while one is. */
  get trouble(): string {
    return this.roundError ? `: ${this.roundError.message}` : ''
  }

  // Commands.

  /** Executes a command by whatever node answers; again if the outcome is unknown. */
  async do(words: Words, signal?: AbortSignal, subscribes = false): Promise<Value> {
    signal?.throwIfAborted()
    const isOver = () => signal?.aborted === true
    const execute = async (): Promise<Value> => {
      for (;;) {
        const attached = await this.attached({ isOver, rounds: 'refused' })
        if (!attached) return null // and nobody sees it
        try {
          return await attached.conn.do(words, undefined, subscribes)
        } catch (error) {
          if (!isRetried(error)) throw error
          await this.beforeRetry(attached.conn, error, attached.session)
        }
      }
    }
    if (!signal) return execute()
    let stop = () => {}
    const stopped = new Promise<never>((_, reject) => {
      stop = () => {
        reject(signal.reason)
        this.changed.notify()
      }
    })
    signal.addEventListener('abort', stop)
    try {
      return await Promise.race([execute(), stopped])
    } finally {
      signal.removeEventListener('abort', stop)
    }
  }

  /** Yields at once, and after messages of a channel. */
  async *messages(channel: string, signal?: AbortSignal): AsyncGenerator<void, void, void> {
    const channelState = this.watched.get(channel) ?? { watchers: 0, messages: 0 }
    this.watched.set(channel, channelState)
    channelState.watchers++
    const stop = () => this.changed.notify()
    signal?.addEventListener('abort', stop)
    try {
      await this.do(['SUBSCRIBE', channel], signal, true)
      for (;;) {
        const seen = channelState.messages
        yield
        while (!this.closed && channelState.messages === seen && !signal?.aborted) await this.changed.wait()
        signal?.throwIfAborted()
        if (this.closed) return
      }
    } finally {
      signal?.removeEventListener('abort', stop)
      if (--channelState.watchers === 0) {
        this.watched.delete(channel)
        if (this.conn) this.conn.do(['UNSUBSCRIBE', channel], undefined, true).catch(() => {})
      }
    }
  }

  /**
   * The connection that the session is attached to, once there is one; undefined if isOver says so before. It rejects
   * when a round over all nodes has failed, if `rounds` is "all", or if a node refused the client in it, if "refused".
   */
  private async attached(
    { isOver, changed = this.changed, rounds }: { isOver: () => boolean; changed?: Condition; rounds?: 'all' | 'refused' },
  ): Promise<Attached | undefined> {
    const begun = this.rounds
    for (;;) {
      if (this.closed) throw new ClosedError('the client is closed')
      if (isOver()) return undefined
      if (this.conn && !this.conn.gone && this.session) return { conn: this.conn, session: this.session }
      if (!this.running) {
        this.running = true
        void this.run()
      }
      if (this.rounds > begun && this.roundError && rounds) {
        if (this.refused) throw new RefusedError('', this.roundError.message)
        if (rounds === 'all') throw new HoldfastError(`no node can be used: ${this.roundError.message}`)
      }
      await changed.wait()
    }
  }

  /** Waits until another try may succeed. */
  private async beforeRetry(conn: Conn, error: ConnectionLost | TransientError, session: number): Promise<void> {
    if (error instanceof ConnectionLost) return // attached waits
    if (error.is('NOSESSION')) this.endSession(session)
    if (error.is('CLUSTERDOWN', 'LOADING', 'MASTERDOWN')) conn.leave()
    await new Promise((resolve) => setTimeout(resolve, firstPauseMillis))
  }

  /** Wakes all who wait. */
  private notify(): void {
    this.changed.notify()
    for (const hold of this.holds.values()) hold.changed.notify()
  }

  // The session.

  /** Keeps the session attached to some node until the client is closed. */
  private async run(): Promise<void> {
    let pause = firstPauseMillis
    while (!this.closed) {
      const conn = await this.connect()
      if (conn) {
        pause = firstPauseMillis
        await this.keep(conn)
        this.conn = undefined
        this.retire(conn)
        this.notify()
        continue
      }
      const end = now() + pause
      while (!this.closed && now() < end) await this.changed.wait(end - now())
      pause = Math.min(2 * pause, maxPauseMillis)
    }
  }

  /** Tries each node once, and attaches the session to the first that answers. */
  private async connect(): Promise<Conn | undefined> {
    const failed: string[] = []
    let refused = false
    for (let i = 0; i < this.options.nodes.length && !this.closed; i++) {
      const node = this.options.nodes[this.next++ % this.options.nodes.length]!
      try {
        const conn = this.dialing = this.dial(node)
        await conn.connected
        await this.attach(conn)
        return conn
      } catch (error) {
        failed.push((error as Error).message)
        refused ||= error instanceof RefusedError
        if (this.dialing) this.retire(this.dialing)
      } finally {
        this.dialing = undefined
      }
    }
    if (this.closed) return undefined
    this.rounds++
    const isFirst = !this.roundError
    this.roundError = new ConnectionLost(failed.join('; '))
    this.refused = refused
    this.options.log[isFirst ? 'warn' : 'debug'](`no node can be used: ${this.roundError.message}`)
    this.notify()
    return undefined
  }

  private dial(node: string): Conn {
    try {
      return new Conn({
        node, patience: this.patience, tls: this.options.tls, onGone: () => this.notify(),
        onPush: (from, values) => this.pushed(from, values),
      })
    } catch (error) {
      throw new RefusedError(node, (error as Error).message) // the settings of TLS are wrong
    }
  }

  /** Logs in, attaches the session or opens one, and proves the locks that are held. */
  private async attach(conn: Conn): Promise<void> {
    const password = (await this.options.password()) ?? '' // of JavaScript
    const login = password || this.options.username ? ['AUTH', this.options.username || 'default', password] : []
    await conn.do(['HELLO', 3, ...login, 'SETNAME', this.options.name])
    if (this.options.database) await conn.do(['SELECT', this.options.database])
    const session = await this.open(conn)
    const held = [...this.holds.values()].filter((hold) => hold.state === 'held')
    await this.prove(conn, held)
    const channels = [...this.watched.keys()]
    for (const channel of channels) await conn.do(['SUBSCRIBE', channel], undefined, true)
    if (this.session !== session || this.closed) throw new ConnectionLost(`${conn.node}: the session ended`)
    for (const former of this.former.splice(0)) former.close()
    this.conn = conn
    this.roundError = undefined
    for (const channel of this.watched.values()) channel.messages++ // some were missed
    this.options.log.debug(`connected to ${conn.node}`)
    this.notify()
  }

  private async open(conn: Conn): Promise<number> {
    const former = this.session
    if (former) {
      const attached = await orNull(conn.do(['SESSION.ATTACH', former, 'HEARTBEAT']))
      if (attached !== null) {
        await this.keepAlive(conn, former)
        return former
      }
      this.endSession(former)
    }
    const begun = now()
    const { ttl, name } = this.options
    const session = Number(await conn.do(['SESSION.OPEN', 'PX', ttl, 'CONNECTION', 'HEARTBEAT', 'NAME', name]))
    this.session = session
    this.goodUntil = begun + ttl
    this.judge()
    return session
  }

  private async keepAlive(conn: Conn, session: number): Promise<void> {
    const begun = now()
    const left = await orNull(conn.do(['SESSION.KEEPALIVE', session]))
    if (left === null) {
      this.endSession(session)
      throw new ConnectionLost(`${conn.node}: the session ended`)
    }
    if (this.session !== session) return
    this.goodUntil = begun + Math.min(this.options.ttl, Number(left))
    this.judge()
  }

  /** Asks for each hold whether it is still held: the notice of its loss may have gone to a former connection. */
  private async prove(conn: Conn, held: readonly Hold[]): Promise<void> {
    const asked = held.flatMap((hold) => hold.names.map((name) => ({ hold, name })))
    for (let i = 0; i < asked.length; i += 128) {
      const check = async ({ hold, name }: { hold: Hold; name: string }) => {
        const fence = await conn.do(['LOCK.CHECK', name, hold.owner])
        if (fence !== hold.fence) this.lose(hold, hold.lossBy('unknown'))
      }
      await Promise.all(asked.slice(i, i + 128).map(check))
    }
  }

  /** Sends signs of life until another node must be looked for. */
  private async keep(conn: Conn): Promise<void> {
    let next = now() + this.options.ttl / 4
    while (!conn.gone && !this.closed) {
      if (now() < next) {
        await this.changed.wait(next - now())
        continue
      }
      next = now() + this.options.ttl / 4
      try {
        await this.keepAlive(conn, this.session)
      } catch {
        return
      }
    }
  }

  private pushed(conn: Conn, values: Value[]): void {
    const [kind, event, name, owner, ...rest] = values
    if (kind === 'message') {
      const channel = this.watched.get(String(event))
      if (channel) channel.messages++
      this.changed.notify()
      return
    }
    const hold = kind === 'lock' ? this.holds.get(String(owner)) : undefined
    if (!hold || !hold.names.includes(String(name))) return
    if (event === 'granted') {
      this.grant(hold, rest[0])
    } else if (event === 'lost' && rest[0] === hold.fence) {
      const [reason, text, by] = rest.slice(1).map(String)
      this.lose(hold, hold.lossBy(reason ?? 'unknown', by === undefined ? '' : text, by))
    } else if ((event === 'timeout' || event === 'failed') && conn === this.conn) {
      hold.askAgain = true
      hold.changed.notify()
    }
  }

  /**
   * Closes a connection that is used no more; but if the session may be attached to it, once the session is attached to
   * another: a node ends the sessions of a connection that closes.
   */
  private retire(conn: Conn): void {
    conn.leave()
    if (this.session && !this.closed) this.former.push(conn)
    else conn.close()
  }

  private giveUpSession(reason: string, millisLeft = 0): void {
    this.session = 0
    clearTimeout(this.expiry)
    for (const hold of [...this.holds.values()]) this.lose(hold, hold.lossBy(reason, '', '', millisLeft))
    for (const former of this.former.splice(0)) former.close()
    this.conn?.leave()
    this.notify()
  }

  private endSession(session: number): void {
    if (this.session === session) this.giveUpSession('session')
  }

  /** Releases all locks by closing the session. */
  close(): Promise<void> {
    return (this.closing ??= this.finish())
  }

  private async finish(): Promise<void> {
    const { conn, session } = this
    this.closed = true
    for (const hold of [...this.holds.values()]) this.lose(hold, hold.lossBy('the client was closed'))
    this.notify()
    if (conn && session) await conn.do(['SESSION.CLOSE', session]).catch(() => {})
    this.session = 0
    clearTimeout(this.expiry)
    for (const open of [conn, this.dialing, ...this.former.splice(0)]) open?.close()
  }
}

/** The reply; null also if the session has ended. */
async function orNull(reply: Promise<Value>): Promise<Value> {
  try {
    return await reply
  } catch (error) {
    if (error instanceof TransientError && error.is('NOSESSION')) return null
    throw error
  }
}
