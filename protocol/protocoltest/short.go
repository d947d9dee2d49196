package protocoltest

import "testing"

// SkipShort skips a test under -short, by which `make quick` answers in a minute and a half. Seconds that other tests
// of the package spend on the same promise are a reason, and so is a process.
func SkipShort(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: " + reason)
	}
}
