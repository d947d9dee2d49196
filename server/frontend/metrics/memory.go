package metrics

import (
	"fmt"
	"runtime"
	"strconv"

	"github.com/holdfast/holdfast/protocol"
)

// memoryStats returns the fields of Redis that have a meaning here.
func (g *Registry) memoryStats([][]byte) protocol.Value {
	r := &report{Registry: g}
	state, heap := r.state(), r.heap()
	fields := []protocol.Value{
		protocol.Bulk("total.allocated"), protocol.Integer(int64(heap.objects)),
		protocol.Bulk("clients.normal"), protocol.Integer(g.cfg.ClientBytes()),
	}
	keys := 0
	for db, n := range state.Keys {
		if n > 0 {
			fields = append(fields, protocol.Bulk("db."+strconv.Itoa(db)), protocol.Map(
				protocol.Bulk("overhead.hashtable.main"), protocol.Integer(0),
				protocol.Bulk("overhead.hashtable.expires"), protocol.Integer(0)))
			keys += n
		}
	}
	perKey := int64(0)
	if keys > 0 {
		perKey = state.UsedBytes / int64(keys)
	}
	return protocol.Map(append(fields,
		protocol.Bulk("keys.count"), protocol.Integer(int64(keys)),
		protocol.Bulk("keys.bytes-per-key"), protocol.Integer(perKey),
		protocol.Bulk("dataset.bytes"), protocol.Integer(state.UsedBytes),
		protocol.Bulk("allocator.allocated"), protocol.Integer(int64(heap.objects)),
		protocol.Bulk("allocator.resident"), protocol.Integer(int64(heap.mapped)))...)
}

func (g *Registry) memoryDoctor([][]byte) protocol.Value {
	r := &report{Registry: g}
	used, limit := uint64(r.state().UsedBytes), g.cfg.MaxMemoryBytes
	if limit > 0 && used > limit/10*9 {
		return protocol.Verbatim(fmt.Sprintf("Keys and scripts take %s of %s: commands that grow will be refused. Raise "+
			"--max-memory, or delete keys.\n",
			human(used), human(limit)))
	}
	of := " of " + human(limit)
	if limit == 0 {
		of = "; there is no limit"
	}
	return protocol.Verbatim("No problem: keys and scripts take " + human(used) + of + ".\n")
}

func (g *Registry) memoryMallocStats([][]byte) protocol.Value {
	heap := (&report{Registry: g}).heap()
	return protocol.Verbatim(fmt.Sprintf("%s\nheap in use or not yet collected: %d bytes\nfrom the system: %d bytes\n",
		runtime.Version(), heap.objects, heap.mapped))
}
