package replica

import "github.com/hashicorp/raft"

// Propose has an entry proposed that says it was stamped for term.
func (r *Replica) Propose(term uint64, entry []byte) { r.propose(term, entry) }

// SendSnapshot sends this node's newest snapshot to another, as raft does to one that is behind.
func (r *Replica) SendSnapshot(to string) (resp raft.InstallSnapshotResponse, err error) {
	stored, err := r.config.Stores.Snapshots.List()
	if err != nil {
		return resp, err
	}
	meta, data, err := r.config.Stores.Snapshots.Open(stored[0].ID)
	if err != nil {
		return resp, err
	}
	defer data.Close()
	err = r.transport.InstallSnapshot(raft.ServerID(to), raft.ServerAddress(r.config.InitialCluster[to]), &raft.InstallSnapshotRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(r.config.Name)}, SnapshotVersion: meta.Version,
		Term: r.raft.CurrentTerm(), LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: meta.Size,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
	}, &resp, data)
	return resp, err
}
