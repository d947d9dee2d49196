package collection

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/fsm/keyspace"
)

// hashModel is a hash as plainly as can be: the fields in the order in which they came.
type hashModel struct {
	names  []string
	values map[string]string
	large  bool
}

func (m *hashModel) put(name, value string) bool {
	_, there := m.values[name]
	if !there {
		m.names = append(m.names, name)
	}
	m.values[name] = value
	m.large = m.large || len(m.names) > 128 || len(name) > 64 || len(value) > 64
	return !there
}

func (m *hashModel) remove(name string) bool {
	_, there := m.values[name]
	delete(m.values, name)
	m.names = slices.DeleteFunc(m.names, func(n string) bool { return n == name })
	return there
}

func (m *hashModel) copy() *hashModel {
	c := &hashModel{names: slices.Clone(m.names), values: map[string]string{}, large: m.large}
	for name, value := range m.values {
		c.values[name] = value
	}
	return c
}

// checkHash compares a hash with the model by all that a hash tells.
func checkHash(t *testing.T, m *hashModel, h *Hash) {
	t.Helper()
	require.Equal(t, len(m.names), h.Len())
	require.Equal(t, m.large, h.Encoding() == "hashtable")
	names := slices.Clone(m.names)
	if m.large {
		slices.SortFunc(names, func(a, b string) int {
			return strings.Compare(fmt.Sprintf("%016x%s", orderOf(a), a), fmt.Sprintf("%016x%s", orderOf(b), b))
		})
	}
	i := 0
	h.All(func(name, value string) bool {
		require.Equal(t, names[i], name)
		require.Equal(t, m.values[name], value)
		atName, atValue := h.At(i)
		require.Equal(t, name, atName)
		require.Equal(t, value, atValue)
		got, ok := h.Get(name)
		require.True(t, ok)
		require.Equal(t, value, got)
		i++
		return true
	})
	require.Equal(t, len(names), i)
	checkLoads(t, h)
}

// checkLoads checks that what a collection saves makes the same collection.
func checkLoads(t *testing.T, c keyspace.Collection) {
	t.Helper()
	words := saved(c)
	require.Len(t, words, c.SavedWords())
	if c.Len() == 0 {
		return
	}
	loaded, err := load(c.Kind(), words)
	require.NoError(t, err)
	require.Equal(t, words, saved(loaded))
	require.Equal(t, c.Len(), loaded.Len())
	require.Equal(t, c.Bytes(), loaded.Bytes())
	require.Equal(t, c.Encoding(), loaded.Encoding())
}

func saved(c keyspace.Collection) (words []string) {
	c.Save(func(word string) bool {
		words = append(words, strings.Clone(word))
		return true
	})
	return words
}

func load(kind keyspace.Kind, words []string) (keyspace.Collection, error) {
	return Load(kind, len(words), func() (string, error) {
		word := words[0]
		words = words[1:]
		return word, nil
	})
}

// TestHashModel runs random changes on a hash and on the model. Clones that were taken on the way stay
// as they were.
func TestHashModel(t *testing.T) {
	t.Parallel()
	for seed := range int64(40) {
		rng := rand.New(rand.NewSource(seed))
		h, m := NewHash(), &hashModel{values: map[string]string{}}
		space := []int{3, 140, 140, 2000}[seed%4]
		longest := []int{10, 10, 66, 10}[seed%4]
		var clones []*Hash
		var models []*hashModel
		for i := range 1500 {
			name := strconv.Itoa(rng.Intn(space))
			switch rng.Intn(5) {
			case 0:
				require.Equal(t, m.remove(name), h.Remove(name))
			case 1:
				value, ok := h.Get(name)
				want, there := m.values[name]
				require.Equal(t, there, ok)
				require.Equal(t, want, value)
			default:
				value := strings.Repeat("v", rng.Intn(longest))
				require.Equal(t, m.put(name, value), h.Put(name, value))
			}
			if i%300 == 0 {
				clones, models = append(clones, h), append(models, m.copy())
				h = h.Clone().(*Hash)
			}
		}
		checkHash(t, m, h)
		for i := range clones {
			checkHash(t, models[i], clones[i])
		}
	}
}

// setModel is a set as plainly as can be.
type setModel struct {
	names []string // in the order in which they came
	form  string
}

func (m *setModel) add(name string) bool {
	if slices.Contains(m.names, name) {
		return false
	}
	m.names = append(m.names, name)
	n, err := strconv.ParseInt(name, 10, 64)
	integer := err == nil && strconv.FormatInt(n, 10) == name
	fits := len(m.names) <= 128 && len(name) <= 64
	switch {
	case m.form == "intset" && integer && len(m.names) <= 512, m.form == "listpack" && fits, m.form == "hashtable":
	case m.form == "intset" && !integer && fits:
		m.form = "listpack"
		slices.SortFunc(m.names[:len(m.names)-1], compareNumbers)
	default:
		m.form = "hashtable"
	}
	return true
}

func compareNumbers(a, b string) int {
	x, _ := strconv.ParseInt(a, 10, 64)
	y, _ := strconv.ParseInt(b, 10, 64)
	return int(max(-1, min(1, x-y)))
}

func (m *setModel) remove(name string) bool {
	before := len(m.names)
	m.names = slices.DeleteFunc(m.names, func(n string) bool { return n == name })
	return len(m.names) < before
}

func checkSet(t *testing.T, m *setModel, s *Set) {
	t.Helper()
	require.Equal(t, m.form, s.Encoding())
	require.Equal(t, len(m.names), s.Len())
	names := slices.Clone(m.names)
	switch m.form {
	case "intset":
		slices.SortFunc(names, compareNumbers)
	case "hashtable":
		slices.SortFunc(names, func(a, b string) int {
			return strings.Compare(fmt.Sprintf("%016x%s", orderOf(a), a), fmt.Sprintf("%016x%s", orderOf(b), b))
		})
	}
	i := 0
	s.All(func(name string) bool {
		require.Equal(t, names[i], name)
		require.Equal(t, name, s.At(i))
		require.True(t, s.Has(name))
		i++
		return true
	})
	require.Equal(t, len(names), i)
	checkLoads(t, s)
}

func TestSetModel(t *testing.T) {
	t.Parallel()
	for seed := range int64(40) {
		rng := rand.New(rand.NewSource(seed))
		s, m := NewSet("1", 1), &setModel{form: "intset"}
		if seed%8 == 7 {
			s, m = NewSet("x", 1), &setModel{form: "listpack"}
		}
		space := []int{3, 140, 700, 2000}[seed%4]
		var clones []*Set
		var models []*setModel
		for i := range 1500 {
			name := strconv.Itoa(rng.Intn(space) - space/2)
			switch rng.Intn(1200) {
			case 0:
				name = "x"
			case 1:
				name = strings.Repeat("x", 60+rng.Intn(10))
			}
			switch rng.Intn(5) {
			case 0:
				require.Equal(t, m.remove(name), s.Remove(name))
			case 1:
				require.Equal(t, slices.Contains(m.names, name), s.Has(name))
			default:
				require.Equal(t, m.add(name), s.Add(name))
			}
			if i%300 == 0 {
				clones, models = append(clones, s), append(models, &setModel{slices.Clone(m.names), m.form})
				s = s.Clone().(*Set)
			}
		}
		checkSet(t, m, s)
		for i := range clones {
			checkSet(t, models[i], clones[i])
		}
	}
}
