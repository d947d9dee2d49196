package secrets

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/server/acl"
)

// Keyring has the credentials in force. Its methods, and the functions that they return, are safe for concurrent use.
type Keyring struct {
	config Config
	logger *slog.Logger
	began  time.Time
	due    atomic.Int64 // when to check the files next, in nanoseconds since began
	held   atomic.Pointer[credentials]

	mu      sync.Mutex // held while files are read
	parts   []*part    // guarded by mu
	watches []func()   // guarded by mu
	// read is the argument of OnRead, or nil. mu guards it.
	read func(changed, by string)
}

// credentials are immutable once they are in force.
type credentials struct {
	passwords []acl.Password
	// users are made from the passwords and from aclText and quotaText, the contents of Config.ACLFile and QuotaFile.
	users     *acl.Users
	aclText   string
	quotaText string
	cluster   [][]byte    // the first is this node's own
	clientTLS *tls.Config // nil without TLS
	peerTLS   *tls.Config // nil without TLS
	expiries  map[string]time.Time
	Status
}

// Status is the outcome of reading the files.
type Status struct {
	ReadAt time.Time // when all files were last valid
	Failed bool      // some file is invalid, and its old credentials are still in force
}

func (c *credentials) clone() *credentials {
	next := *c
	next.expiries = maps.Clone(c.expiries)
	return &next
}

func (c *credentials) expires(flag string, at time.Time) {
	if c.expiries == nil {
		c.expiries = make(map[string]time.Time)
	}
	c.expiries[flag] = at
}

// outOfDate returns an error if an expired certificate would replace a valid one.
func (c *credentials) outOfDate(old *credentials, now time.Time) error {
	for flag, at := range c.expiries {
		if at.Before(now) && old.expiries[flag].After(now) {
			return fmt.Errorf("%s ran out at %s", flag, at.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// usersPart is the name of the file of users in log lines.
const usersPart = "users"

// interval is the minimum time between two checks of the files.
const interval = time.Second

// Open returns a keyring with the credentials of c and of the files that it names.
func Open(c Config, logger *slog.Logger) (*Keyring, error) {
	if err := c.check(); err != nil {
		return nil, Unusable{err}
	}
	k := &Keyring{config: c, logger: logger, began: time.Now()}
	k.due.Store(int64(interval))
	add := func(name string, load func(Config, reader, *credentials) error, files ...string) {
		p := &part{name: name, load: load}
		for _, file := range files {
			if file != "" {
				p.files = append(p.files, file)
			}
		}
		k.parts = append(k.parts, p)
	}
	add("password", loadPasswords, c.PasswordFile)
	add(usersPart, loadUsers, c.ACLFile, c.QuotaFile)
	add("cluster-secret", loadClusterSecrets, c.ClusterSecretFile)
	if c.TLSCert != "" || c.TLSKey != "" {
		add("tls", loadClientTLS, c.TLSCert, c.TLSKey, c.TLSClientCA)
	}
	if c.PeerTLSCert != "" {
		add("peer-tls", loadPeerTLS, c.PeerTLSCert, c.PeerTLSKey, c.PeerTLSCA)
	}
	all := &credentials{Status: Status{ReadAt: time.Now()}}
	for _, p := range k.parts {
		var err error
		if all, _, err = p.read(c, all, true); err != nil {
			return nil, Unusable{err}
		}
	}
	k.held.Store(all)
	return k, nil
}

func loadPasswords(c Config, read reader, to *credentials) error {
	words, err := readWords("password-file", c.Password, c.PasswordFile, read)
	to.passwords = nil
	for _, word := range words {
		to.passwords = append(to.passwords, acl.PasswordOf(word))
	}
	if err != nil || c.ACLFile != "" && to.users == nil { // loadUsers, which is next, makes the users
		return err
	}
	return to.makeUsers(c)
}

func loadUsers(c Config, read reader, to *credentials) error {
	if c.ACLFile == "" {
		return nil
	}
	text, err := read(c.ACLFile)
	if err != nil {
		return fmt.Errorf("acl-file: %w", err)
	}
	to.aclText = string(text)
	if c.QuotaFile != "" {
		if text, err = read(c.QuotaFile); err != nil {
			return fmt.Errorf("quota-file: %w", err)
		}
		to.quotaText = string(text)
	}
	return to.makeUsers(c)
}

// makeUsers replaces the users. It returns an error if the default user would no longer need a password.
func (c *credentials) makeUsers(config Config) error {
	if config.ACLFile == "" {
		c.users = acl.Only(c.passwords...)
		return nil
	}
	users, err := acl.Parse(config.ACLFile, c.aclText, c.passwords...)
	switch {
	case err != nil:
		return fmt.Errorf("acl-file: %w", err)
	case c.users != nil && users.Default().Open() && !c.users.Default().Open():
		return errors.New("acl-file: the default user would need no password any more: start the node anew for that")
	}
	if err := users.Limit(config.QuotaFile, c.quotaText); err != nil {
		return fmt.Errorf("quota-file: %w", err)
	}
	c.users = users
	return nil
}

func loadClusterSecrets(c Config, read reader, to *credentials) error {
	words, err := readWords("cluster-secret-file", c.ClusterSecret, c.ClusterSecretFile, read)
	to.cluster = nil
	for _, word := range words {
		to.cluster = append(to.cluster, []byte(word))
	}
	return err
}

// Reload reads all files now. by names the cause in the log.
func (k *Keyring) Reload(by string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reload(by, true)
}

// current returns the credentials in force. It first reads changed files, unless they were checked within the last
// interval or another goroutine is checking them.
func (k *Keyring) current() *credentials {
	if int64(time.Since(k.began)) >= k.due.Load() && k.mu.TryLock() {
		k.reload("a change of the files", false)
		k.due.Store(int64(time.Since(k.began) + interval))
		k.mu.Unlock()
	}
	return k.held.Load()
}

// reload reads the changed parts, or all of them, and puts the valid ones into force. The caller holds k.mu.
func (k *Keyring) reload(by string, all bool) {
	old := k.held.Load()
	next, failed := old, false
	var changed []string
	for _, p := range k.parts {
		before := p.failure
		if (!all || p.readOnce) && !p.changed() {
			continue
		}
		taken, fresh, err := p.read(k.config, next, false)
		next = taken
		switch {
		case err != nil && (all || before != p.failure):
			k.logger.Warn("credentials not taken: the old ones stay", "part", p.name, "error", err, "by", by)
		case err == nil && (fresh || before != ""):
			changed = append(changed, p.name)
		}
	}
	for _, p := range k.parts {
		failed = failed || p.failure != ""
	}
	if len(changed) > 0 || all && !failed {
		k.logger.Info("credentials read again", "changed", strings.Join(changed, ","), "by", by)
	}
	if len(changed) > 0 && k.read != nil {
		k.read(strings.Join(changed, ","), by)
	}
	if len(changed) == 0 && failed == old.Failed && !all {
		return
	}
	next = next.clone()
	if next.Failed = failed; !failed {
		next.ReadAt = time.Now()
	}
	k.held.Store(next)
	if len(changed) > 0 && next.users != old.users {
		for _, changed := range k.watches {
			changed()
		}
	}
}

// Current returns the users in force, and reads changed files first.
func (k *Keyring) Current() *acl.Users { return k.current().users }

// Held returns the users in force as of the last check of the files.
func (k *Keyring) Held() *acl.Users { return k.held.Load().users }

// Load reads all files now. by names the cause in the log. An error means that the file of users is invalid.
func (k *Keyring) Load(by string) error {
	if k.config.ACLFile == "" {
		return acl.ErrNoFile
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reload(by, true)
	for _, p := range k.parts {
		if p.name == usersPart && p.failure != "" {
			return errors.New(p.failure)
		}
	}
	return nil
}

// OnRead registers onRead, which is called with the names of the parts that were read and the cause. It must not call
// the keyring.
func (k *Keyring) OnRead(onRead func(changed, by string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = onRead
}

// Watch registers changed, which is called after each change of the users. Of the keyring it may call only
// [Keyring.Held].
func (k *Keyring) Watch(changed func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watches = append(k.watches, changed)
}

// Cluster returns a function that returns the valid cluster secrets, this node's own first, or none if nodes need none.
func (k *Keyring) Cluster() func() [][]byte {
	return func() [][]byte { return k.current().cluster }
}

// ClientTLS returns the TLS configuration for clients, nil without TLS. Each handshake uses the credentials in force at
// its beginning.
func (k *Keyring) ClientTLS() *tls.Config {
	first := k.held.Load().clientTLS
	if first == nil {
		return nil
	}
	live := first.Clone()
	live.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.current().clientTLS, nil }
	return live
}

// PeerTLS returns a function that returns the TLS configuration for a handshake between nodes, or nil without TLS.
func (k *Keyring) PeerTLS() func() *tls.Config {
	if k.held.Load().peerTLS == nil {
		return nil
	}
	return func() *tls.Config { return k.current().peerTLS }
}

// Expiries returns when certificates and authorities expire, and the status of the files.
func (k *Keyring) Expiries() ([]Expiry, Status) {
	c := k.current()
	var all []Expiry
	for flag, at := range c.expiries {
		all = append(all, Expiry{flag, at})
	}
	return all, c.Status
}
