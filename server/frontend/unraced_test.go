//go:build !race

package frontend

const raced = false
