package protocol

import "encoding/binary"

// Quota is what a user may have in the state. A limit of 0 is none. The quota travels with each request of the user, so
// that all nodes judge alike, whatever their files say. A user without a quota has none in the log either.
//
// In front of the request stand:
//
//	uvarint 64
//	bytes   user
//	uvarint keys, bytes, waiters
type Quota struct {
	User string
	// Keys and Bytes are for the keys that the user created, Waiters for requests that wait for keys and locks.
	Keys, Bytes, Waiters uint64
}

// MaxQuotaUser is the longest name of a user with a quota, in bytes.
const MaxQuotaUser = 256

// ofUser stands where a request has its database, and says that a quota stands before it.
const ofUser = 4 * MaxDatabases

// AppendQuota appends the quota of the request that is appended next. Requires: the cluster has version 6.
func AppendQuota(body []byte, q *Quota) []byte {
	body = appendString(append(body, ofUser), q.User)
	body = binary.AppendUvarint(body, q.Keys)
	body = binary.AppendUvarint(body, q.Bytes)
	return binary.AppendUvarint(body, q.Waiters)
}

// cutQuota takes a quota from the front of a body, behind ofUser: the user, and the limits in order.
func cutQuota[T string | []byte](body T) (user T, limits [3]uint64, rest T, ok bool) {
	if user, rest, ok = str(body); !ok || len(user) == 0 || len(user) > MaxQuotaUser {
		return user, limits, rest, false
	}
	for i := range limits {
		if limits[i], rest, ok = uvarint(rest); !ok {
			return user, limits, rest, false
		}
	}
	return user, limits, rest, true
}
