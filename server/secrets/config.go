// Package secrets has what a node proves itself by, and what it asks of others: passwords, cluster secrets,
// certificates and authorities. The files are read again on demand ([Keyring.Reload]) and when they have changed, so
// that an operator replaces them while clients and nodes stay connected.
//
// It promises:
//   - a change of a file is seen by the first handshake, AUTH or scrape that begins a second after the last look, at
//     the latest; no goroutine waits for changes;
//   - files that belong together are replaced together: a certificate, its key and the authorities;
//   - what is damaged, half-written, unreadable or out of date never replaces what works: the old one stays, with one
//     log line, until the files are right again;
//   - a look that hangs on a disk holds up the one connection that looks, and no other;
//   - whether there is a password, a secret or TLS at all is for good: a file may change what is asked for, and cannot
//     open a port.
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
	Password          string // clients' AUTH
	PasswordFile      string
	ACLFile           string // users, as Redis's aclfile
	QuotaFile         string // what users may have
	ClusterSecret     string // nodes to nodes
	ClusterSecretFile string
	// TLS for clients: certificate and key, and a CA when client certificates are demanded.
	TLSCert, TLSKey, TLSClientCA string
	// TLSAuthClientsUser says which name in a client's certificate is the user's: CN or URI; empty or off: none.
	TLSAuthClientsUser string
	// TLS between nodes, always mutual.
	PeerTLSCert, PeerTLSKey, PeerTLSCA string
}

// ClientPassword is the password that a client gives by AUTH: the first of the file, if there is a file. Empty:
// there is none.
func (c Config) ClientPassword() (string, error) {
	words, err := readWords("password-file", c.Password, c.PasswordFile, readFile)
	if len(words) == 0 {
		return "", err
	}
	return words[0], err
}

// CertificateUser is CN or URI, empty if certificates name no users.
func (c *Config) CertificateUser() string {
	if c.TLSAuthClientsUser == "off" {
		return ""
	}
	return c.TLSAuthClientsUser
}

// maxSecrets bounds the passwords or secrets that are valid at a time: the old one and the new one.
const maxSecrets = 2

// Unusable is why what a flag names cannot be used: another start meets the same.
type Unusable struct{ error }

func (u Unusable) Unwrap() error { return u.error }

// readWords returns value, or the words of the file that a flag names: one a line, up to the first line that is blank.
// What follows a blank line is a note.
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

// typable finds what editors and tools put into a file beside the secret, and nobody could type.
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

// check finds settings that need one another.
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
