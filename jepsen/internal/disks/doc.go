// Package disks gives each node a disk whose power can be cut.
//
// A disk is an image file behind a loop device with an ext4 file system. [Disks.Cut] shuts the file system down with
// EXT4_IOC_SHUTDOWN, without flushing the journal: everything that the kernel has not yet written to the device is
// lost, including renames and new files. [Disks.Restore] mounts the disk again and replays the journal.
//
// The model: the page cache of one machine is lost as a whole, at one instant. Not in the model: a disk that loses or
// reorders written data (its own cache), and torn sectors. Copying the image instead would take time, in which the
// kernel keeps writing.
//
// The package needs root, Linux, ext4, loop devices, and a mount namespace of its own; [Open] reports what is missing.
// Start reading at [Open].
package disks
