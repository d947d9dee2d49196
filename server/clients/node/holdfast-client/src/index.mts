export { Client, ClosedError, HoldfastError, Lock, LockLost, NotAcquired, RefusedError } from './index.js'
export type { ClientOptions, LockInfo, LockOptions, LockParty, TryOptions } from './index.js'
