//go:build !race

package resp

const raced = false
