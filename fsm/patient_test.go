package fsm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPatience: which commands would only stand in line, or be refused, and do not change anything for others.
func TestPatience(t *testing.T) {
	d := newDriver(t)
	d.do("rpush", "list", "x")
	d.do("set", "string", "x")
	for _, line := range []string{
		"native 1 0 0 lock.acquire held me px 60000",
		"native 1 0 0 lock.acquire short me px 10",
		"native 1 0 0 lock.acquire shared me px 60000 shared",
		"native 1 0 0 lock.acquire queue me px 60000 shared",
		"native 1 7 0 lock.acquire queue writer px 60000 wait 0",
		"native 1 0 0 lock.acquire permits me px 60000 limit 3 permits 2",
	} {
		d.apply(request(nil, 0, strings.Fields(line)...))
	}
	for line, waits := range map[string]bool{
		"native 1 9 0 lock.acquire held you px 1000 wait 500":                       true,
		"native 1 0 0 lock.acquire held you px 1000":                                true,
		"native 1 9 0 lock.acquire held you session 7 shared wait 0":                true,
		"native 1 9 0 lock.acquire held you px 1000 wait 500 notify":                false,
		"native 1 9 0 lock.acquire held me px 1000 wait 500":                        false,
		"native 1 9 0 lock.acquire free you px 1000 wait 500":                       false,
		"native 1 9 0 lock.acquire string you px 1000 wait 500":                     false,
		"native 1 9 0 lock.acquire short you px 1000 wait 500":                      false,
		"native 1 9 0 lock.acquire held you px 1000 wait 500 delay 20":              true,
		"native 1 9 0 lock.acquire held you px 1000 wait 500 delay 86400001":        false,
		"native 1 9 0 lock.acquire held you px 1000 wait":                           false,
		"native 1 9 0 lock.acquire held":                                            false,
		"native 1 9 0 lock.acquire shared you px 1000 wait 500":                     true,
		"native 1 9 0 lock.acquire shared you px 1000 shared wait 500":              false,
		"native 1 9 0 lock.acquire queue you px 1000 shared wait 500":               true,
		"native 1 9 0 lock.acquire queue writer px 1000 wait 500":                   false,
		"native 1 9 0 lock.acquire permits you px 1000 limit 3 wait 0":              false,
		"native 1 9 0 lock.acquire permits you px 1000 limit 3 permits 2 wait 0":    true,
		"native 1 9 0 lock.acquireall 2 free held you px 1000 wait 500":             true,
		"native 1 9 0 lock.acquireall 2 free other you px 1000 wait 500":            false,
		"native 1 9 0 lock.release held me":                                         false,
		"native 1 9 0 lock.renew held you px 5":                                     false,
		"native 1 9 0 get held":                                                     false,
		"native 1 9 0":                                                              false,
		"block 9 blpop none 0":                                                      true,
		"block 9 blpop none list 0":                                                 false,
		"block 9 blpop held 0":                                                      false,
		"block 9 blmove none list left right 0":                                     true,
		"block 9 blmove list none left right 0":                                     false,
		"block 9 brpoplpush none list 0":                                            true,
		"block 9 blmpop 0 2 none neither left":                                      true,
		"block 9 bzmpop 0 2 none list min":                                          false,
		"block 9 bzpopmin none neither 0":                                           true,
		"block 9 blmpop 0 7 none left":                                              false,
		"block 9 blpop none":                                                        false,
		"block 9 get none":                                                          false,
		"block 9":                                                                   false,
		"get none":                                                                  false,
		"exec native 1 9 0 lock.acquire held you px 1000 wait 500":                  false,
		"native 1 9 0 lock.acquire held you px 1 note " + strings.Repeat("x", 5000): false,
	} {
		body := request(nil, 0, strings.Fields(line)...)
		require.Equal(t, waits, IsPatient(body) && d.m.WouldWait(string(body), d.nowMillis+20), line)
		require.False(t, IsPatient(append(body, body...)), "%s, twice", line)
		for n := range body {
			require.False(t, IsPatient(body[:n]), "%s, %d bytes of it", line, n)
		}
	}
	late := "native 1 9 0 lock.acquire held you px 1000 wait 500"
	require.False(t, d.m.WouldWait(string(request(nil, 0, strings.Fields(late)...)), d.nowMillis+60_001),
		"the lease has ended")
	require.False(t, IsPatient(nil))
	require.False(t, d.m.WouldWait("", d.nowMillis))
}
