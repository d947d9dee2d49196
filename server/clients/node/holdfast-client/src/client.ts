import { basename } from 'node:path'
import type { ConnectionOptions } from 'node:tls'
import { parseNode } from './conn.js'
import { HoldfastError, LockLost, NotAcquired } from './errors.js'
import type { Value } from './resp.js'
import { Hold, Session } from './session.js'

export interface ClientOptions {
  /** The nodes, as "host:port". With several a client outlives the death of its node. */
  nodes: readonly string[]
  /** Default: Redis's default user. */
  username?: string
  /** A function is called for each connection, so that the password can change. */
  password?: string | (() => string | Promise<string>)
  /** The options of `tls.connect`, or true for those of Node. Default: no TLS. */
  tls?: boolean | ConnectionOptions
  /** The number of the database: names of locks are those of one database. Default 0. */
  database?: number
  /**
   * For how many milliseconds locks stay held when this process dies or freezes, or no node can be reached. At least
   * 1,000, default 10,000; below 5,000 it is hardly longer than the failover of a cluster.
   */
  ttl?: number
  /** By which nodes and `holdfast locks` know the client. Default: the program and its process number. */
  name?: string
  /**
   * Receives warnings of lost locks and of unreachable nodes, and debug messages about changes of the node; `console` is
   * one. Default: none.
   */
  logger?: { debug(message: string): void; warn(message: string): void }
}

export interface TryOptions {
  /** Is shown to everybody who looks, up to 1,024 bytes. Leaders tell their address so. */
  note?: string
  /** For how many milliseconds nobody is granted the lock after it was lost. A release does not delay. */
  delay?: number
  /** Those who share a lock hold it together, and exclude who does not. */
  shared?: boolean
  /** Makes the lock a semaphore: it is granted until so many permits are taken. All programs say the same limit. */
  limit?: number
  /** How many permits of a semaphore are taken. Default 1. */
  permits?: number
  /**
   * Calls of one client with the same owner share one hold, which ends with the last release. Without it each call
   * excludes all others. All calls say the same other options.
   */
  reentrant?: string
}

export interface LockOptions extends TryOptions {
  /** Aborting it gives up the place in line; the call rejects with its reason. It has no effect after the grant. */
  signal?: AbortSignal
  /** For how many milliseconds the lock is waited for. Default: for ever. */
  timeout?: number
}

/** Who holds a lock or waits for it. */
export interface LockParty {
  owner: string
  note: string
  /** `exclusive`, `shared` or `permits`. */
  mode: string
  /** 0 of who waits. */
  fence: number
  permits: number
  /** By the clock of the cluster. */
  since: Date
  /** Name of the client. */
  name: string
  /** Address of the client; empty unless its state is `connected`. */
  addr: string
  /** `connected`, `gone` or `unknown`. */
  state: string
}

/** A lock as everybody can see it; at most 1,000 holders and waiters are listed. */
export interface LockInfo {
  holders: LockParty[]
  waiters: LockParty[]
  holderCount: number
  waiterCount: number
}

/** A lock that was granted. */
export class Lock implements AsyncDisposable {
  readonly #session: Session
  readonly #hold: Hold
  #released: Promise<void> | undefined

  /** @internal */
  constructor(session: Session, hold: Hold) {
    this.#session = session
    this.#hold = hold
  }

  /**
   * The number of this hold, larger than that of every hold before. It goes with every write to a resource that refuses
   * smaller ones; see also {@link Client.fencePass}.
   */
  get fence(): number {
    return this.#hold.fence
  }

  /** Aborts when the lock is lost or the client closed, with a {@link LockLost} as its reason. A release does not abort. */
  get signal(): AbortSignal {
    this.#session.judge()
    return this.#hold.lost.signal
  }

  /** Why the lock is no longer held; undefined if it was not lost. It asks no node. */
  get lost(): LockLost | undefined {
    this.#session.judge()
    return this.#hold.loss
  }

  /** Throws {@link LockLost} if the lock is no longer held. It asks no node. */
  check(): void {
    if (this.lost) throw this.lost
    if (this.#released) throw new HoldfastError(`lock '${this.#hold.names[0]}' was released`)
  }

  /**
   * Releases the lock; further calls have the same outcome. While no node answers it waits, until the session ends.
   * Rejects with {@link LockLost} if the lock was lost before: others may have held it meanwhile.
   */
  release(): Promise<void> {
    return (this.#released ??= this.#session.release(this.#hold))
  }

  /** Releases the lock at the end of a block, unless it was released before. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#released) await this.release()
  }
}

/**
 * A client of native locks. It connects at the first use, and has one session for all its locks, which outlives the node
 * that it is connected to. Its connection keeps the process running until {@link Client.close}.
 */
export class Client implements AsyncDisposable {
  readonly #options: ClientOptions
  readonly #session: Session
  #observer: Session | undefined

  constructor(options: ClientOptions) {
    const { nodes, ttl = 10_000, database = 0 } = options
    if (!Array.isArray(nodes) || nodes.length === 0) throw new TypeError('nodes: a list of "host:port"')
    nodes.forEach(parseNode)
    if (!(ttl >= 1000 && ttl < 2 ** 31)) throw new RangeError(`ttl ${ttl}: at least 1000 ms`)
    if (!Number.isInteger(database) || database < 0) throw new RangeError(`database ${database}: a number`)
    this.#options = { ...options, nodes: [...nodes] }
    this.#session = this.#newSession()
  }

  #newSession(): Session {
    const { nodes, username = '', password = '', tls, database = 0, ttl = 10_000, name, logger } = this.#options
    return new Session({
      nodes, username, database, ttl: Math.round(ttl),
      password: typeof password === 'function' ? password : () => password,
      tls: tls === true ? {} : tls || undefined,
      name: name ?? `${basename(process.argv[1] ?? 'node').replace(/[^!-~]/g, '-')}:${process.pid}`,
      log: logger ?? { debug: () => {}, warn: () => {} },
    })
  }

  /**
   * Waits in line for a lock; of several names all are granted together, with one fence, and the loss of one is the loss
   * of all. Rejects with {@link NotAcquired} after the timeout, with the reason of the signal, or with a
   * {@link RefusedError}. A node that dies meanwhile does not cost the place.
   */
  async lock(name: string | readonly string[], options: LockOptions = {}): Promise<Lock> {
    const { signal, timeout } = options
    if (timeout !== undefined && !(timeout >= 0)) throw new RangeError(`timeout ${timeout}: milliseconds`)
    if (signal === undefined && timeout === undefined) return this.#acquire(name, options, true)
    signal?.throwIfAborted()
    const stop = new AbortController()
    const abort = () => stop.abort(signal?.reason)
    const why = () => `lock '${[name].flat()[0]}' was not granted in ${timeout} ms${this.#session.trouble}`
    const expire = () => stop.abort(new NotAcquired(why()))
    const timer = timeout !== undefined && timeout < 2 ** 31 ? setTimeout(expire, timeout) : undefined
    signal?.addEventListener('abort', abort)
    try {
      return await this.#acquire(name, options, true, stop.signal)
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
    }
  }

  /** Takes a lock if nobody holds it or waits for it; else null. If no node can be reached, each is tried once. */
  async tryLock(name: string | readonly string[], options: TryOptions = {}): Promise<Lock | null> {
    try {
      return await this.#acquire(name, options, false)
    } catch (error) {
      if (error instanceof NotAcquired) return null
      throw error
    }
  }

  /** A lock that is held together with other read locks, and excludes {@link Client.writeLock}. */
  readLock(name: string | readonly string[], options: LockOptions = {}): Promise<Lock> {
    return this.lock(name, { ...options, shared: true })
  }

  /** The same as {@link Client.lock}. */
  writeLock(name: string | readonly string[], options: LockOptions = {}): Promise<Lock> {
    return this.lock(name, options)
  }

  /** A lock that several hold until `limit` permits are taken. */
  semaphore(name: string, limit: number, options: LockOptions = {}): Promise<Lock> {
    return this.lock(name, { ...options, limit })
  }

  /**
   * Calls `work` with the lock, and releases it behind that. Rejects with the error of `work`, or with {@link LockLost} if
   * the lock was lost before the end, also when `work` was aborted by the lock's signal.
   */
  async withLock<T>(
    name: string | readonly string[], work: (lock: Lock) => T | Promise<T>, options: LockOptions = {},
  ): Promise<T> {
    const lock = await this.lock(name, options)
    let result: T
    try {
      result = await work(lock)
    } catch (error) {
      await lock[Symbol.asyncDispose]().catch(() => {})
      throw lock.lost && (error as Error | undefined)?.name === 'AbortError' ? lock.lost : error
    }
    await lock[Symbol.asyncDispose]()
    return result
  }

  /** Tells who holds a lock and who waits for it. */
  async inspect(name: string, options: { signal?: AbortSignal } = {}): Promise<LockInfo> {
    return info(await this.#session.do(['LOCK.INFO', name], options.signal))
  }

  /**
   * Tells who holds a lock and who waits for it: at once, and after each change. Quick changes may be seen as one. With
   * a note each leader tells its address so. It ends when the client is closed, and throws the reason of the signal.
   */
  async *watch(name: string, options: { signal?: AbortSignal } = {}): AsyncGenerator<LockInfo, void, void> {
    // A connection of its own: a node without a leader closes those with subscriptions, and the session with it.
    if (!this.#session.closed) this.#observer ??= this.#newSession()
    const session = this.#observer ?? this.#session
    let last = ''
    for await (const _ of session.messages(`__lock@${this.#options.database ?? 0}__:${name}`, options.signal)) {
      const found = info(await session.do(['LOCK.INFO', name], options.signal))
      const text = JSON.stringify(found)
      if (text !== last) yield found
      last = text
    }
  }

  /**
   * Whether no larger fence has passed at `key` before: whether the holder with this fence may still write to the
   * resource that `key` stands for. It is for resources that cannot compare fences themselves.
   */
  async fencePass(key: string, fence: number, options: { signal?: AbortSignal } = {}): Promise<boolean> {
    return (await this.#session.do(['FENCE.PASS', key, fence], options.signal)) === 1
  }

  /**
   * Releases all locks by closing the session. If no node answers in a fifth of the TTL, 3 s at most, they are free after
   * the TTL.
   */
  async close(): Promise<void> {
    await Promise.all([this.#session.close(), this.#observer?.close()])
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #acquire(
    name: string | readonly string[], options: TryOptions, wait: boolean, signal = new AbortController().signal,
  ): Promise<Lock> {
    const names = typeof name === 'string' ? [name] : [...name]
    if (names.length === 0) throw new TypeError('names: at least one')
    const { note, delay, shared, limit, permits, reentrant } = options
    const words = [
      ...(shared ? ['SHARED'] : []),
      ...(limit !== undefined ? ['LIMIT', limit] : []),
      ...(permits !== undefined ? ['PERMITS', permits] : []),
      ...(note ? ['NOTE', note] : []),
      ...(delay ? ['DELAY', Math.round(delay)] : []),
    ]
    const key = reentrant === undefined ? undefined : JSON.stringify([names, reentrant])
    return new Lock(this.#session, await this.#session.acquire(names, words, wait, signal, key))
  }
}

function info(reply: Value): LockInfo {
  const found = reply instanceof Map ? reply : new Map<Value, Value>()
  const parties = (field: string) => ((found.get(field) ?? []) as Map<Value, Value>[]).map(party)
  return {
    holders: parties('holders'),
    waiters: parties('waiters'),
    holderCount: Number(found.get('holders-count') ?? 0),
    waiterCount: Number(found.get('waiters-count') ?? 0),
  }
}

function party(found: Map<Value, Value>): LockParty {
  const text = (field: string) => String(found.get(field) ?? '')
  return {
    owner: text('owner'),
    note: text('note'),
    mode: text('mode'),
    fence: Number(found.get('fence') ?? 0),
    permits: Number(found.get('permits') ?? 0),
    since: new Date(Number(found.get('since') ?? 0)),
    name: text('client-name'),
    addr: text('client-addr'),
    state: text('client-state'),
  }
}
