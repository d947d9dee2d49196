package consistency

import (
	"slices"

	"github.com/holdfast/holdfast/server/members"
)

// judge finds the hash that a majority of the voters has; "": there is none. differ are the IDs of the members that
// have another, or, without a majority, of all that were compared if they are not equal.
func judge(conf members.Configuration, hashes map[string]string) (right string, differ []string) {
	votes := make(map[string]int)
	for id, hash := range hashes {
		if votes[hash] += 0; conf.IsVoter(id) {
			votes[hash]++
		}
	}
	for hash, n := range votes {
		if n >= conf.Quorum() {
			right = hash
		}
	}
	if right == "" && len(votes) < 2 {
		return "", nil
	}
	for id, hash := range hashes {
		if hash != right {
			differ = append(differ, id)
		}
	}
	slices.Sort(differ)
	return right, differ
}
