package main

import (
	"encoding/json"
	"io"

	"github.com/holdfast/holdfast/fsm"
	"github.com/holdfast/holdfast/server/api"
	"github.com/holdfast/holdfast/server/backup"
)

// writeJSON writes a document.
func writeJSON(w io.Writer, doc any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

// versionDocument is the document of `holdfast version`.
type versionDocument struct {
	Format    int    `json:"format"`
	Release   string `json:"release"`
	Revision  string `json:"revision"` // "" if unknown
	LogFormat int    `json:"logFormat"`
}

// backupDocument is the document of `holdfast backup`.
type backupDocument struct {
	Format int    `json:"format"`
	File   string `json:"file"`
	Index  int64  `json:"index"`
	NodeID string `json:"nodeId"`
	Keys   int64  `json:"keys"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Stale  bool   `json:"stale"`
}

// inspectDocument is the document of `holdfast inspect`.
type inspectDocument struct {
	Format int         `json:"format"`
	File   string      `json:"file"`
	Backup backup.Meta `json:"backup"`
	Bytes  int64       `json:"bytes"`
	SHA256 string      `json:"sha256"`
	Keys   int         `json:"keys"`
	// Databases are the databases with keys, counted by kind.
	Databases         []databaseDocument `json:"databases"`
	Leases            int                `json:"leases"`
	LongestMillis     int64              `json:"longestLeaseMillis"`
	Locks             int                `json:"locks"`
	Holds             int                `json:"holds"`
	Sessions          int                `json:"sessions"`
	LongestHoldMillis int64              `json:"longestHoldMillis"`
	Fences            uint64             `json:"fences"` // of native locks so far
	KeyWaiters        int                `json:"keyWaiters"`
	LockWaiters       int                `json:"lockWaiters"`
	Scripts           int                `json:"scripts"`
	// FenceKeys are the first of the FenceKeyCount keys that look like fences.
	FenceKeyCount int             `json:"fenceKeyCount"`
	FenceKeys     []fenceDocument `json:"fenceKeys"`
}

type databaseDocument struct {
	DB    int            `json:"db"`
	Kinds map[string]int `json:"kinds"`
}

type fenceDocument struct {
	DB    int    `json:"db"`
	Key   string `json:"key"`
	Value int64  `json:"value"`
}

func newInspectDocument(path string, meta backup.Meta, sum backup.Summary, s *fsm.Survey) inspectDocument {
	d := inspectDocument{
		Format: api.Format, File: path, Backup: meta, Bytes: sum.FileBytes, SHA256: sum.SHA256, Keys: s.Keys(),
		Databases: []databaseDocument{}, Leases: s.Leases, LongestMillis: s.LongestMillis,
		Locks: s.Locks.Locks, Holds: s.Locks.Holds, Sessions: s.Locks.Sessions, LongestHoldMillis: s.LongestHoldMillis,
		Fences:     s.Fences,
		KeyWaiters: s.Waiters, LockWaiters: s.Locks.Waiting, Scripts: s.Scripts,
		FenceKeyCount: s.FenceCount, FenceKeys: []fenceDocument{},
	}
	for db, kinds := range s.Kinds {
		if len(kinds) > 0 {
			d.Databases = append(d.Databases, databaseDocument{db, kinds})
		}
	}
	for _, f := range s.FenceKeys {
		d.FenceKeys = append(d.FenceKeys, fenceDocument{f.DB, f.Key, f.Value})
	}
	return d
}
