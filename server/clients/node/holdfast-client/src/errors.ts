/** What every error of this package is, except an abort, which is rejected with the reason of its signal. */
export class HoldfastError extends Error {
  static {
    this.prototype.name = 'HoldfastError'
  }
}

/** The client was closed. */
export class ClosedError extends HoldfastError {
  static {
    this.prototype.name = 'ClosedError'
  }
}

/** The lock was not granted in time. */
export class NotAcquired extends HoldfastError {
  static {
    this.prototype.name = 'NotAcquired'
  }
}

/** A node's reply that another try would meet again: of rights, passwords, certificates or values. */
export class RefusedError extends HoldfastError {
  static {
    this.prototype.name = 'RefusedError'
  }

  constructor(
    /** The node's address; empty if several nodes refused, which the message names. */
    readonly node: string,
    /** The node's words. */
    readonly text: string,
  ) {
    super(node ? `${node}: ${text}` : text)
  }
}

/** The lock is no longer held, or can soon no longer be proved to be. */
export class LockLost extends HoldfastError {
  static {
    this.prototype.name = 'LockLost'
  }

  constructor(
    /** The lock's name. */
    readonly lock: string,
    /** The fence of the hold that was lost. */
    readonly fence: number,
    /** `broken`, `expired`, `session` or `flushed`, as LOCKS.md defines them, `unknown`, or a sentence. */
    readonly reason: string,
    /** The reason that was given with LOCK.BREAK; may be empty. */
    readonly text = '',
    /** Name and address of the client that broke the lock; may be empty. */
    readonly by = '',
    /** For how many milliseconds nobody else is granted the lock; 0: somebody else may hold it now. */
    readonly millisLeft = 0,
  ) {
    super(`lock '${lock}' lost, fence ${fence}: ${reason}${by && ` by ${by}`}${text && `: ${text}`}`)
  }
}

/** The connection ended, or the node did not answer in time. The command may have been executed. */
export class ConnectionLost extends HoldfastError {}

/** An error reply that another node or another moment may not give. */
export class TransientError extends HoldfastError {
  constructor(node: string, readonly text: string) {
    super(`${node}: ${text}`)
  }

  is(...codes: string[]): boolean {
    return codes.some((code) => this.text.startsWith(code))
  }
}

const transient = [
  'CLUSTERDOWN', 'TRYAGAIN', 'UNCERTAIN', 'LOADING', 'MASTERDOWN', 'NOSESSION', 'ERR max number of clients',
]

export function errorOf(node: string, text: string): HoldfastError {
  const error = new TransientError(node, text)
  return error.is(...transient) ? error : new RefusedError(node, text)
}

/** Whether the same command is sent again after the error. */
export function isRetried(error: unknown): error is ConnectionLost | TransientError {
  return error instanceof ConnectionLost || error instanceof TransientError
}
