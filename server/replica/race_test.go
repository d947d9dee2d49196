//go:build race

package replica_test

import "time"

// quietTime is shorter than without the race detector, which makes an idle hour last a minute.
const quietTime = 5 * time.Minute
