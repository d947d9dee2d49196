module github.com/holdfast/holdfast/bench/zookeeper

go 1.26.8

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast/holdfast v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/redcon v1.6.4 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/holdfast/holdfast => ../..

replace github.com/holdfast/holdfast/server/clients/go/holdfast => ../../server/clients/go/holdfast
