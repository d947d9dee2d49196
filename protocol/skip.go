package protocol

// BodyLen returns the length of the first n requests of a batch's body. It is the whole length if there
// are no more requests, or if the body is corrupt.
func BodyLen(body []byte, n int) int {
	rest, ok := body, true
	for ; n > 0 && len(rest) > 0; n-- {
		if rest, ok = skipRequest(rest); !ok {
			return len(body)
		}
	}
	return len(body) - len(rest)
}

// skipRequest returns the bytes behind the first request.
func skipRequest(body []byte) (rest []byte, ok bool) {
	db, body, ok := uvarint(body)
	if ok && db == ofUser {
		if _, _, body, ok = cutQuota(body); ok {
			db, body, ok = uvarint(body)
		}
	}
	if ok && db&fromConn != 0 {
		_, body, ok = uvarint(body)
	}
	if ok && db&withRights != 0 {
		_, body, ok = str(body)
	}
	if !ok {
		return nil, false
	}
	words, body, ok := uvarint(body)
	for ; ok && words > 0; words-- {
		_, body, ok = str(body)
	}
	return body, ok
}
