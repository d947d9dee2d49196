package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/importer"
	"github.com/holdfast/holdfast/cmd/internal/operator"
	"github.com/holdfast/holdfast/server"
	"github.com/holdfast/holdfast/server/api"
)

const importUsage = `usage: holdfast import --from redis://HOST:PORT[/DB] [--match PATTERN] [--leases PATTERN] [flags]

Copies keys from a Redis server, which is only read, into the same database of a cluster. A counter never goes back: the
larger number stays. Of other keys none is overwritten, and none ends sooner than at the source. A run that was
interrupted, or that shall follow the source, is repeated: nothing is lost, and nothing is done twice.

A holder that renews its lease on Redis alone does not renew the copy.

Exit status: 0 when all that matches is there; 3 when keys were skipped, which the report names; 1 when it ended early.
`

// importOwn are the flags of `holdfast import`.
type importOwn struct {
	clientFlags
	from          string
	password      server.SecretsConfig // for the source
	sentinel      server.SecretsConfig // for its Sentinels
	fromTLS       clientFlags
	match, leases []string
	raise         int64
	fencesAbove   string
	dryRun        bool
	json          bool
}

func newImportOwn() *importOwn { return &importOwn{clientFlags: newClientFlags()} }

// aboveCounters is the value of --fences-above that means the largest counter.
const aboveCounters = "counters"

// statusSkipped is the exit status if keys were not copied.
const statusSkipped = 3

func (o *importOwn) rows() []option {
	rows := append([]option{
		{heading: importHeading},
		{
			name: "match", value: &o.match,
			help: "pattern of keys, such as 'fence:*': integers without a time to live are counters, and copied if they are " +
				"larger; may be given several times",
		},
		{name: "raise", value: &o.raise, help: "add this to each counter"},
		{
			name: "leases", value: &o.leases,
			help: "pattern of keys: strings, hashes, lists, sets and sorted sets are copied with what is left of their " +
				"lives, unless there is such a key; may be given several times",
		},
		{
			name: "fences-above", value: &o.fencesAbove,
			help: "let no fence of native locks be this number or less: a number, or counters for the largest counter with " +
				"--raise; needs no --from",
		},
		{name: "dry-run", value: &o.dryRun, help: "say what would be done, and write nothing"},
		{name: "json", value: &o.json, help: "say what was done as a JSON document"},
	}, o.sourceRows()...)
	return append(rows, o.clientFlags.rows()...)
}

func (o *importOwn) sourceRows() []option {
	return []option{
		{heading: sourceHeading},
		{
			name: "from", value: &o.from,
			help: "redis://[user:password@]host[:port][/db] (user:@ with from-password-file), rediss:// for TLS, " +
				"redis+sentinel://host[:port],…/service[/db]; a server of a Redis Cluster stands for all",
		},
		{name: "from-password", value: &o.password.Password, help: "its password, if from has none"},
		{name: "from-password-file", value: &o.password.PasswordFile, help: "file that holds the password"},
		{name: "from-sentinel-password", value: &o.sentinel.Password, help: "password of the Sentinels"},
		{
			name: "from-sentinel-password-file", value: &o.sentinel.PasswordFile,
			help: "file that holds the password of the Sentinels",
		},
		{
			name: "from-tls-ca", value: &o.fromTLS.tlsCA,
			help: "PEM certificates of the CA of the source; default: the system's",
		},
		{name: "from-tls-cert", value: &o.fromTLS.tlsCert, help: "PEM certificate to show to the source"},
		{name: "from-tls-key", value: &o.fromTLS.tlsKey, help: "PEM key of from-tls-cert"},
	}
}

// importKeys is `holdfast import`.
func importKeys(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := newImportOwn()
	rest, err := parseRows(o.rows(), args, stdout, importUsage)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return unexpected(rest[0])
	}
	job, err := o.job()
	if err != nil {
		return err
	}
	above, err := o.above()
	if err != nil {
		return err
	}
	report := &importer.Report{}
	if job.From != nil {
		job.Progress = progressTo(stderr)
		report, err = job.Run(ctx)
	}
	if err == nil && o.fencesAbove == aboveCounters {
		above = report.Largest
	}
	raised, unraised := int64(0), error(nil)
	if err == nil && above > 0 {
		raised, unraised = raiseFences(ctx, job.To, above, o.dryRun)
	}
	if err == nil || report.Looked > 0 {
		if err := o.print(stdout, report, raised); err != nil {
			return err
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted: the same command again does the rest")
	case err != nil:
		return fmt.Errorf("%w; the same command again does the rest", err)
	case unraised != nil:
		return unraised
	case len(report.Skipped) > 0:
		return exitStatus{status: statusSkipped}
	}
	return nil
}

// progressTo returns a function that prints the progress of the import every progressInterval.
func progressTo(w io.Writer) func(*importer.Report) {
	said := time.Now()
	return func(r *importer.Report) {
		if now := time.Now(); now.Sub(said) >= progressInterval {
			said = now
			fmt.Fprintf(w, "holdfast import: %d of about %d keys looked at, %d copied, %d there already, %d skipped\n",
				r.Looked, max(r.Keys, r.Looked), r.Counters.Copied+r.Leases.Copied, r.Counters.There+r.Leases.There, skippedKeys(r))
		}
	}
}

// job returns the job of the flags, which may have no source.
func (o *importOwn) job() (*importer.Job, error) {
	to, err := o.servers()
	if err != nil {
		return nil, err
	}
	to.Name = "holdfast-import"
	job := &importer.Job{To: to, Counters: o.match, Leases: o.leases, Raise: o.raise, DryRun: o.dryRun}
	switch wanted := len(o.match)+len(o.leases) > 0; {
	case o.raise < 0:
		return nil, usageError{fmt.Errorf("raise %d: not negative", o.raise)}
	case o.from == "" && (wanted || o.fencesAbove == "" || o.fencesAbove == aboveCounters):
		return nil, usageError{errors.New("say where from: --from redis://HOST:PORT")}
	case o.from == "":
		return job, nil
	case !wanted:
		return nil, usageError{errors.New("say what: --match PATTERN for counters, --leases PATTERN for other keys")}
	}
	for _, pattern := range append(o.match, o.leases...) {
		if strings.HasPrefix(pattern, "--") {
			return nil, usageError{fmt.Errorf("%q is a flag, where a pattern of keys should be", pattern)}
		}
	}
	if job.From, err = o.source(); err != nil {
		return nil, err
	}
	to.DB = job.From.DB
	return job, nil
}

// source returns the source of the flags. Errors do not show the address, which may contain a password.
func (o *importOwn) source() (*importer.Source, error) {
	s, err := importer.ParseSource(o.from)
	if err != nil {
		return nil, usageError{fmt.Errorf("from: %w", err)}
	}
	password, err := o.password.ClientPassword()
	switch {
	case err != nil:
		return nil, usageError{fmt.Errorf("from-%w", err)}
	case password != "" && s.Password != "":
		return nil,
			usageError{errors.New("from has a password, and from-password or from-password-file has another: give one")}
	case password != "":
		s.Password = password
	}
	if s.SentinelPassword, err = o.sentinel.ClientPassword(); err != nil {
		return nil, usageError{fmt.Errorf("from-sentinel-%w", err)}
	}
	o.fromTLS.tls = s.Encrypted
	if s.TLS, err = o.fromTLS.clientTLS("from-"); err == nil && s.TLS != nil && !s.Encrypted {
		return nil, usageError{errors.New("from-tls-…: use rediss:// in from")}
	}
	return s, err
}

// above returns the number of --fences-above, 0 if there is none or it is not known yet.
func (o *importOwn) above() (int64, error) {
	if o.fencesAbove == "" || o.fencesAbove == aboveCounters {
		return 0, nil
	}
	n, err := strconv.ParseInt(o.fencesAbove, 10, 64)
	if err != nil || n < 1 {
		return 0, usageError{fmt.Errorf("fences-above %q: a positive integer, or %s", o.fencesAbove, aboveCounters)}
	}
	return n, nil
}

// raiseFences makes all later fences of native locks larger than above, and returns the largest number that no later
// fence has.
func raiseFences(ctx context.Context, to *operator.Servers, above int64, dryRun bool) (int64, error) {
	if dryRun {
		return above, nil
	}
	raised, err := importer.RaiseFences(ctx, to, above)
	if err != nil {
		return 0, fmt.Errorf("raise the fences of native locks: %w", err)
	}
	return raised, nil
}

func skippedKeys(r *importer.Report) (n int64) {
	for _, s := range r.Skipped {
		n += s.Count
	}
	return n
}

func (o *importOwn) print(w io.Writer, r *importer.Report, raised int64) error {
	if o.json {
		return writeJSON(w, newImportDocument(r, raised, o.dryRun))
	}
	p := &paper{w: w}
	would := ""
	if o.dryRun {
		would = ", if this were no dry run"
	}
	switch {
	case o.from != "" && r.Counters == (importer.Tally{}) && r.Leases == r.Counters && r.Gone == 0 && len(r.Skipped) == 0:
		p.line("nothing", "matches: the database of --from has %d keys", r.Keys)
	case o.from != "":
		p.line("looked at", "%d keys", r.Looked)
		p.line("counters", "%d copied%s, %d as large or larger already", r.Counters.Copied, would, r.Counters.There)
		if r.LargestKey != "" {
			p.line("largest", "%d, %s", r.Largest, printable(r.LargestKey))
		}
		p.line("leases", "%d copied%s, %d there already, %d ended meanwhile", r.Leases.Copied, would, r.Leases.There, r.Gone)
	}
	if raised > 0 {
		p.line("fences", "of native locks are larger than %d from now on%s", raised, would)
	}
	if len(r.Missing) > 0 {
		p.line("not there", "%s", firstOf(r.Missing, r.Counters.Copied+r.Leases.Copied))
	}
	for _, s := range r.Skipped {
		p.line("skipped", "%d: %s: %s", s.Count, printable(s.Reason), firstOf(s.Keys, s.Count))
	}
	return p.err
}

// firstOf lists the first of count keys.
func firstOf(keys []string, count int64) string {
	var all []string
	for _, key := range keys {
		all = append(all, printable(key))
	}
	if count > int64(len(keys)) {
		all = append(all, "…")
	}
	return strings.Join(all, ", ")
}

// importDocument is the document of `holdfast import`.
type importDocument struct {
	Format   int           `json:"format"`
	DryRun   bool          `json:"dryRun"`
	Looked   int64         `json:"looked"`
	Counters tallyDocument `json:"counters"`
	Leases   tallyDocument `json:"leases"`
	Gone     int64         `json:"gone"`
	// Largest is the largest counter, if LargestKey is not "".
	Largest     int64             `json:"largest"`
	LargestKey  string            `json:"largestKey"`
	FencesAbove int64             `json:"fencesAbove"` // 0 without --fences-above
	Skipped     []skippedDocument `json:"skipped"`
	Missing     []string          `json:"missing"` // the first keys that would be copied, in a dry run
}

type tallyDocument struct {
	Copied int64 `json:"copied"`
	There  int64 `json:"there"`
}

type skippedDocument struct {
	Reason string   `json:"reason"`
	Count  int64    `json:"count"`
	Keys   []string `json:"keys"` // the first of them
}

func newImportDocument(r *importer.Report, raised int64, dryRun bool) importDocument {
	d := importDocument{
		Format: api.Format, DryRun: dryRun, Looked: r.Looked, Counters: tallyDocument(r.Counters),
		Leases: tallyDocument(r.Leases),
		Gone:   r.Gone, Largest: r.Largest, LargestKey: r.LargestKey, FencesAbove: raised, Skipped: []skippedDocument{},
		Missing: append([]string{}, r.Missing...),
	}
	for _, s := range r.Skipped {
		d.Skipped = append(d.Skipped, skippedDocument(s))
	}
	return d
}
