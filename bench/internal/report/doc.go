// Package report turns runs into a file of figures and a table that people read. It
// promises that every figure of a table is a median over rounds, that ratios are taken
// round by round before their median is, and that errors are never left out.
//
// Start reading at [Result].
package report
