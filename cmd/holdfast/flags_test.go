package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast/holdfast/server"
)

// TestFlagIsItsField: a flag has the name of the one field that it sets, so that a search for either finds all uses.
func TestFlagIsItsField(t *testing.T) {
	var c server.Config
	fields := make(map[any]string) // names by address
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Struct {
				walk(v.Field(i))
				continue
			}
			fields[v.Field(i).Addr().Interface()] = v.Type().Field(i).Name
		}
	}
	walk(reflect.ValueOf(&c).Elem())
	rows := 0
	for _, o := range options(&c) {
		if o.heading == "" {
			require.True(t, strings.EqualFold(strings.ReplaceAll(o.name, "-", ""), fields[o.value]), "--%s sets %s", o.name,
				fields[o.value])
			rows++
		}
	}
	require.Greater(t, rows, 40)
}

// TestConfigSetNamesFlags: the flags that errors of CONFIG SET name are there.
func TestConfigSetNamesFlags(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "server", "frontend", "settings.go"))
	require.NoError(t, err)
	pairs := regexp.MustCompile(`(?m)^\t"[a-z-]+": +"([a-z-]+)",$`).FindAllStringSubmatch(string(source), -1)
	require.NotEmpty(t, pairs)
	flags := make(map[string]bool)
	c := server.DefaultConfig()
	for _, o := range options(&c) {
		flags[o.name] = true
	}
	for _, pair := range pairs {
		require.True(t, flags[pair[1]], "no flag --%s", pair[1])
	}
}

// TestFlagsCanBeSet: the value of every row is of a type that flags have.
func TestFlagsCanBeSet(t *testing.T) {
	c, client := server.DefaultConfig(), newClientFlags()
	lists := [][]option{
		options(&c), client.lockRows(), newLockOwn().rows(), newLocksOwn().rows(), newClusterOwn().rows(),
		newImportOwn().rows(),
		(&backupOwn{}).rows(), (&inspectOwn{}).rows(), newRestoreOwn().rows(), newRecoverOwn().rows(),
	}
	for _, o := range slices.Concat(lists...) {
		if o.heading == "" {
			require.NotPanics(t, func() { _ = newFlagValue(o.value).Set("x") }, "--%s of type %T", o.name, o.value)
		}
	}
	r := newRestoreOwn()
	for _, o := range r.rows() {
		if o.name == "fences-above" {
			require.NoError(t, newFlagValue(o.value).Set("5"))
		}
	}
	require.EqualValues(t, 5, r.fencesAbove)
}
