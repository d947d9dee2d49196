// Package holdfast carries the pages for users and operators, which `holdfast docs` prints.
package holdfast

import "embed"

// Pages has the pages under their paths in the repository.
//
//go:embed README.md CHANGELOG.md .github/SECURITY.md bench/RESULTS.md cmd/holdfast/FLAGS.md
//go:embed cmd/holdfast/packaging/KUBERNETES.md protocol/COMMANDS.md protocol/COMPATIBILITY.md
//go:embed server/LOCKS.md server/METRICS.md server/OPERATING.md
//go:embed server/clients/CONNECT.md server/monitoring/METRICS.md server/operating/*.md server/web/API.md
var Pages embed.FS
