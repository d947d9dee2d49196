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
