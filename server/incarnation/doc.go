// Package incarnation gives each start of a node a number of its own, and finds data folders that were put back or
// copied: a fencing token for nodes, as locks have one for their holders.
//
// An incarnation is a number of 64 bits. The upper half counts the node's starts, the lower half is random: a folder
// that was put back counts the same starts again, and draws another number. The node's [Lineage] says from which
// incarnations the present one descends. A member remembers the newest incarnation of each other member, on its disk
// and by the sessions in the log.
//
// It promises:
//   - an incarnation is on the node's disk before anything outside the process hears of it;
//   - a node does not vote, lead, acknowledge or serve before its incarnation is proved: as many other voters as make a
//     majority with it, or the leader, have admitted it, and no member that answered in time knows of a newer
//     incarnation or of another branch. The voters are those of the newest configuration that a member which was met
//     knows;
//   - a member that has admitted an incarnation has it on its disk, and admits no earlier one and no other branch from
//     then on; what is still connected of these is cut off;
//   - a node that is refused so, or finds a later incarnation of itself in the log, ends.
//
// So of two processes with the same identity the one that started last goes on, if it descends from the other. What no
// member that answers has seen cannot be told: an old copy of a folder whose later starts only lost members knew, and
// folders of a majority that are put back together.
//
// The idea is the fencing token of a lease (Gray and Cheriton, 1989; Kleppmann, "How to do distributed locking", 2016),
// and the incarnation of a member in SWIM (Das, Gupta and Motivala, 2002).
//
// Package store keeps a lineage in the data folder, package peer carries it in each handshake, package bootstrap proves
// it. A [Registry] starts no goroutine. Its locks are leaves; one of them is held over a write to the
// disk.
package incarnation
