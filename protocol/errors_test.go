package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorRowsKnowTheirOutcome(t *testing.T) {
	t.Parallel()
	for _, e := range []*Error{
		ErrSyntax, ErrNotInteger, ErrNotFloat, ErrOverflow, ErrNotFinite, ErrNoSuchKey, ErrStringTooBig, ErrDBIndex,
		ErrInvalidCursor,
		ErrMaxClients, ErrNestedMulti, ErrWatchInMulti, ErrExecNoMulti, ErrDiscardNoMulti, ErrNotInScript, ErrReadOnlyScript,
		ErrProtoVersion, ErrPasswordNotSet, ErrWrongType, ErrNoScript, ErrExecAbort, ErrNoAuth, ErrHelloNoAuth, ErrWrongPass,
		ErrNoProto, ErrLoading, ErrNotBusy, ErrNoLeader, ErrStopping, ErrBusy, ErrUncertain, ErrQueryTooBig,
		InvalidExpire("set"), WrongArity("get"), ExecAbortedBy(ErrNoAuth), errExpectedDollar('\n'), errExpectedDollar('x'),
	} {
		require.Equal(t, e.Outcome, OutcomeOf(e.Error()), e.Error())
		require.Equal(t, ErrValue(e.Error()), e.Value())
		require.NotContains(t, e.Prefix, " ")
		require.False(t, strings.ContainsAny(e.Error(), "\r\n"), e.Error())
	}
}

// A command that a stock client repeats by itself must not have been applied.
func TestRetriedPrefixesAreRefusals(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS"} {
		require.Equal(t, OutcomeNone, OutcomeOf(prefix+" text"))
	}
	require.Equal(t, OutcomeUnknown, ErrUncertain.Outcome)
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]Outcome{
		"ERR syntax error":           OutcomeNone,
		"READONLY":                   OutcomeNone,
		"":                           OutcomeUnknown,
		"UNCERTAIN":                  OutcomeUnknown,
		"ERRx y":                     OutcomeUnknown,
		"err lower case":             OutcomeUnknown,
		"NON_REENTRANT_REACQUIRE":    OutcomeUnknown,
		"BUSY Redis is busy":         OutcomeNone,
		"ERR script: abc was thrown": OutcomeNone,
		"ERR unknown command 'a, on @user_script:1', with args beginning with: ":                                        OutcomeNone,
		"ERR user_script:1: x, on @user_script:1. script: d99e277cbc6aab9e4136641e512ff34fd2696831, on @user_script:1.": OutcomeUnknown,
		"ERR script is over its budget of 32000000 steps (--max-script-steps), " +
			"what it did is undone script: 523bef23b8d8e6d7eb876df3606fa21b3d78b248, on @user_script:1.": OutcomeNone,
		"ERR user_script:1: x script: d99e277cbc6aab9e4136641e512ff34fd2696831, on @user_script:1.":                                              OutcomeUnknown,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 070ac52e9cf10990edcd80075594be372d5a81dd, on @user_script:1.": OutcomeUnknown,
	} {
		require.Equal(t, want, OutcomeOf(line), "%q", line)
	}
}

func TestExecAbortedBy(t *testing.T) {
	t.Parallel()
	require.EqualError(t, ExecAbortedBy(WrongArity("exec")),
		"EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command")
	require.EqualError(t, ExecAbortedBy(ErrNoLeader), "EXECABORT Transaction discarded because of: "+ErrNoLeader.Error())
}
