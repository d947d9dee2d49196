package protocol

// HoldfastVersion is this release, as INFO, HELLO and `holdfast version` give it.
const HoldfastVersion = "0.1.0"

// RedisVersion is the release of Redis whose behaviour clients may expect: INFO, HELLO, LOLWUT and
// redis.REDIS_VERSION give it. server/frontend/DESIGN.md says which clients switch on which release.
const RedisVersion = "8.4.0"
