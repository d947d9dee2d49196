import * as net from 'node:net'
import * as tls from 'node:tls'
import { ConnectionLost, HoldfastError, RefusedError, errorOf } from './errors.js'
import { Decoder, ErrorReply, Push, Value, encode } from './resp.js'

export interface ConnOptions {
  node: string
  /** For how many milliseconds a reply is waited for. */
  patience: number
  tls: tls.ConnectionOptions | undefined
  onPush: (conn: Conn, values: Value[]) => void
  /** Called when gone becomes true. */
  onGone: () => void
}

interface Request {
  sent: number
  subscribes: boolean // the reply comes as a push
  then?: (value: Value) => void
  resolve: (value: Value) => void
  reject: (error: HoldfastError) => void
}

export function parseNode(node: string): { host: string; port: number } {
  const colon = node.lastIndexOf(':')
  const port = Number(node.slice(colon + 1))
  if (colon < 1 || node.includes('/') || !Number.isInteger(port) || port < 1 || port > 65535) {
    throw new TypeError(`nodes: "${node}" is not "host:port"`)
  }
  return { host: node.slice(0, colon).replace(/^\[(.*)\]$/, '$1'), port }
}

/** A RESP3 connection to one node. Replies come in the order of the commands, pushes between them. */
export class Conn {
  readonly node: string
  /** Resolves when commands may be sent; the peer's certificate has been verified then. */
  readonly connected: Promise<void>
  /** The connection has ended, or the client looks for another node. */
  gone = false
  private readonly socket: net.Socket
  private readonly pending: Request[] = []
  private error: HoldfastError | undefined
  private timer: NodeJS.Timeout | undefined
  private answered = false

  constructor(private readonly options: ConnOptions) {
    this.node = options.node
    const address = parseNode(options.node)
    const secure = options.tls
    if (secure) {
      const servername = net.isIP(address.host) ? undefined : address.host
      this.socket = tls.connect({ ...(servername && { servername }), ...secure, ...address })
    } else {
      this.socket = net.connect(address)
    }
    this.socket.setNoDelay(true)
    const decoder = new Decoder((value) => this.receive(value))
    this.socket.on('data', (piece: Buffer) => {
      try {
        decoder.write(piece)
      } catch (error) {
        this.fail(this.lostBy((error as Error).message))
      }
    })
    this.connected = new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.fail(this.lostBy('no connection in time')), options.patience)
      this.socket.once(secure ? 'secureConnect' : 'connect', () => {
        clearTimeout(timer)
        resolve()
      })
      this.socket.on('error', (error) => this.fail(this.failure(error)))
      this.socket.once('close', () => {
        clearTimeout(timer)
        const mayWantTLS = !secure && !this.answered
        this.fail(this.lostBy('closed by the node' + (mayWantTLS ? ' before an answer: does the port want TLS?' : '')))
        reject(this.error)
      })
    })
    this.connected.catch(() => {})
  }

  /** Closes the connection. */
  close(): void {
    this.fail(this.lostBy('closed by this client'))
  }

  /** Has the client look for another node. The connection stays open: see Session.retire. */
  leave(): void {
    if (this.gone) return
    this.gone = true
    this.options.onGone()
  }

  /**
   * Sends a command. `then` is called with the reply before anything behind the reply is decoded: so a grant is noted
   * before the push that says that it is lost.
   */
  do(words: readonly (string | number)[], then?: (value: Value) => void, subscribes = false): Promise<Value> {
    return new Promise((resolve, reject) => {
      if (this.error) return reject(this.error)
      this.pending.push({ sent: performance.now(), subscribes, ...(then && { then }), resolve, reject })
      this.socket.write(encode(words))
      this.timer ??= setTimeout(() => this.watchReplies(), this.options.patience)
    })
  }

  /** Rejects commands that have waited too long, once what has arrived meanwhile has been read. */
  private watchReplies(): void {
    setImmediate(() => {
      this.timer = undefined
      const first = this.pending[0]
      if (!first) return
      const left = first.sent + this.options.patience - performance.now()
      if (left > 0) {
        this.timer = setTimeout(() => this.watchReplies(), left)
        return
      }
      const error = new ConnectionLost(`${this.node}: no answer in ${this.options.patience} ms`)
      for (const request of this.pending) request.reject(error) // and stays in line for its late reply
      this.leave()
    })
  }

  private receive(value: Value): void {
    if (this.error) return
    this.answered = true
    const [first] = this.pending
    if (value instanceof Push) {
      const isReply = first?.subscribes && (value.values[0] === 'subscribe' || value.values[0] === 'unsubscribe')
      if (!isReply) return this.options.onPush(this, value.values)
    }
    if (!first) throw new Error('a reply that nobody asked for')
    this.pending.shift()
    if (value instanceof ErrorReply) {
      first.reject(errorOf(this.node, value.text))
    } else {
      first.then?.(value)
      first.resolve(value)
    }
  }

  private fail(error: HoldfastError): void {
    if (this.error) return
    this.error = error
    clearTimeout(this.timer)
    this.socket.destroy()
    for (const request of this.pending.splice(0)) request.reject(error)
    this.leave()
  }

  private failure(error: Error): HoldfastError {
    const isCertificate = this.socket instanceof tls.TLSSocket && this.socket.authorizationError
    return isCertificate ? new RefusedError(this.node, error.message) : this.lostBy(error.message.trim())
  }

  private lostBy(why: string): ConnectionLost {
    return new ConnectionLost(`${this.node}: connection lost: ${why}`)
  }
}
