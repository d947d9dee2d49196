package collection

import (
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// checkList compares a list with the model, a slice, by all that a list tells.
func checkList(t *testing.T, want []string, l *List) {
	t.Helper()
	require.Equal(t, len(want), l.Len())
	var stored, packed int64
	for i, v := range want {
		require.Equal(t, v, l.Index(i))
		stored += int64(elementLen(len(v)))
		packed += int64(listpackLen(v))
	}
	require.Equal(t, stored, l.stored)
	require.Equal(t, packed, l.packed)
	for _, i := range []int{0, 1, len(want) / 2, len(want) - 1} {
		if i < 0 || i >= len(want) {
			continue
		}
		var up, down []string
		l.Ascend(i, func(v string) bool { up = append(up, v); return true })
		require.Equal(t, want[i:], up)
		l.Descend(i, func(v string) bool { down = append(down, v); return true })
		slices.Reverse(down)
		require.Equal(t, want[:i+1], down)
		n := 0
		l.Ascend(i, func(string) bool { n++; return n < 3 })
		l.Descend(i, func(string) bool { n++; return false })
		require.Equal(t, min(3, len(want)-i)+1, n)
	}
	l.Ascend(len(want), func(string) bool { t.Fatal("beyond the end"); return true })
	checkLoads(t, l)
	if l.middle != nil {
		checkMiddle(t, l)
	}
}

// checkMiddle checks the places and lengths of the runs.
func checkMiddle(t *testing.T, l *List) {
	t.Helper()
	n := 0
	var end int64
	l.middle.Scan(func(r run) bool {
		if n > 0 {
			require.Equal(t, end, r.at)
		}
		require.Positive(t, r.count)
		require.True(t, r.count == 1 || len(r.data) <= maxRun)
		n += r.count
		end = r.at + int64(r.count)
		return true
	})
	require.Equal(t, l.inMiddle, n)
}

// randomElement is an element of 0 bytes to longer than a run.
func randomElement(rng *rand.Rand, longest int) string {
	v := strconv.Itoa(rng.Intn(300) - 20)
	if rng.Intn(3) == 0 {
		v = strings.Repeat("x", rng.Intn(longest)) + v
	}
	if rng.Intn(100) == 0 {
		v = ""
	}
	return v
}

// listStep makes a random change on a list and on the model.
func listStep(t *testing.T, rng *rand.Rand, l *List, m []string, grows, longest int) []string {
	v := randomElement(rng, longest)
	switch k := rng.Intn(10 + grows); {
	case k == 0 && len(m) > 0:
		i := rng.Intn(len(m))
		l.Set(i, v)
		m[i] = strings.Clone(v)
	case k == 1 && len(m) > 0:
		i := rng.Intn(len(m))
		l.Insert(i, v)
		return slices.Insert(m, i, v)
	case k == 2 && len(m) > 0 && rng.Intn(3) == 0:
		var out []int
		for i := range m {
			if rng.Intn(5) == 0 || m[i] == v {
				out = append(out, i)
			}
		}
		if rng.Intn(2) == 0 {
			out = out[:min(1, len(out))]
		}
		l.RemoveAll(out)
		for _, i := range slices.Backward(out) {
			m = slices.Delete(m, i, i+1)
		}
	case k == 3 && rng.Intn(30) == 0:
		from := rng.Intn(len(m)/4 + 1)
		to := from + rng.Intn(len(m)-from+1)
		l.Trim(from, to)
		return m[from:to]
	case k <= 5 && len(m) > 0:
		require.Equal(t, m[0], l.PopFront())
		return m[1:]
	case k <= 7 && len(m) > 0:
		require.Equal(t, m[len(m)-1], l.PopBack())
		return m[:len(m)-1]
	case k%2 == 0:
		l.PushBack(v)
		return append(m, v)
	default:
		l.PushFront(v)
		return slices.Insert(m, 0, v)
	}
	return m
}

// TestListModel runs random changes on a list and on a slice. Clones that were taken on the way stay as
// they were, whichever of the two lists goes on.
func TestListModel(t *testing.T) {
	t.Parallel()
	for seed := range int64(24) {
		rng := rand.New(rand.NewSource(seed))
		l, m := NewList(), []string(nil)
		grows := []int{0, 6, 12}[seed%3]
		longest := []int{10, 300, 3000}[seed/3%3]
		var clones []*List
		var models [][]string
		for i := range 1200 {
			m = listStep(t, rng, l, m, grows, longest)
			if i%200 == 0 {
				other := l.Clone().(*List)
				if rng.Intn(2) == 0 {
					l, other = other, l
				}
				clones, models = append(clones, other), append(models, slices.Clone(m))
			}
			if i%100 == 0 {
				checkList(t, m, l)
			}
		}
		checkList(t, m, l)
		for i := range clones {
			checkList(t, models[i], clones[i])
		}
	}
}

// FuzzList takes each byte for a change.
func FuzzList(f *testing.F) {
	f.Add([]byte("\x10\x11\x12\x20\x30"), int64(1))
	f.Fuzz(func(t *testing.T, changes []byte, seed int64) {
		rng := rand.New(rand.NewSource(seed))
		l, m := NewList(), []string(nil)
		for _, b := range changes {
			m = listStep(t, rng, l, m, int(b%16), 1+int(b)*16)
			if b == 0 {
				l = l.Clone().(*List)
			}
		}
		checkList(t, m, l)
	})
}

// A list becomes a quicklist beyond 8 KiB, and a listpack again when 4 KiB are left.
func TestListEncoding(t *testing.T) {
	t.Parallel()
	l := NewList()
	for range 8 {
		l.PushBack(strings.Repeat("x", 1000))
	}
	require.Equal(t, "listpack", l.Encoding())
	l.Expect(8192 - 7 - 8*1004)
	require.Equal(t, "listpack", l.Encoding())
	l.PushBack(strings.Repeat("x", 1000))
	require.Equal(t, "quicklist", l.Encoding())
	for range 4 {
		l.PopFront()
		require.Equal(t, "quicklist", l.Encoding())
	}
	checkLoads(t, l)
	l.RemoveAll([]int{2})
	require.Equal(t, "listpack", l.Encoding())
	for _, v := range []string{"127", "128", "-1", "-4096", "4096", "-32769", "8388608", "2147483648", "01", "", "-"} {
		l.PushFront(v)
		checkLoads(t, l)
	}
}

// The encoding of a list about as long as a listpack can be depends on the order in which the elements came.
// A snapshot does not have the order.
func TestListLoadsAtTheLimit(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("x", maxListpack-listpackHead)
	for name, pushes := range map[string][]string{
		"the longest first":         {full},
		"the longest last in front": {full[:len(full)-2], ""},
		"the longest in front":      {"a", full[3:]},
		"a long integer behind":     {full[20:], "-9223372036854775808"},
	} {
		t.Run(name, func(t *testing.T) {
			front, back := NewList(), NewList()
			for _, v := range pushes {
				front.PushFront(v)
				back.PushBack(v)
			}
			checkLoads(t, front)
			checkLoads(t, back)
		})
	}
	for seed := range int64(50) {
		rng := rand.New(rand.NewSource(seed))
		l, m := NewList(), []string(nil)
		for l.packed < maxListpack-300 {
			m = listStep(t, rng, l, m, 200, 200)
		}
		for range 100 {
			m = listStep(t, rng, l, m, 4, 40)
			checkLoads(t, l)
		}
	}
}

// No order of pushes makes a listpack of so much.
func TestListLoadsNoLongListpack(t *testing.T) {
	t.Parallel()
	_, err := load(keyspace.KindList, []string{"listpack", strings.Repeat("x", maxListpack), "a"})
	require.ErrorContains(t, err, "the elements do not fit the encoding")
	_, err = load(keyspace.KindList, []string{"linkedlist", "a"})
	require.ErrorContains(t, err, "unknown encoding")
}

// TestListpackLen compares with the sizes that Redis's listpack.c gives.
func TestListpackLen(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]int{
		"0": 2, "127": 2, "128": 3, "-1": 3, "4095": 3, "4096": 4, "-4097": 4, "32767": 4, "32768": 5, "8388607": 5,
		"8388608": 6, "-2147483648": 6, "2147483648": 10, "9223372036854775807": 10, "-9223372036854775808": 10,
		"9223372036854775808": 21, "-0": 4, "+1": 4, "": 2, "00": 4, "9x": 4,
		strings.Repeat("x", 63): 65, strings.Repeat("x", 64): 67, strings.Repeat("x", 125): 128, strings.Repeat("x",
			126): 130,
		strings.Repeat("x", 4095): 4099, strings.Repeat("x", 4096): 4103, strings.Repeat("x", 20000): 20008,
	} {
		require.Equal(t, want, listpackLen(v), "%.20q of %d", v, len(v))
	}
}

// A list of a million elements in the tree: changes in the middle, and a clone that stays.
func TestLongList(t *testing.T) {
	t.Parallel()
	const n = 300_000
	l := NewList()
	for i := range n {
		l.PushBack(strconv.Itoa(i))
	}
	kept := l.Clone().(*List)
	l.Insert(n/3, "a")
	l.Insert(2*n/3+1, "b")
	require.Equal(t, "a", l.Index(n/3))
	require.Equal(t, "b", l.Index(2*n/3+1))
	require.Equal(t, strconv.Itoa(n-1), l.Index(n+1))
	l.RemoveAll([]int{n / 3, 2*n/3 + 1})
	for i := 0; i < n; i += 997 {
		require.Equal(t, strconv.Itoa(i), l.Index(i))
		require.Equal(t, strconv.Itoa(i), kept.Index(i))
	}
	checkMiddle(t, l)
	l.Trim(n-10, n-5)
	require.Equal(t, 5, l.Len())
	require.Equal(t, n, kept.Len())
}

var _ keyspace.Collection = (*List)(nil)

// listOf is a list of elements of so many bytes.
func listOf(n, bytes int) *List {
	l := NewList()
	for range n {
		l.PushBack(strings.Repeat("x", bytes))
	}
	return l
}

// scattered is a long list after all elements but every thirtieth were removed.
func scattered(n, bytes int) *List {
	l := listOf(n, bytes)
	var out []int
	for i := range n {
		if i%30 != 0 {
			out = append(out, i)
		}
	}
	l.RemoveAll(out)
	return l
}

// popped is a list that was longer.
func popped(n, left int) *List {
	l := listOf(n, 10)
	for l.Len() > left {
		l.PopBack()
	}
	return l
}
