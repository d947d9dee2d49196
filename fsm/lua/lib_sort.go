package lua

// sorter is the state of table.sort. It is the quicksort of Lua 5.1, so the results are those of Redis for equal
// elements and inconsistent comparison functions, too.
type sorter struct {
	l    *state
	t    *table
	less value // the comparison function, or nil for the operator <
}

func tableSort(l *state, args []value) (int, *raised) {
	t, err := l.checkTable(args, 1)
	if err != nil {
		return 0, err
	}
	n := t.length(l)
	if !arg(args, 2).isNil() {
		if err := l.checkFunction(args, 2); err != nil {
			return 0, err
		}
	}
	s := sorter{l: l, t: t, less: arg(args, 2)}
	return 0, s.sort(1, n)
}

func (s *sorter) get(i int) value { return s.t.getInt(s.l, i) }

// put stores two elements.
func (s *sorter) put(i int, v value, j int, w value) *raised {
	if err := s.l.rawSetInt(s.t, i, v); err != nil {
		return err
	}
	return s.l.rawSetInt(s.t, j, w)
}

func (s *sorter) isLess(a, b value) (bool, *raised) {
	s.l.charge(1)
	if s.less.isNil() {
		return s.l.less(a, b)
	}
	v, err := s.l.visit(s.less, a, b)
	return !v.falsy(), err
}

// order swaps the elements i and j if the second is less than the first.
func (s *sorter) order(i, j int) *raised {
	a, b := s.get(i), s.get(j)
	isLess, err := s.isLess(b, a)
	if err != nil || !isLess {
		return err
	}
	return s.put(i, b, j, a)
}

// sort sorts the elements from low to up. It recurses into the smaller half, up to 32 levels deep.
func (s *sorter) sort(low, up int) *raised {
	for low < up {
		if err := s.order(low, up); err != nil {
			return err
		}
		if up-low == 1 {
			return nil
		}
		middle := int(uint(low+up) / 2)
		if err := s.medianOfThree(low, middle, up); err != nil {
			return err
		}
		if up-low == 2 {
			return nil
		}
		pivot := s.get(middle)
		if err := s.put(middle, s.get(up-1), up-1, pivot); err != nil {
			return err
		}
		i, err := s.partition(low, up, pivot)
		if err != nil {
			return err
		}
		from, to := i+1, up
		if i-low < up-i {
			from, to, low = low, i-1, i+1
		} else {
			up = i - 1
		}
		if err := s.sort(from, to); err != nil {
			return err
		}
	}
	return nil
}

// medianOfThree orders the elements low, middle and up.
//
// Requires: low and up are in order.
func (s *sorter) medianOfThree(low, middle, up int) *raised {
	a, b := s.get(middle), s.get(low)
	isLess, err := s.isLess(a, b)
	if err != nil {
		return err
	}
	if isLess {
		return s.put(middle, b, low, a)
	}
	b = s.get(up)
	if isLess, err = s.isLess(b, a); err != nil || !isLess {
		return err
	}
	return s.put(middle, b, up, a)
}

// partition moves the elements less than the pivot before it, and returns the new index of the pivot.
//
// Requires: the pivot is the element up-1.
func (s *sorter) partition(low, up int, pivot value) (int, *raised) {
	i, j := low, up-1
	for {
		i++
		a := s.get(i)
		for {
			isLess, err := s.isLess(a, pivot)
			if err != nil {
				return 0, err
			}
			if !isLess {
				break
			}
			if i > up {
				return 0, s.l.fail("invalid order function for sorting")
			}
			i++
			a = s.get(i)
		}
		j--
		b := s.get(j)
		for {
			isLess, err := s.isLess(pivot, b)
			if err != nil {
				return 0, err
			}
			if !isLess {
				break
			}
			if j < low {
				return 0, s.l.fail("invalid order function for sorting")
			}
			j--
			b = s.get(j)
		}
		if j < i {
			break
		}
		if err := s.put(i, b, j, a); err != nil {
			return 0, err
		}
	}
	return i, s.put(up-1, s.get(i), i, s.get(up-1))
}
