package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/server/secrets"
)

// credentials are the metrics of the node's certificates and secrets.
type credentials struct{ of *secrets.Keyring }

var (
	expiryDesc = prometheus.NewDesc("holdfast_tls_certificate_expiry_timestamp_seconds",
		"When the certificates of the flag's file run out: the first of a chain, the last of a CA file.", []string{"flag"}, nil)
	reloadOKDesc = prometheus.NewDesc("holdfast_credentials_last_reload_successful",
		"1 while certificates, passwords and secrets are as in their files; 0 while a file is damaged or cannot be read, and what was read before it is in force.", nil, nil)
	reloadTimeDesc = prometheus.NewDesc("holdfast_credentials_last_reload_success_timestamp_seconds",
		"When certificates, passwords and secrets were taken from their files at last.", nil, nil)
)

func (c credentials) Describe(ch chan<- *prometheus.Desc) {
	ch <- expiryDesc
	ch <- reloadOKDesc
	ch <- reloadTimeDesc
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
}
