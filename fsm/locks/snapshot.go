package locks

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfast/holdfast/fsm/keyspace"
	"github.com/holdfast/holdfast/fsm/waits"
	"github.com/holdfast/holdfast/protocol"
)

// Writer writes the values of a snapshot. It is an interface, because the caller defines the format of the stream.
type Writer interface {
	Uint(n uint64)
	Int(n int64)
	String(s string)
}

// Reader reads the values that a Writer wrote. The first error is sticky: later reads return zero values, and Err
// returns the first error. The caller of String may keep the string.
//
// LockText reads the key of a lock in the database with the number db. If a keyspace item marks the lock, LockText
// returns the text of the item. Otherwise it returns a new text.
type Reader interface {
	Uint() uint64
	Int() int64
	String() string
	LockText(db int) keyspace.LockText
	Err() error
}

// The errors of a damaged snapshot.
var (
	errNumbers     = errors.New("a number of the lock table is out of range")
	errIncarnation = errors.New("an incarnation of a node is damaged")
	errSession     = errors.New("a lock session is damaged")
	errFlush       = errors.New("a flush of locks is damaged")
	errNodeEnd     = errors.New("the end of a node's waits for locks is damaged")
	errLock        = errors.New("a lock is damaged")
	errHold        = errors.New("a hold is damaged")
	errWaiter      = errors.New("a waiter for a lock is damaged")
	errStuck       = errors.New("a waiter could be granted, and never would")
)

// codec writes a table to a snapshot, or reads a table from a snapshot. Each kind of record has a method, passFields,
// that works in both directions. "To pass" a value is to write it or to read it.
type codec struct {
	w Writer // nil if the codec reads
	Reader
	t *Table

	// err is the first error of a read. recordErr is the error for a bad value of the current record.
	err, recordErr error
	lastLock       *lock     // in the current list of locks: the lock that was read last, or nil
	waiters        []*waiter // all waiters that were read so far
	key            string    // the key of the current lock, for errors
}

// Save writes the table. Equal tables write the same bytes.
func (t *Table) Save(w Writer) { t.passFields(&codec{w: w, t: t}) }

// Load reads a table. It returns an error if the values do not form a valid table.
func Load(r Reader) (*Table, error) {
	c := &codec{Reader: r, t: New()}
	c.t.passFields(c)
	c.enqueueWaiters()
	c.scheduleLocks()
	if c.err != nil && c.key != "" {
		return nil, fmt.Errorf("%w: %q", c.err, c.key)
	} else if c.err != nil {
		return nil, c.err
	}
	c.t.events = nil
	return c.t, nil
}

// require checks what was read: if met is false, the read fails with recordErr, unless it has failed before. require
// reports whether the read is still without error. If the codec writes, require checks nothing and reports true.
func (c *codec) require(met bool) bool {
	if c.err == nil && c.w == nil {
		if c.err = c.Err(); c.err == nil && !met {
			c.err = c.recordErr
		}
	}
	return c.err == nil
}

// passUint passes a number. A number that is read must not exceed the maximum.
func passUint[T ~uint8 | ~uint32 | ~uint64 | ~int16](c *codec, n *T, maximum uint64) {
	if c.w != nil {
		c.w.Uint(uint64(*n))
		return
	}
	read := c.Uint()
	c.require(read <= maximum)
	*n = T(read)
}

const anyUint = ^uint64(0)

// passInt passes a number. A number that is read must be neither below the minimum nor above the maximum.
func passInt[T ~int32 | ~int64](c *codec, n *T, minimum, maximum int64) {
	if c.w != nil {
		c.w.Int(int64(*n))
		return
	}
	read := c.Int()
	c.require(read >= minimum && read <= maximum)
	*n = T(read)
}

// passFlags passes flags as the bits of one number.
func passFlags(c *codec, flags ...*bool) {
	bits := uint64(0)
	for i, flag := range flags {
		if *flag {
			bits |= 1 << i
		}
	}
	passUint(c, &bits, 1<<len(flags)-1)
	if c.w == nil {
		for i, flag := range flags {
			*flag = bits>>i&1 != 0
		}
	}
}

func passString(c *codec, s *string) {
	if c.w != nil {
		c.w.String(*s)
	} else {
		*s = c.String()
	}
}

// passText passes a text. A text that is read must have at most MaxText bytes.
func passText(c *codec, s *string) {
	passString(c, s)
	c.require(len(*s) <= MaxText)
}

func passIncarnation(c *codec, o *protocol.Incarnation) {
	passString(c, &o.Node)
	passUint(c, &o.Epoch, anyUint)
}

func passClient(c *codec, origin **protocol.Incarnation, conn *int64) {
	var o protocol.Incarnation
	if c.w != nil {
		o = **origin
	}
	passIncarnation(c, &o)
	passInt(c, conn, minInstant, noDeadline)
	if c.w == nil {
		*origin = c.t.internOrigin(o)
	}
}

// passList passes a list of records. To write a list, passList writes the length n, and calls write for each record
// that the iterator (the parameter all) yields. To read a list, passList reads the length, and calls read once for each
// record.
func passList[T any](c *codec, n int, all iter.Seq[T], write func(record T, c *codec), read func()) {
	if passCount(c, n, read); c.w != nil {
		for record := range all {
			write(record, c)
		}
	}
}

// passRecords does the work of passList for a slice, and allocates no memory for an iterator. Each lock has two such
// lists.
func passRecords[T any](c *codec, all []T, write func(record T, c *codec), read func()) {
	passCount(c, len(all), read)
	for _, record := range all {
		write(record, c)
	}
}

// passCount passes the length of a list. A codec that reads then calls read once for each record.
func passCount(c *codec, n int, read func()) {
	count := uint64(n)
	for passUint(c, &count, anyUint); c.w == nil && count > 0 && c.require(true); count-- {
		read()
	}
}

// passSlice passes a list of items. A codec that reads appends the items to the list.
func passSlice[T any](c *codec, list *[]T, pass func(c *codec, item *T)) {
	passRecords(c, *list, func(item T, c *codec) { pass(c, &item) }, func() {
		var item T
		pass(c, &item)
		*list = append(*list, item)
	})
}

// isAscending reports whether each item of a list is greater than the item before it.
func isAscending[T any](list []T, compare func(a, b T) int) bool {
	for i := range len(list) - 1 {
		if compare(list[i], list[i+1]) >= 0 {
			return false
		}
	}
	return true
}

func (t *Table) passFields(c *codec) {
	c.recordErr = errNumbers
	passUint(c, &t.fences, noOrder-1)
	passUint(c, &t.orders, noOrder-1)
	passUint(c, &t.sessionIDs, MaxFence)
	passString(c, &t.secret)
	c.require(len(t.secret) == 0 || len(t.secret) == sha256.Size)
	c.recordErr = errIncarnation
	passSlice(c, &t.incarnations, func(c *codec, n *incarnation) {
		passIncarnation(c, &n.origin)
		passInt(c, &n.lastContact, minInstant, noDeadline)
	})
	c.require(isAscending(t.incarnations, func(a, b incarnation) int { return a.origin.Compare(b.origin) }))
	passList(c, t.sessionsByID.Len(), t.sessionsByID.Scan, (*session).passFields, c.readSession)
	c.recordErr = errIncarnation
	c.require(!slices.ContainsFunc(t.incarnations, func(n incarnation) bool { return n.sessions < 1 }))
	c.recordErr = errNodeEnd
	passSlice(c, (*[]waits.Name)(&t.nodeEnds), func(c *codec, name *waits.Name) {
		passIncarnation(c, &name.Origin)
		passUint(c, &name.Ticket, anyUint)
	})
	c.require(isAscending(t.nodeEnds, func(a, b waits.Name) int { return cmp.Compare(a.Origin.Node, b.Origin.Node) }))
	passList(c, t.LiveLocks(), locksOf(t.liveDatabases), (*lock).passFields, func() { c.readLock(nil) })
	passList(c, len(t.flushedDatabases), slices.Values(t.flushedDatabases), (*database).passFields, c.readFlushed)
}

// enqueueWaiters adds all waiters to their queues. It runs after all locks have been read.
func (c *codec) enqueueWaiters() {
	if !c.require(true) {
		return // the loop below would overwrite c.key, the key of the lock with the error
	}
	t, last := c.t, uint64(0)
	c.recordErr = errWaiter
	slices.SortFunc(c.waiters, func(a, b *waiter) int { return cmp.Compare(a.order, b.order) })
	for _, w := range c.waiters {
		_, taken := t.waitersByName.Get(w)
		if c.key = w.keys()[0]; !c.require(w.order > last && (w.absent || !taken)) {
			return
		}
		last = w.order
		for i, key := range w.keys() {
			l := t.find(int(w.db), key)
			if !c.require(l != nil && l.ext != nil && l.waiters() < MaxWaiters && t.waiterOf(l, w.owner) == nil) {
				return
			}
			w.keys()[i] = l.key()
		}
		c.require(!t.isSessionFull(w.session(), len(w.keys())))
		t.enqueueWaiter(w)
	}
	c.require(t.waitingBytes <= MaxWaitingBytes)
}

// scheduleLocks adds the locks to the agendas, and rejects a table with one of two faults. First, a lock is stored in a
// form that normalize would not leave: with an extension that it does not need, or without hold, waiter, delay and
// pending grant. Second, a lock could be granted to a waiter now, and no later event of the lock or of its sessions can
// grant the lock.
func (c *codec) scheduleLocks() {
	t, n := c.t, c.t.lockCount
	for _, l := range slices.Collect(t.allLocks()) {
		if !c.require(true) {
			return
		}
		c.key = l.key()
		l.idAndFlags &^= flagTouched | flagWoken
		extended := l.ext != nil
		t.normalize(l)
		c.recordErr = errLock
		c.require((l.ext != nil) == extended)
		c.recordErr = errStuck
		hasEvent := l.deadline != noDeadline || t.flushOf(l) != nil
		c.require(l.ext == nil || hasEvent || l.ext.sessionHolds > 0 || t.nextInLine(l) == nil)
	}
	t.touchedLocks, t.wokenLocks, t.lastLookup = nil, nil, lastLookup{}
	c.recordErr = errLock
	c.require(t.lockCount == n)
}
