// Package schedule decides what is broken when.
//
// It promises: the same seed and the same [Options] give the same schedule, on every machine. What a
// schedule cannot know (which node leads when a fault strikes) is written as a role
// and found out then; everything else, down to which node is whose neighbour in a ring, is drawn here.
//
// A schedule breaks nothing, and knows no fault: package nemesis has the table of faults. Start
// reading at [Generate].
package schedule
