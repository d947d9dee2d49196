/**
 * Native locks of Holdfast: a fair queue without polling, a fencing token with every grant, and a signal that aborts when
 * the lock is lost. The contract that this package keeps is server/clients/CONTRACT.md of Holdfast.
 *
 * @packageDocumentation
 */
export { Client, Lock } from './client.js'
export type { ClientOptions, LockInfo, LockOptions, LockParty, TryOptions } from './client.js'
export { ClosedError, HoldfastError, LockLost, NotAcquired, RefusedError } from './errors.js'
