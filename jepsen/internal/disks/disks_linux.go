package disks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"

	"github.com/holdfast/holdfast/jepsen/internal/network"
)

// imageSize is a disk's size in bytes. The file is sparse.
const imageSize = 4 << 30

// Disks are mounted at dir/<member>, with their image files beside the mount points.
type Disks struct{ dir string }

// Open creates a disk for each member below a folder.
func Open(dir string, members []string) (*Disks, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("no disks to cut the power of: not root")
	}
	if !network.Inside() {
		return nil,
			errors.New("no disks to cut the power of: not in a mount namespace of its own, which comes with the kernel net")
	}
	d := &Disks{dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder for disks: %w", err)
	}
	// "ip netns exec" gives each node a mount namespace; shared mounts propagate to it.
	if err := do("mount", "--bind", dir, dir); err != nil {
		return nil, err
	}
	if err := do("mount", "--make-shared", dir); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	for _, m := range members {
		if err := d.make(m); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

func (d *Disks) make(member string) error {
	if err := os.Mkdir(d.mount(member), 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	f, err := os.Create(d.image(member))
	if err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	if err := errors.Join(f.Truncate(imageSize), f.Close()); err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	if err := do("mkfs.ext4", "-q", "-F", "-E", "nodiscard", d.image(member)); err != nil {
		return err
	}
	return d.attach(member)
}

// attach mounts a disk without barriers: the device keeps what was written, and a flush would only wait for the
// machine's own disk.
func (d *Disks) attach(member string) error {
	return do("mount", "-t", "ext4", "-o", "loop,barrier=0", d.image(member), d.mount(member))
}

func (d *Disks) mount(member string) string { return filepath.Join(d.dir, member) }
func (d *Disks) image(member string) string { return filepath.Join(d.dir, member+".img") }

// Dir is a member's data folder.
func (d *Disks) Dir(member string) string { return filepath.Join(d.mount(member), "data") }

// ioctlShutdown is EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32).
const ioctlShutdown = 0x8004587d

// noLogFlush leaves the journal unflushed.
const noLogFlush = 2

// Cut cuts the power of a disk: data that is not on the disk yet is lost. Processes that use the disk get errors.
func (d *Disks) Cut(member string) error {
	f, err := os.Open(d.mount(member))
	if err != nil {
		return fmt.Errorf("cut power: %w", err)
	}
	defer f.Close()
	how := uint32(noLogFlush)
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), ioctlShutdown, uintptr(unsafe.Pointer(&how))); e != 0 {
		return fmt.Errorf("cut power of %s: %w", member, e)
	}
	return nil
}

// Restore mounts a disk again and replays its journal. Requires: no process uses the disk.
func (d *Disks) Restore(member string) error {
	if err := do("umount", d.mount(member)); err != nil {
		return err
	}
	return d.attach(member)
}

// Close unmounts all disks. Requires: no process uses them. The images remain.
func (d *Disks) Close() error { return do("umount", "-R", d.dir) }

func do(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", program, args, err, out)
	}
	return nil
}
