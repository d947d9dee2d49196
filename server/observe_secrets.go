package server

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/server/memberrpc"
	"github.com/holdfast/holdfast/server/members"
	"github.com/holdfast/holdfast/server/peer"
	"github.com/holdfast/holdfast/server/raftnode"
	"github.com/holdfast/holdfast/server/secrets"
)

// newAdmissions makes the watch over the credentials of the members, which tells the log.
func (s *Server) newAdmissions() *memberrpc.Admissions {
	return memberrpc.NewAdmissions(memberrpc.AdmissionsConfig{
		Client: s.cluster.client, Self: s.store.Identity().ID, Misfit: peer.Misfit,
		Members: func() []members.Member { return s.newest().Members },
		Refused: func(m members.Member, why string) {
			s.logger.Error("this node and another member do not admit each other: their connections last until the "+
				"next failover", "member", m.Name(), "reason", why)
		},
		Admitted: func(m members.Member) {
			s.logger.Info("this node and another member admit each other again", "member", m.Name())
		},
	}, s.cluster.requests)
}

// troubles are what is wrong although a leader is there and voters answer, a sentence each.
func (s *Server) troubles() []string {
	var health error
	if r := s.member.Load(); r != nil && s.led() {
		health = r.Healthy()
	}
	if errors.Is(health, raftnode.ErrQuarantined) {
		health = nil // the checker says more
	}
	return append(troubles(s.config.Name, health, s.cluster.admissions.Refusals()), s.cluster.checker.Troubles()...)
}

func troubles(node string, health error, refusals []memberrpc.Refusal) (all []string) {
	if health != nil {
		all = append(all, fmt.Sprintf("%s is not ready: %v", node, health))
	}
	for _, r := range refusals {
		all = append(all, fmt.Sprintf("%s and %s do not admit each other: %s", r.A, r.B, r.Text))
	}
	return all
}

// credentials are the metrics of the node's certificates and secrets.
type credentials struct {
	of       *secrets.Keyring
	admitted *memberrpc.Admissions
}

var (
	expiryDesc = prometheus.NewDesc("holdfast_tls_certificate_expiry_timestamp_seconds",
		"When the certificates of the flag's file run out: the first of a chain, the last of a CA file.", []string{"flag"},
		nil)
	reloadOKDesc = prometheus.NewDesc("holdfast_credentials_last_reload_successful",
		"1 while certificates, passwords and secrets are as in their files; 0 while a file is damaged or cannot be read, "+
			"and what was read before it is in force.", nil, nil)
	reloadTimeDesc = prometheus.NewDesc("holdfast_credentials_last_reload_success_timestamp_seconds",
		"When certificates, passwords and secrets were taken from their files at last.", nil, nil)
	refusalsDesc = prometheus.NewDesc("holdfast_peer_refusals",
		"How many pairs of members, as far as this node knows, do not admit each other: a secret, a certificate or a "+
			"release does not fit. They find out by a handshake each minute.", nil, nil)
)

func (c credentials) Describe(ch chan<- *prometheus.Desc) {
	ch <- expiryDesc
	ch <- reloadOKDesc
	ch <- reloadTimeDesc
	ch <- refusalsDesc
}

func (c credentials) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	expiries, status := c.of.Expiries()
	for _, e := range expiries {
		gauge(expiryDesc, float64(e.At.Unix()), e.Flag)
	}
	successful := 1.0
	if status.Failed {
		successful = 0
	}
	gauge(reloadOKDesc, successful)
	gauge(reloadTimeDesc, float64(status.ReadAt.UnixMilli())/1000)
	gauge(refusalsDesc, float64(len(c.admitted.Refusals())))
}
