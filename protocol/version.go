package protocol

// HoldfastVersion is this release, in INFO, HELLO and `holdfast version`.
const HoldfastVersion = "0.1.0"

// RedisVersion is the release of Redis whose behaviour clients may expect, in INFO, HELLO, LOLWUT and
// redis.REDIS_VERSION. server/frontend/DESIGN.md says which clients depend on which release.
const RedisVersion = "8.4.0"
