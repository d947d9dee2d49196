package frontend

// replyMode is what CLIENT REPLY chose.
type replyMode struct {
	off, skip, skipNext bool
}

func (r *replyMode) muted() bool { return r.off || r.skip }

// endCommand makes what CLIENT REPLY SKIP said hold for the command that follows it, and no longer.
func (c *conn) endCommand() { c.replyMode.skip, c.replyMode.skipNext = c.replyMode.skipNext, false }
