// Command bridge takes a lock by redsync on all servers that it is given: see ../../bridge.sh.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

// <locks>

// locksOn takes locks on all servers, or not at all. For the bridge they are two: of three, redsync takes two for
// enough.
func locksOn(addrs ...string) *redsync.Redsync {
	var pools []redis.Pool
	for _, addr := range addrs {
		pools = append(pools, goredis.NewPool(goredislib.NewClient(&goredislib.Options{Addr: addr})))
	}
	return redsync.New(pools...)
}

// </locks>

func main() {
	job := locksOn(os.Args[1:]...).NewMutex("job", redsync.WithExpiry(30*time.Second), redsync.WithTries(1))
	if job.Lock() != nil {
		fmt.Println("refused")
		return
	}
	fmt.Println("held")
	bufio.NewReader(os.Stdin).ReadString('\n')
	job.Unlock()
	fmt.Println("released")
}
