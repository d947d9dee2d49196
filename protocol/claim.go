package protocol

// SetNXKey returns the key of a body, as [AppendRequest] wrote the body, that is one command SETNX,
// or SET with a word NX behind the value: a command that wants a key only if the key is free. SET's
// options are not parsed, so NX may be another option's operand. For any other body ok is false.
// The key shares memory with body.
func SetNXKey(body []byte) (db int, key []byte, ok bool) {
	c := cutter{rest: body}
	database, words := c.database(), c.number()
	name := c.word()
	takes := string(name) == "setnx"
	if c.failed || !takes && string(name) != "set" || database >= MaxDatabases {
		return 0, nil, false
	}
	for i := uint64(1); i < words && !c.failed; i++ {
		word := c.word()
		if i == 1 {
			key = word
		}
		takes = takes || i > 2 && len(word) == 2 && word[0]|0x20 == 'n' && word[1]|0x20 == 'x'
	}
	if !takes || c.failed || len(c.rest) > 0 || key == nil {
		return 0, nil, false
	}
	return int(database), key, true
}

// MayWait reports whether body is a single request that may wait: "block", or "native" with a request for locks.
func MayWait(body []byte) bool {
	c := cutter{rest: body}
	database, words := c.database(), c.number()
	name, n := c.word(), uint64(1)
	if string(name) == "native" {
		for ; n <= 4 && !c.failed; n++ { // the caller, and the name of the word
			name = c.word()
		}
		if string(name) != "lock.acquire" && string(name) != "lock.acquireall" {
			return false
		}
	} else if string(name) != "block" {
		return false
	}
	for ; n < words && !c.failed; n++ {
		c.word()
	}
	return !c.failed && len(c.rest) == 0 && database < MaxDatabases
}

// cutter takes numbers and words from the front of bytes.
type cutter struct {
	rest   []byte
	failed bool
}

func (c *cutter) number() uint64 {
	n, rest, ok := uvarint(c.rest)
	c.rest, c.failed = rest, c.failed || !ok
	return n
}

// database takes what a request has before its words.
func (c *cutter) database() uint64 {
	db := c.number()
	if db == ofUser {
		_, _, rest, ok := cutQuota(c.rest)
		c.rest, c.failed = rest, c.failed || !ok
		db = c.number()
	}
	if db >= 4*MaxDatabases {
		return db
	}
	if db&fromConn != 0 {
		c.number()
	}
	if db&withRights != 0 {
		c.word()
	}
	return db % MaxDatabases
}

func (c *cutter) word() []byte {
	word, rest, ok := str(c.rest)
	c.rest, c.failed = rest, c.failed || !ok
	return word
}
