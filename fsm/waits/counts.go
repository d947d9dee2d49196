package waits

// Counts are numbers of waiters by account. There is nothing at 0, and nothing before the first waiter of an account.
type Counts []int

// Add adds n waiters to an account.
func (c *Counts) Add(account, n int) {
	if account == 0 {
		return
	}
	if account >= len(*c) {
		*c = append(*c, make([]int, account+1-len(*c))...)
	}
	(*c)[account] += n
}

// Of is the number of waiters of an account.
func (c Counts) Of(account int) int {
	if account >= len(c) {
		return 0
	}
	return c[account]
}

// Equal reports whether all accounts have as many waiters in d.
func (c Counts) Equal(d Counts) bool {
	for account := range max(len(c), len(d)) {
		if c.Of(account) != d.Of(account) {
			return false
		}
	}
	return true
}
