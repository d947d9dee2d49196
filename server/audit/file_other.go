//go:build !unix

package audit

import "os"

const openFlags = 0

func lockFile(*os.File) error { return nil }
