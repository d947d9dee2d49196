package collection

// Set replaces element i by v. Requires: 0 <= i < Len.
func (l *List) Set(i int, v string) {
	l.count(v)
	l.rewrite(i, i, func(_ int, old string, emit func(string)) {
		l.discount(old)
		emit(v)
	})
	l.shorten()
}

// Insert inserts v before element i. Requires: 0 <= i < Len.
func (l *List) Insert(i int, v string) {
	l.count(v)
	l.rewrite(i, i, func(_ int, old string, emit func(string)) {
		emit(v)
		emit(old)
	})
}

// RemoveAll removes the elements at the indexes, which are in ascending order.
func (l *List) RemoveAll(indexes []int) {
	if len(indexes) == 0 {
		return
	}
	next := 0
	l.rewrite(indexes[0], indexes[len(indexes)-1], func(i int, old string, emit func(string)) {
		if next < len(indexes) && indexes[next] == i {
			next++
			l.discount(old)
			return
		}
		emit(old)
	})
	l.shorten()
}

// edit is called with each element of a range, in order. It emits the elements that replace it.
type edit func(i int, old string, emit func(v string))

// rewrite edits the elements from index low to high.
//
// That changes the positions of elements in the middle. The runs on one side keep theirs, and those on the other side,
// where there are fewer, are stored again.
func (l *List) rewrite(low, high int, f edit) {
	frontEnd := int(l.front.count)
	middleEnd := frontEnd + l.inMiddle
	var frontRuns, backRuns []run
	if low < frontEnd {
		frontRuns = edited(string(l.front.run()), low, min(high, frontEnd-1), 0, f)
	}
	if l.inMiddle > 0 && low < middleEnd && high >= frontEnd {
		l.rewriteMiddle(max(low-frontEnd, 0), min(high, middleEnd-1)-frontEnd, frontEnd, f)
	}
	if high >= middleEnd {
		backRuns = edited(string(l.back.run()), max(low-middleEnd, 0), high-middleEnd, middleEnd, f)
	}
	if low < frontEnd {
		l.front = buffer{}
		l.putRuns(frontRuns, &l.front, l.addBefore, true)
	}
	if high >= middleEnd {
		l.back = buffer{}
		l.putRuns(backRuns, &l.back, l.addBehind, false)
	}
}

// putRuns stores the edited elements of an emptied end: in the buffer if they are one run.
func (l *List) putRuns(runs []run, end *buffer, add func(data string, count int), backwards bool) {
	if len(runs) == 1 && len(runs[0].data) <= maxRun {
		end.fill(runs[0].data, runs[0].count)
		return
	}
	for i := range runs {
		r := &runs[i]
		if backwards {
			r = &runs[len(runs)-1-i]
		}
		add(r.data, r.count)
	}
}

// rewriteMiddle edits the elements of the middle from low to high. base is the index of the first.
func (l *List) rewriteMiddle(low, high, base int, f edit) {
	lowRun, lowIn := l.find(low)
	highRun, highIn := l.find(high)
	lowest, _ := l.middle.Min()
	index := int(lowRun.at-lowest.at) + base
	old, changed, delta := l.editRuns(lowRun, highRun, func(r run, emitted func(run)) {
		first, last := 0, r.count-1
		if r.at == lowRun.at {
			first = lowIn
		}
		if r.at == highRun.at {
			last = highIn
		}
		for _, e := range edited(r.data, first, last, index, f) {
			emitted(e)
		}
		index += r.count
	})
	end := highRun.at + int64(highRun.count)
	var shifted []run // they come behind changed, or before if towards the front
	front := lowRun.at-lowest.at < lowest.at+int64(l.inMiddle)-end
	switch {
	case delta == 0:
	case front:
		l.middle.Ascend(lowest, func(r run) bool {
			if r.at >= lowRun.at {
				return false
			}
			shifted = append(shifted, r)
			return true
		})
	default:
		l.middle.Ascend(run{at: end}, func(r run) bool {
			shifted = append(shifted, r)
			return true
		})
	}
	for i := range old {
		l.middle.Delete(old[i])
	}
	at := lowRun.at
	if front {
		at -= int64(delta)
		l.shift(shifted, -delta)
	} else {
		l.shift(shifted, delta)
	}
	l.setRuns(at, changed)
	l.leaves(-delta)
}

// editRuns returns the runs from low to high, the runs that replace them, and the growth in elements. f passes the
// pieces of each run.
func (l *List) editRuns(low, high run, f func(r run, emitted func(run))) (old, changed []run, delta int) {
	l.middle.Ascend(low, func(r run) bool {
		if r.at > high.at {
			return false
		}
		old = append(old, r)
		delta -= r.count
		f(r, func(e run) {
			delta += e.count
			if last := len(changed) - 1; last >= 0 && len(changed[last].data)+len(e.data) <= maxRun/2 {
				changed[last].data += e.data
				changed[last].count += e.count
				return
			}
			changed = append(changed, e)
		})
		return true
	})
	return old, changed, delta
}

// shift moves runs, which are all on one side of the change, by this number of positions.
func (l *List) shift(runs []run, by int) {
	if by == 0 {
		return
	}
	for i := range runs {
		l.middle.Delete(runs[i])
	}
	for _, r := range runs {
		r.at += int64(by)
		l.middle.Set(r)
	}
}

// setRuns stores runs one after the other, the first at the position at.
func (l *List) setRuns(at int64, runs []run) {
	for _, r := range runs {
		r.at = at
		l.middle.Set(r)
		at += int64(r.count)
	}
}

// edited edits the elements of a run from low to high, and returns the runs that replace it. base is the index of the
// run's first element.
func edited(data string, low, high, base int, f edit) (runs []run) {
	var out []byte
	k := 0
	emit := func(v string) { out = appendElement(out, v) }
	ascend(data, 0, func(v string) bool {
		if k < low || k > high {
			emit(v)
		} else {
			f(base+k, v, emit)
		}
		k++
		return true
	})
	return split(string(out))
}

// split splits a run that may be too long into pieces of similar length. An element that is too long is alone.
func split(data string) (runs []run) {
	half := len(data)
	if len(data) > maxRun {
		half = len(data) / 2
	}
	begin, at, count := 0, 0, 0
	flush := func() {
		if at > begin {
			runs = append(runs, run{count: count, data: data[begin:at]})
		}
		begin, count = at, 0
	}
	for at < len(data) {
		from, to := first(data[at:])
		if at > begin && (at-begin >= half || at-begin+to+from > maxRun) {
			flush()
		}
		at += to + from
		count++
	}
	flush()
	return runs
}
