//go:build !race

package replica_test

import "time"

// quietTime is how long an idle cluster is watched.
const quietTime = time.Hour
