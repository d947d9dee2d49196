module github.com/holdfast/holdfast/bench/zookeeper

go 1.26.8

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast/holdfast v0.0.0
)

require (
	github.com/tidwall/btree v1.8.2 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/redcon v1.6.4 // indirect
)

replace github.com/holdfast/holdfast => ../..

replace github.com/holdfast/holdfast/server/clients/go/holdfast => ../../server/clients/go/holdfast
