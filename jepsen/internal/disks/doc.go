// Package disks gives each node a disk of its own, whose power can be cut.
//
// A disk is an image file behind a loop device with an ext4 file system on it. [Disks.Cut] ends the
// file system at once by EXT4_IOC_SHUTDOWN without flushing the journal: whatever the kernel had
// not yet written to the device is lost, renames and new files too, and nothing gets there any
// more. [Disks.Restore] mounts the disk again, which replays the journal.
//
// The model: the page cache of one machine is lost as a whole, at one instant. Not in the model: a
// disk that loses or reorders what was written, with or without a flush (the disk's own cache), and
// torn sectors. A copy of the image would show the same, but take time in which the kernel goes on
// writing.
//
// The package needs root, Linux, ext4, loop devices, and a mount namespace of its own. [Open] says
// what is missing. Start reading at [Open].
package disks
