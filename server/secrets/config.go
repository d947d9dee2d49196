// Package secrets has the credentials of a node and of its clients: passwords, cluster secrets, certificates and
// authorities. Their files are read again on demand ([Keyring.Reload]) and when they have changed, so that an operator
// can replace them while clients and nodes stay connected.
//
// It promises:
//   - a change of a file takes effect with the first handshake, AUTH or scrape that begins a second or more after the
//     last check of the files; no goroutine waits for changes;
//   - files that belong together are replaced together: a certificate, its key and the authorities;
//   - a damaged, half-written, unreadable or expired file never replaces valid credentials: these stay in force, with
//     one log line, until the files are valid again;
//   - a check that hangs on a disk delays only the connection that makes it;
//   - whether a password, a secret or TLS is required never changes: a file may replace credentials, and cannot open a
//     port.
//
// Start reading at keyring.go.
package secrets

import (
	"errors"
	"fmt"
	"strings"
)

// Config holds credentials, or the files that have them.
type Config struct {
	Password          string // for AUTH of clients
	PasswordFile      string
	ACLFile           string // users, as Redis's aclfile
	QuotaFile         string // quotas of users
	ClusterSecret     string // between nodes
	ClusterSecretFile string
	// TLS for clients: certificate and key, and a CA if client certificates are required.
	TLSCert, TLSKey, TLSClientCA string
	// TLSAuthClientsUser is the field of a client's certificate that has its user: CN or URI, or "" or off for none.
	TLSAuthClientsUser string
	// TLS between nodes, which is always mutual.
	PeerTLSCert, PeerTLSKey, PeerTLSCA string
}

// ClientPassword returns the password of clients, "" for none. If there is a file, it is the first one there.
func (c Config) ClientPassword() (string, error) {
	words, err := readWords("password-file", c.Password, c.PasswordFile, readFile)
	if len(words) == 0 {
		return "", err
	}
	return words[0], err
}

// CertificateUser returns CN or URI, or "" if certificates name no users.
func (c *Config) CertificateUser() string {
	if c.TLSAuthClientsUser == "off" {
		return ""
	}
	return c.TLSAuthClientsUser
}

// maxSecrets bounds the valid passwords, and the valid secrets: an old and a new one, during a replacement.
const maxSecrets = 2

// Unusable is an error of the configured credentials or files, which another start would meet again.
type Unusable struct{ error }

func (u Unusable) Unwrap() error { return u.error }

// readWords returns value, or the words of a file: one a line, up to the first blank line. Lines after that are notes.
func readWords(flag, value, file string, read reader) ([]string, error) {
	switch {
	case file == "" && value == "":
		return nil, nil
	case file == "":
		return []string{value}, nil
	case value != "":
		return nil, fmt.Errorf("%s %s: give the secret or the file, not both", flag, file)
	}
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	var words []string
	for line := range strings.SplitSeq(string(text), "\n") {
		line = strings.TrimRight(line, "\r")
		if strings.TrimSpace(line) == "" {
			break
		}
		if err := typable(line); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", flag, file, err)
		}
		words = append(words, line)
	}
	switch {
	case len(words) == 0:
		return nil, fmt.Errorf("%s: %s is empty", flag, file)
	case len(words) > maxSecrets:
		return nil, fmt.Errorf("%s: %s has %d lines before the first blank one: %d secrets at a time, one a line", flag,
			file, len(words), maxSecrets)
	}
	return words, nil
}

// typable returns an error if a word has characters that nobody can type, such as an editor's byte order mark.
func typable(word string) error {
	control := strings.IndexFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f })
	switch {
	case strings.HasPrefix(word, "\xef\xbb\xbf"):
		return errors.New("it begins with a byte order mark: save it without one")
	case strings.HasPrefix(word, "\xff\xfe"), strings.HasPrefix(word, "\xfe\xff"), control >= 0 && word[control] == 0:
		return errors.New("it is UTF-16, or no text: save it as UTF-8 or ASCII")
	case control >= 0:
		return fmt.Errorf("it has a control character, %q, in a secret", word[control])
	}
	return nil
}

// check returns an error if settings require one another.
func (c Config) check() error {
	peers := c.PeerTLSCert != "" || c.PeerTLSKey != "" || c.PeerTLSCA != ""
	switch {
	case c.TLSCert == "" && c.TLSKey == "" && c.TLSClientCA != "":
		return errors.New("tls-client-ca needs tls-cert and tls-key")
	case c.CertificateUser() != "" && c.TLSAuthClientsUser != "CN" && c.TLSAuthClientsUser != "URI":
		return fmt.Errorf("tls-auth-clients-user %q: use CN, URI or off", c.TLSAuthClientsUser)
	case c.CertificateUser() != "" && (c.TLSClientCA == "" || c.ACLFile == ""):
		return errors.New(
			"tls-auth-clients-user needs tls-client-ca, which vouches for the names, and acl-file, which has the users")
	case c.QuotaFile != "" && c.ACLFile == "":
		return errors.New("quota-file needs acl-file, which has the users")
	case peers && (c.PeerTLSCert == "" || c.PeerTLSKey == "" || c.PeerTLSCA == ""):
		return errors.New("peer-tls-cert, peer-tls-key and peer-tls-ca go together")
	}
	return nil
}
