package model

// rules are all rules of all modules, each with bounds in which its absence shows.
var rules = []rule{
	{"Log", "HoldAcks", settings{}, "Durable", 7},
	{"Log", "SettleRequest", settings{}, "AcknowledgedIsOnDisk", 10},
	{"Log", "SyncFollower", settings{}, "AcknowledgedIsOnDisk", 6},
	{"Log", "SyncFound", settings{"MaxCrash": "1", "MaxLen": "1"}, "AcknowledgedIsOnDisk", 11},
	{"Log", "StableTerm", settings{"MaxCrash": "1"}, "ElectionSafety", 7},
	{"Log", "OwnTerm", settings{"MaxTerm": "4", "Led": "2", "Refusals": "1"}, "LeaderCompleteness", 10},
	{"Log", "CutCommit", settings{"MaxNotify": "1", "Led": "1"}, "StateMachineSafety", 11},
	{"Log", "LateSnapshot", settings{"MaxTerm": "1", "MaxSnapshot": "1"}, "NeverBack", 13},
	{"Log", "SkipSnapshot", settings{"MaxSnapshot": "2"}, "CanFollow", 10},
	{"Log", "SkipNoMore", settings{"MaxSnapshot": "1", "MaxNotify": "1"}, "AcknowledgedIsOnDisk", 12},
	{"Log", "FromFirst", settings{"MaxTerm": "1", "MaxSnapshot": "1"}, "CanFollow", 10},
	{"Log", "KeepTail", settings{"MaxLen": "3", "MaxSnapshot": "1", "Led": "1"}, "CanFollow", 14},
	{"Log", "CheckRound", settings{"MaxRead": "1", "Led": "1"}, "ReadsAreLinearizable", 11},
	{"Log", "CountRound", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 12},
	{"Log", "NextRound", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 11},
	{"Log", "LeadsAfter", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 13},
	{"Log", "FirstEntry", settings{"MaxRead": "1", "MaxRound": "1", "Led": "1"}, "ReadsAreLinearizable", 13},
	{
		"Log", "AwaitIndex",
		settings{"MaxTerm": "1", "MaxRead": "1", "MaxRound": "1", "Lag": "1", "Led": "1"},
		"ReadsAreLinearizable", 12,
	},
	{"Log", "LeaderSends", settings{"MaxTerm": "4", "Led": "2", "Refusals": "1"}, "LogMatching", 12},

	{"Sessions", "Dedup", settings{}, "AtMostOnce", 7},
	{"Sessions", "OldLife", settings{}, "AtMostOnce", 12},
	{"Sessions", "NewLife", settings{}, "NothingLost", 10},
	{"Sessions", "LifeStored", settings{}, "NothingLost", 10},
	{"Sessions", "SessionInSnapshot", settings{}, "Agree", 7},
	{"Sessions", "HandedIsUncertain", settings{}, "RefusedIsNotDone", 6},
	{"Sessions", "FirstHasLow", settings{}, "NothingLost", 5},

	{"Incarnations", "Follows", settings{}, "OneAtATime", 10},
	{"Incarnations", "Random", settings{}, "OneAtATime", 10},
	{"Incarnations", "NumberFirst", settings{}, "NeverAlone", 5},
	{"Incarnations", "KnownStored", settings{}, "OneAtATime", 11},
	{"Incarnations", "ProveFirst", settings{}, "OneAtATime", 6},
	{"Incarnations", "CutOff", settings{}, "NoBranch", 6},
	{"Incarnations", "InTime", settings{}, "OneAtATime", 8},
}

// exploration is a module with all its rules, within bounds.
type exploration struct {
	name, module string
	bounds       settings
	large        bool // takes more than minutes
}

var explorations = []exploration{
	{"elections and disks", "Log", settings{"MaxLen": "1", "MaxCrash": "1", "Refusals": "1"}, false},
	{"conflicts", "Log", settings{"MaxCandidates": "1", "Refusals": "1", "MaxNotify": "1"}, false},
	{"snapshots", "Log", settings{"MaxSnapshot": "1", "MaxCandidates": "1", "Led": "1"}, false},
	{"reads", "Log", settings{"MaxRead": "1", "MaxRound": "1", "MaxCandidates": "1", "Led": "1"}, false},
	{"sessions", "Sessions", settings{}, false},
	{"incarnations", "Incarnations", settings{}, false},

	{"three terms", "Log", settings{"MaxTerm": "3", "MaxCrash": "1"}, true},
	{"crashes", "Log", settings{"MaxCrash": "2", "Refusals": "1", "MaxNotify": "1"}, true},
	{"tails", "Log", settings{"MaxTerm": "3", "MaxLen": "3", "MaxSnapshot": "2", "Led": "1"}, true},
	{"crashes and snapshots", "Log", settings{"MaxSnapshot": "1", "MaxCrash": "1", "Led": "1", "Lag": "1"}, true},
	{
		"reads over three terms", "Log",
		settings{"MaxTerm": "3", "MaxRead": "1", "MaxRound": "2", "Led": "1", "Lag": "1"},
		true,
	},
	{"longer sessions", "Sessions", settings{"MaxBatch": "3", "MaxLog": "4", "MaxSnapshot": "2"}, true},
	{"more copies", "Incarnations", settings{"MaxStart": "5", "MaxCopy": "2"}, true},
}
