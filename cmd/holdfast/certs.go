package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/server/secrets"
)

const certsUsage = `usage: holdfast certs [flags] DIR [NAME=HOST,…]…

Makes certificates for those who have no authority (CA) of their own: in DIR the CA (ca.crt and ca.key), unless it is
there, and for each node NAME.crt and NAME.key. HOST are the names and addresses by which clients and nodes reach the
node; localhost, 127.0.0.1 and ::1 are always among them. Clients with certificates get client.NAME.crt and
client.NAME.key. No file is overwritten. Give each node ca.crt and its own two files; keep ca.key elsewhere.
`

const certsHeading = "The certificates"

// certsOwn are the flags of `holdfast certs`.
type certsOwn struct {
	clients      []string
	days, caDays int
}

func newCertsOwn() *certsOwn { return &certsOwn{days: 5 * 365, caDays: 10 * 365} }

func (o *certsOwn) rows() []option {
	return []option{
		{heading: certsHeading},
		{name: "client", value: &o.clients, help: "name of a client that gets a certificate; may be given several times"},
		{name: "days", value: &o.days, help: "how long certificates are valid, but no longer than the CA"},
		{name: "ca-days", value: &o.caDays, help: "how long a new CA is valid"},
	}
}

// certName matches valid names of nodes and clients, which become parts of file names.
var certName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$`)

// makeCerts is `holdfast certs`.
func makeCerts(_ context.Context, args []string, stdout, _ io.Writer) error {
	o := newCertsOwn()
	words, err := parseAnywhere(o.rows(), args, stdout, certsUsage)
	switch {
	case err != nil:
		return err
	case len(words) == 0:
		return usageError{errors.New("say which folder: holdfast certs DIR [NAME=HOST,…]…")}
	case o.days < 1, o.caDays < 1:
		return usageError{errors.New("days and ca-days: at least 1")}
	}
	m := &certMaker{dir: words[0], now: time.Now(), stdout: stdout}
	templates := make(map[string]*x509.Certificate) // by file name
	var names []string
	add := func(name string, template *x509.Certificate) error {
		if templates[name] != nil {
			return fmt.Errorf("%q is there twice", name)
		}
		template.NotAfter = m.now.AddDate(0, 0, o.days)
		templates[name], names = template, append(names, name)
		return m.free(name)
	}
	for _, word := range words[1:] {
		name, template, err := nodeCert(word)
		if err == nil {
			err = add(name, template)
		}
		if err != nil {
			return usageError{err}
		}
	}
	for _, client := range o.clients {
		if !certName.MatchString(client) {
			return usageError{fmt.Errorf("client %q: use letters, digits, and _ . @ - behind the first", client)}
		}
		if err := add("client."+client, clientCert(client)); err != nil {
			return usageError{err}
		}
	}
	if err := m.authority(o.caDays, len(names) == 0); err != nil {
		return err
	}
	for _, name := range names {
		if err := m.issue(name, templates[name]); err != nil {
			return err
		}
	}
	return nil
}

// nodeCert returns the certificate of a node, "NAME=HOST,…", for its connections with clients and other nodes.
func nodeCert(word string) (name string, template *x509.Certificate, err error) {
	name, hosts, found := strings.Cut(word, "=")
	switch {
	case !found || hosts == "":
		return "", nil, fmt.Errorf("%q: use NAME=HOST,…, with the names and addresses of the node", word)
	case !certName.MatchString(name), name == "ca", strings.HasPrefix(name, "client."):
		return "", nil, fmt.Errorf("node %q: use letters, digits, and _ . @ - behind the first; not ca or client.…", name)
	}
	uri, err := url.Parse(secrets.NodeURI)
	if err != nil {
		return "", nil, err
	}
	template = &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{organization}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{uri},
	}
	for host := range strings.SplitSeq(hosts+",localhost,127.0.0.1,::1", ",") {
		ip := net.ParseIP(strings.Trim(host, "[]"))
		switch {
		case slices.ContainsFunc(template.IPAddresses, ip.Equal), slices.Contains(template.DNSNames, host):
			// named before
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case !hostName.MatchString(host):
			return "", nil, fmt.Errorf("node %s: %q is no name of a host, and no address; ports are not part of it", name, host)
		default:
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return name, template, nil
}

// hostName matches valid host names of certificates, with * for one label.
var hostName = regexp.MustCompile(
	`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// clientCert returns the certificate of a client, with its name as CN.
func clientCert(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{organization}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

const organization = "Holdfast"

// certMaker writes certificates and keys into a folder.
type certMaker struct {
	dir    string
	now    time.Time
	stdout io.Writer
	ca     *x509.Certificate
	caKey  any
}

func (m *certMaker) path(file string) string { return filepath.Join(m.dir, file) }

// free returns an error if the files of a name exist.
func (m *certMaker) free(name string) error {
	for _, file := range []string{m.path(name + ".crt"), m.path(name + ".key")} {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there: nothing is overwritten", file)
		}
	}
	return nil
}

// authority creates the CA, or reads the existing one. alone is set if no other certificate is wanted.
func (m *certMaker) authority(days int, alone bool) error {
	if m.free("ca") == nil {
		if err := os.MkdirAll(m.dir, 0o700); err != nil {
			return err
		}
		which := make([]byte, 4) // distinguishes two CAs that are trusted during a replacement
		if _, err := rand.Read(which); err != nil {
			return err
		}
		return m.issue("ca", &x509.Certificate{
			Subject:  pkix.Name{CommonName: fmt.Sprintf("Holdfast CA %x", which), Organization: []string{organization}},
			NotAfter: m.now.AddDate(0, 0, days),
			IsCA:     true, BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		})
	}
	if alone {
		return usageError{fmt.Errorf("%s: the CA is there: say which certificates, as NAME=HOST,… or --client NAME", m.dir)}
	}
	return m.readAuthority()
}

func (m *certMaker) readAuthority() error {
	certText, err := os.ReadFile(m.path("ca.crt"))
	if err != nil {
		return usageError{err}
	}
	keyText, err := os.ReadFile(m.path("ca.key"))
	if err != nil {
		return usageError{fmt.Errorf("%w: it is where the CA was made", err)}
	}
	certBlock, _ := pem.Decode(certText)
	keyBlock, _ := pem.Decode(keyText)
	if certBlock == nil || keyBlock == nil {
		return usageError{fmt.Errorf("%s and ca.key: one holds no PEM", m.path("ca.crt"))}
	}
	if m.ca, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return usageError{fmt.Errorf("%s: %w", m.path("ca.crt"), err)}
	}
	if m.caKey, err = x509.ParsePKCS8PrivateKey(keyBlock.Bytes); err != nil {
		return usageError{fmt.Errorf("%s: %w", m.path("ca.key"), err)}
	}
	key, ok := m.caKey.(*ecdsa.PrivateKey)
	switch {
	case !ok || !key.PublicKey.Equal(m.ca.PublicKey):
		return usageError{fmt.Errorf("%s is not the key of ca.crt", m.path("ca.key"))}
	case m.ca.NotAfter.Before(m.now):
		return usageError{fmt.Errorf("%s ran out at %s: make a new CA in another folder", m.path("ca.crt"),
			m.ca.NotAfter.Format(time.DateOnly))}
	}
	return nil
}

// clockSkew is how far another machine's clock may be behind this one's.
const clockSkew = time.Hour

// issue creates a key and its certificate, which the CA signs, or which signs itself if it is the CA's.
func (m *certMaker) issue(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return err
	}
	template.NotBefore = m.now.Add(-clockSkew)
	parent, parentKey := m.ca, m.caKey
	if template.IsCA {
		parent, parentKey = template, any(key)
	} else {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		if template.NotAfter.After(parent.NotAfter) {
			template.NotAfter = parent.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return err
	}
	if template.IsCA {
		m.caKey = key
		if m.ca, err = x509.ParseCertificate(der); err != nil {
			return err
		}
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := m.write(name+".key", 0o600, "PRIVATE KEY", keyDER); err != nil {
		return err
	}
	if err := m.write(name+".crt", 0o644, "CERTIFICATE", der); err != nil {
		return err
	}
	hosts := template.DNSNames
	for _, ip := range template.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	_, err = fmt.Fprintf(m.stdout, "%s, valid until %s%s\n", m.path(name+".crt"), template.NotAfter.Format(time.DateOnly),
		suffix(", for ", strings.Join(hosts, " ")))
	return err
}

func suffix(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// write creates a file, which must not exist.
func (m *certMaker) write(file string, mode os.FileMode, kind string, der []byte) error {
	f, err := os.OpenFile(m.path(file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Sync(), f.Close())
}
