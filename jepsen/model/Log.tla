--------------------------------- MODULE Log ---------------------------------
(* hashicorp/raft 1.7.3 with what server/raftnode changes: log, disk, acknowledgements, elections, snapshots and reads.

   It stands on Diego Ongaro's TLA+ specification of Raft (raft.tla, https://github.com/ongardie/raft.tla, under CC BY
   4.0): the rules of terms, votes, the comparison of logs and the commit index, and the names of the actions, come from
   there. Written anew are the messages, the disk, snapshots, reads, and everything with a switch.

   Messages have no variable. A message says what its sender knew in a term, and what a sender says in a term only
   grows: led[t] is what the leader of term t ever had, stood[t] what the candidates of t claimed, votes[t] who granted,
   acked[t] and heard what followers answered. A node may act on any part of that at any time, again and again, or
   never: so messages are late, doubled, reordered and lost.

   An entry is the number of its term. Its index and its term name an entry, as a term has one leader. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Server, Nil,
          MaxTerm, MaxLen, MaxCrash, MaxSnapshot, MaxRound, MaxRead, \* how much is explored
          MaxCandidates, \* in a term
          Lag, \* 1: the machine is behind the commit index
          Led, \* 1: a node leads already; 2: figure 8
          Refusals, \* 1: a message that changes nothing else still raises a term
          MaxNotify \* whether a leader may send requests without entries, or with some of its entries: 0 or 1

(* The rules. Each is TRUE in the code; README.md names the place of each. *)
CONSTANTS HoldAcks, SettleRequest, SyncFollower, SyncFound, StableTerm, OwnTerm, CutCommit, LateSnapshot, SkipSnapshot,
          SkipNoMore, FromFirst, KeepTail, CheckRound, CountRound, NextRound, LeadsAfter, FirstEntry, AwaitIndex,
          LeaderSends

VARIABLES
    term, voted, role,       \* of each node; term and voted are on its disk
    log,                     \* what raft takes for the node's log
    synced, settled,         \* how many of these entries the disk has for good, and how many the node takes to be there
    base,                    \* entries up to here are in the snapshot alone
    shot,                    \* the entries that the newest snapshot stands for
    commit, state,           \* the commit index; the entries that the machine has applied
    led, stood, votes, acked,\* what was said in each term
    serving,                 \* the term in which the node believes that it serves; 0: none
    round, index, heard,     \* of the leadership checks of a node
    read,                    \* a read that waits, or Nil
    done,                    \* the longest state of any machine so far: clients have its replies
    bad,                     \* what went wrong
    crashes, snapshots, reads\* how many so far

raftVars == <<term, voted, role, stood, votes>>
logVars == <<log, synced, settled, base, shot>>
machineVars == <<commit, state, done>>
saidVars == <<led, acked>>
readVars == <<serving, round, index, heard, read, reads>>
countVars == <<crashes, snapshots>>
vars == <<raftVars, logVars, machineVars, saidVars, readVars, countVars, bad>>

Terms == 1..MaxTerm
Majority(q) == 2 * Cardinality(q) > Cardinality(Server)
Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Prefix(s, n) == SubSeq(s, 1, n)
IsPrefix(a, b) == Len(a) <= Len(b) /\ a = Prefix(b, Len(a))
LastTerm(s) == IF s = <<>> THEN 0 ELSE s[Len(s)]

\* What is so however the nodes begin.
Beginning ==
    /\ shot = [n \in Server |-> <<>>] /\ base = [n \in Server |-> 0]
    /\ serving = [n \in Server |-> 0] /\ round = [n \in Server |-> 0] /\ index = [n \in Server |-> 0]
    /\ heard = [n \in Server |-> [m \in Server |-> 0]] /\ read = Nil
    /\ bad = {} /\ crashes = 0 /\ snapshots = 0 /\ reads = 0

\* All nodes are empty; or, so that longer stories are reached, one leads term 1, and all have applied its first entry.
Empty ==
    /\ Beginning
    /\ term = [n \in Server |-> 0] /\ role = [n \in Server |-> "follower"] /\ voted = [n \in Server |-> 0]
    /\ log = [n \in Server |-> <<>>] /\ state = [n \in Server |-> <<>>] /\ done = <<>>
    /\ synced = [n \in Server |-> 0] /\ settled = [n \in Server |-> 0] /\ commit = [n \in Server |-> 0]
    /\ led = [t \in Terms |-> Nil] /\ stood = [t \in Terms |-> {}] /\ votes = [t \in Terms |-> {}]
    /\ acked = [t \in Terms |-> [n \in Server |-> 0]]

Begun(l) ==
    /\ Beginning
    /\ term = [n \in Server |-> 1] /\ role = [n \in Server |-> IF n = l THEN "leader" ELSE "follower"]
    /\ voted = [n \in Server |-> 1]
    /\ log = [n \in Server |-> <<1>>] /\ state = [n \in Server |-> <<1>>] /\ done = <<1>>
    /\ synced = [n \in Server |-> 1] /\ settled = [n \in Server |-> 1] /\ commit = [n \in Server |-> 1]
    /\ led = [t \in Terms |-> IF t = 1 THEN [node |-> l, log |-> <<1>>, commit |-> 1, ends |-> {}] ELSE Nil]
    /\ stood = [t \in Terms |-> IF t = 1 THEN {[node |-> l, last |-> 0, term |-> 0]} ELSE {}]
    /\ votes = [t \in Terms |-> IF t = 1 THEN {<<n, l>> : n \in Server} ELSE {}]
    /\ acked = [t \in Terms |-> [n \in Server |-> IF t = 1 /\ n # l THEN 1 ELSE 0]]

\* Raft's paper, figure 8 (b), with three nodes: a led term 1 and kept its entry to itself, and so did c in term 2.
Figure8(a, b, c) ==
    /\ Beginning /\ Cardinality({a, b, c}) = 3
    /\ term = [n \in Server |-> 2] /\ role = [n \in Server |-> IF n = c THEN "leader" ELSE "follower"]
    /\ voted = [n \in Server |-> IF n = a THEN 1 ELSE 2]
    /\ log = [n \in Server |-> IF n = a THEN <<1>> ELSE IF n = c THEN <<2>> ELSE <<>>]
    /\ synced = [n \in Server |-> Len(log[n])] /\ settled = synced
    /\ state = [n \in Server |-> <<>>] /\ done = <<>> /\ commit = [n \in Server |-> 0]
    /\ led = [t \in Terms |-> IF t > 2 THEN Nil
                              ELSE [node |-> IF t = 1 THEN a ELSE c, log |-> <<t>>, commit |-> 0, ends |-> {}]]
    /\ stood = [t \in Terms |-> IF t > 2 THEN {} ELSE {[node |-> IF t = 1 THEN a ELSE c, last |-> 0, term |-> 0]}]
    /\ votes = [t \in Terms |-> CASE t = 1 -> {<<a, a>>, <<b, a>>} [] t = 2 -> {<<b, c>>, <<c, c>>} [] OTHER -> {}]
    /\ acked = [t \in Terms |-> [n \in Server |-> 0]]

Init == CASE Led = 1 -> \E l \in Server : Begun(l)
          [] Led = 2 -> \E a, b, c \in Server : Figure8(a, b, c)
          [] OTHER -> Empty

---------------------------------------------------------------------------
(* Elections *)

\* Stand: silence, a nomination or a hand-over (TimeoutNow) has a node stand for election; a leader, too.
Stand(n) ==
    /\ term[n] < MaxTerm
    /\ LET t == term[n] + 1 IN
        /\ Cardinality(stood[t]) < MaxCandidates
        /\ term' = [term EXCEPT ![n] = t]
        /\ voted' = [voted EXCEPT ![n] = t]
        /\ role' = [role EXCEPT ![n] = "candidate"]
        /\ votes' = [votes EXCEPT ![t] = @ \union {<<n, n>>}]
        /\ stood' = [stood EXCEPT ![t] = @ \union {[node |-> n, last |-> Len(log[n]), term |-> LastTerm(log[n])]}]
    /\ UNCHANGED <<logVars, machineVars, saidVars, readVars, countVars, bad>>

\* Vote: node n grants the vote that r asks for in term t.
Vote(n, t, r) ==
    /\ r \in stood[t] /\ r.node # n
    /\ t >= term[n] /\ voted[n] < t
    /\ \/ r.term > LastTerm(log[n])
       \/ (r.term = LastTerm(log[n]) /\ r.last >= Len(log[n]))
    /\ term' = [term EXCEPT ![n] = t]
    /\ voted' = [voted EXCEPT ![n] = t]
    /\ role' = [role EXCEPT ![n] = IF t > term[n] THEN "follower" ELSE @]
    /\ votes' = [votes EXCEPT ![t] = @ \union {<<n, r.node>>}]
    /\ UNCHANGED <<stood, logVars, machineVars, saidVars, readVars, countVars, bad>>

\* Follow: any message of a later term ends a node's term.
Follow(n, t) ==
    /\ Refusals = 1 /\ t > term[n] /\ (stood[t] # {} \/ led[t] # Nil)
    /\ term' = [term EXCEPT ![n] = t]
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ UNCHANGED <<voted, stood, votes, logVars, machineVars, saidVars, readVars, countVars, bad>>

Win(n) ==
    /\ role[n] = "candidate"
    /\ LET t == term[n] IN
        /\ Majority({m \in Server : <<m, n>> \in votes[t]})
        /\ role' = [role EXCEPT ![n] = "leader"]
        /\ led' = [led EXCEPT ![t] = [node |-> n, log |-> log[n], commit |-> commit[n],
                                       ends |-> IF shot[n] = <<>> THEN {} ELSE {Len(shot[n])}]]
        /\ bad' = IF led[t] = Nil THEN bad ELSE bad \union {"two leaders"}
    /\ UNCHANGED <<term, voted, stood, votes, logVars, machineVars, acked, readVars, countVars>>

---------------------------------------------------------------------------
(* The log *)

\* Propose: a leader has an entry in memory and may send it. The disk follows (Sync).
Propose(n) ==
    /\ role[n] = "leader" /\ Len(log[n]) < MaxLen
    /\ log' = [log EXCEPT ![n] = Append(@, term[n])]
    /\ led' = [led EXCEPT ![term[n]].log = log'[n]]
    /\ UNCHANGED <<raftVars, synced, settled, base, shot, machineVars, acked, readVars, countVars, bad>>

\* Sync: all that waits goes to the disk in one append. A crash before its end leaves any part of it.
Sync(n) ==
    /\ settled[n] < Len(log[n])
    /\ settled' = [settled EXCEPT ![n] = Len(log[n])]
    /\ synced' = settled'
    /\ UNCHANGED <<raftVars, log, base, shot, machineVars, saidVars, readVars, countVars, bad>>

\* What raft can compare at an index: an entry of the log, or the end that raft has in memory.
Visible(n, i) == i > base[n] \/ i = Len(log[n])
\* Whether the log itself goes back as far as i (parallelLog.reaches).
Reaches(n, i) == base[n] < Len(log[n]) /\ base[n] < i

\* Whether raft finds an entry of that term at i.
Same(n, i, t) == IF i <= Len(log[n]) /\ Visible(n, i) THEN log[n][i] = t ELSE FALSE

\* The log behind raft's append of es behind prev.
Appended(n, prev, es) ==
    LET differ == {i \in 1..Len(es) : prev + i > Len(log[n]) \/ log[n][prev + i] # es[i]}
        first == CHOOSE i \in differ : \A j \in differ : i <= j
    IN  IF differ = {} THEN log[n]
        ELSE Prefix(log[n], prev + first - 1) \o SubSeq(es, first, Len(es))

\* Where rpcFilter has a request begin that goes on from prev, which raft could not compare: see afterSnapshot.
Skips(n, prev, count) ==
    /\ SkipSnapshot
    /\ shot[n] # <<>> /\ ~Reaches(n, IF FromFirst THEN Max(prev, 1) ELSE prev)
    /\ prev = 0 => (FromFirst /\ count > 0)
    /\ SkipNoMore => prev <= Len(shot[n])

\* Where a request for n that goes on from prev begins for raft.
From(n, prev, count) ==
    IF Skips(n, prev, count) THEN Max(prev, Len(shot[n])) ELSE prev

\* Accepts: n, a follower in term t, takes count of the leader's entries behind prev.
Accepts(n, t, prev, count) ==
    LET from == From(n, prev, count)
        es == SubSeq(led[t].log, from + 1, prev + count)
    IN  /\ \A i \in 1..Len(es) : from + i <= Len(log[n]) => from + i > base[n]
        /\ IF Skips(n, prev, count) \/ prev = 0 THEN TRUE ELSE Same(n, prev, led[t].log[prev])

\* Commits: node n, with that log, takes c for committed. Where the machine need not lag it applies at once.
Commits(n, entries, c) ==
    /\ commit' = [commit EXCEPT ![n] = c]
    /\ state' = [state EXCEPT ![n] = IF Lag = 1 THEN @ ELSE @ \o SubSeq(entries, Len(@) + 1, c)]
    /\ done' = IF Len(state'[n]) > Len(done) THEN state'[n] ELSE done

\* Receive: a request of the leader of t that is accepted. c is the commit index that it came with.
Receive(n, t, prev, count, c) ==
    /\ led[t] # Nil /\ led[t].node # n /\ t >= term[n]
    /\ prev + count <= Len(led[t].log)
    /\ SettleRequest => settled[n] = Len(log[n])
    /\ Accepts(n, t, prev, count)
    /\ LET from == From(n, prev, count)
           es == SubSeq(led[t].log, from + 1, prev + count)
           new == Appended(n, from, es)
           tells == IF CutCommit THEN Min(c, prev + count) ELSE c
       IN /\ log' = [log EXCEPT ![n] = new]
          /\ synced' = [synced EXCEPT ![n] = IF new = log[n] THEN @
                                             ELSE IF SyncFollower THEN Len(new) ELSE Min(@, from)]
          /\ settled' = [settled EXCEPT ![n] = IF new = log[n] THEN @ ELSE Len(new)]
          /\ Commits(n, new, Max(commit[n], Min(tells, Len(new))))
          /\ acked' = [acked EXCEPT ![t][n] = Max(@, prev + count)]
          /\ bad' = IF IsPrefix(Prefix(log[n], commit[n]), new) THEN bad ELSE bad \union {"committed entries replaced"}
    /\ term' = [term EXCEPT ![n] = t]
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ UNCHANGED <<voted, stood, votes, base, shot, led, readVars, countVars>>

\* Mixed: a sender of a former leadership has read the entry before of its own log, and then entries that the next leader
\* has put there. Who takes that is still in the former term.
Mixed(n, t, prev, count) ==
    /\ ~LeaderSends /\ led[t] # Nil /\ led[t].node # n /\ t >= term[n] /\ term[led[t].node] > t
    /\ prev <= Len(led[t].log) /\ prev + count <= Len(log[led[t].node])
    /\ settled[n] = Len(log[n]) /\ Same(n, prev, led[t].log[prev])
    /\ log' = [log EXCEPT ![n] = Appended(n, prev, SubSeq(log[led[t].node], prev + 1, prev + count))]
    /\ synced' = [synced EXCEPT ![n] = Len(log'[n])] /\ settled' = [settled EXCEPT ![n] = Len(log'[n])]
    /\ term' = [term EXCEPT ![n] = t]
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ UNCHANGED <<voted, stood, votes, base, shot, machineVars, saidVars, readVars, countVars, bad>>

\* Delete: raft deletes the tail from i on, which the leader of t does not have. Its append, in Receive, may never come.
Delete(n, t, i) ==
    /\ MaxCrash > 0 /\ led[t] # Nil /\ led[t].node # n /\ t >= term[n]
    /\ i <= Len(log[n]) /\ i <= Len(led[t].log) /\ i > base[n]
    /\ log[n][i] # led[t].log[i]
    /\ SettleRequest => settled[n] = Len(log[n])
    /\ Accepts(n, t, i - 1, 1)
    /\ log' = [log EXCEPT ![n] = Prefix(@, i - 1)]
    /\ synced' = [synced EXCEPT ![n] = Min(@, i - 1)] /\ settled' = [settled EXCEPT ![n] = Min(@, i - 1)]
    /\ bad' = IF i > commit[n] THEN bad ELSE bad \union {"committed entries replaced"}
    /\ term' = [term EXCEPT ![n] = t]
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ UNCHANGED <<voted, stood, votes, base, shot, machineVars, saidVars, readVars, countVars>>

\* Commit: a follower's acknowledgement, handed to raft, completes a majority with this node.
Commit(n, i) ==
    /\ role[n] = "leader" /\ i > commit[n] /\ i <= Len(log[n])
    /\ OwnTerm => log[n][i] = term[n]
    /\ HoldAcks => i <= settled[n]
    /\ Majority({m \in Server : m = n \/ acked[term[n]][m] >= i})
    /\ Commits(n, log[n], i)
    /\ led' = [led EXCEPT ![term[n]].commit = i]
    /\ UNCHANGED <<raftVars, logVars, acked, readVars, countVars, bad>>

\* Apply: the machine gets what is committed, and clients get the replies.
Apply(n) ==
    /\ Lag = 1 /\ Len(state[n]) < commit[n]
    /\ state' = [state EXCEPT ![n] = @ \o SubSeq(log[n], Len(@) + 1, commit[n])]
    /\ done' = IF Len(state'[n]) > Len(done) THEN state'[n] ELSE done
    /\ UNCHANGED <<raftVars, logVars, commit, saidVars, readVars, countVars, bad>>

\* Crash: the process or the power goes, and the node starts again. The new process finds k entries: what was written
\* and not synced may be there, and may be gone after the next crash.
CrashWith(n, k, entries) ==
    /\ crashes < MaxCrash /\ crashes' = crashes + 1
    /\ k \in Max(synced[n], Len(shot[n]))..Len(entries)
    /\ log' = [log EXCEPT ![n] = [i \in 1..k |-> IF i <= Len(shot[n]) /\ i <= base[n] THEN shot[n][i] ELSE entries[i]]]
    /\ synced' = [synced EXCEPT ![n] = IF SyncFound THEN k ELSE Max(@, Len(shot[n]))]
    /\ settled' = [settled EXCEPT ![n] = k]
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ term' = [term EXCEPT ![n] = IF StableTerm THEN @ ELSE LastTerm(log'[n])]
    /\ voted' = [voted EXCEPT ![n] = IF StableTerm THEN @ ELSE LastTerm(log'[n])]
    /\ commit' = [commit EXCEPT ![n] = Len(shot[n])]
    /\ state' = [state EXCEPT ![n] = shot[n]]
    /\ serving' = [serving EXCEPT ![n] = 0] /\ round' = [round EXCEPT ![n] = 0] /\ index' = [index EXCEPT ![n] = 0]
    /\ heard' = [heard EXCEPT ![n] = [m \in Server |-> 0]]
    /\ read' = IF read # Nil /\ read.node = n THEN Nil ELSE read
    /\ UNCHANGED <<stood, votes, base, shot, done, saidVars, snapshots, reads, bad>>
Crash(n, k) == CrashWith(n, k, log[n])

---------------------------------------------------------------------------
(* Snapshots *)

\* Snapshot: the newest snapshot is the state; the log keeps what follows b.
Snapshot(n, b) ==
    /\ snapshots < MaxSnapshot /\ snapshots' = snapshots + 1
    /\ Len(state[n]) > Len(shot[n])
    /\ b \in base[n]..Len(state[n])
    /\ shot' = [shot EXCEPT ![n] = state[n]]
    /\ base' = [base EXCEPT ![n] = b]
    /\ led' = IF role[n] = "leader" THEN [led EXCEPT ![term[n]].ends = @ \union {Len(state[n])}] ELSE led
    /\ UNCHANGED <<raftVars, log, synced, settled, machineVars, acked, readVars, crashes, bad>>

\* Late: whether raft would go back, or has the entry at the snapshot's end in its log.
Late(n, s, content) ==
    s <= Len(state[n]) \/ (s <= Len(log[n]) /\ s > base[n] /\ log[n][s] = content[s])

\* Install: a snapshot of the leader of t, up to s, arrives.
Install(n, t, s) ==
    /\ led[t] # Nil /\ led[t].node # n /\ t >= term[n] /\ s \in led[t].ends
    /\ LET content == Prefix(led[t].log, s)
           late == LateSnapshot /\ Late(n, s, content)
           tail == SubSeq(log[n], s + 1, Len(log[n]))
       IN IF late THEN /\ s <= settled[n]
                       /\ UNCHANGED <<logVars, machineVars, bad>>
          ELSE /\ s <= Len(log[n]) => s <= settled[n]
               /\ log' = [log EXCEPT ![n] =
                    IF Len(@) < s THEN content
                    ELSE IF Len(@) = s THEN Prefix(content, s - 1) \o <<@[s]>>
                    ELSE IF KeepTail THEN content \o tail
                    ELSE [i \in 1..Len(@) |-> IF i <= s THEN content[i] ELSE @[i]]]
               /\ base' = [base EXCEPT ![n] = IF KeepTail \/ Len(log[n]) <= s THEN s ELSE Len(log[n])]
               /\ synced' = [synced EXCEPT ![n] = IF Len(log[n]) <= s THEN s ELSE Max(@, s)]
               /\ settled' = [settled EXCEPT ![n] = IF Len(log[n]) <= s THEN s ELSE Max(@, s)]
               /\ shot' = [shot EXCEPT ![n] = content]
               /\ state' = [state EXCEPT ![n] = content]
               /\ done' = IF s > Len(done) THEN content ELSE done
               /\ commit' = [commit EXCEPT ![n] = Max(@, s)]
               /\ bad' = IF s < Len(state[n]) THEN bad \union {"the state went back"} ELSE bad
    /\ acked' = [acked EXCEPT ![t][n] = Max(@, s)]
    /\ term' = [term EXCEPT ![n] = t]
    /\ role' = [role EXCEPT ![n] = "follower"]
    /\ UNCHANGED <<voted, stood, votes, led, readVars, countVars>>

---------------------------------------------------------------------------
(* Reads: server/replica/rounds.go *)

\* Serve: a leader serves when an entry of its own term is applied.
Serve(n) ==
    /\ MaxRead > 0 /\ role[n] = "leader" /\ serving[n] # term[n]
    /\ FirstEntry => LastTerm(state[n]) = term[n]
    /\ serving' = [serving EXCEPT ![n] = term[n]]
    /\ round' = [round EXCEPT ![n] = 0] /\ index' = [index EXCEPT ![n] = 0]
    /\ heard' = [heard EXCEPT ![n] = [m \in Server |-> 0]]
    /\ UNCHANGED <<raftVars, logVars, machineVars, saidVars, read, reads, countVars, bad>>

\* Lose: the replica notices later than raft that the leadership is over.
Lose(n) ==
    /\ serving[n] # 0 /\ (role[n] # "leader" \/ term[n] # serving[n])
    /\ serving' = [serving EXCEPT ![n] = 0]
    /\ read' = IF read # Nil /\ read.node = n THEN Nil ELSE read
    /\ UNCHANGED <<raftVars, logVars, machineVars, saidVars, round, index, heard, reads, countVars, bad>>

\* Ask: a read arrives. It must see all that clients know by now.
Ask(n) ==
    /\ reads < MaxRead /\ reads' = reads + 1 /\ read = Nil /\ serving[n] # 0
    /\ read' = [node |-> n, floor |-> Len(done), round |-> IF NextRound THEN round[n] + 1 ELSE round[n]]
    /\ UNCHANGED <<raftVars, logVars, machineVars, saidVars, serving, round, index, heard, countVars, bad>>

Begin(n) ==
    /\ serving[n] # 0 /\ round[n] < MaxRound
    /\ round' = [round EXCEPT ![n] = @ + 1]
    /\ index' = [index EXCEPT ![n] = commit[n]]
    /\ UNCHANGED <<raftVars, logVars, machineVars, saidVars, serving, heard, read, reads, countVars, bad>>

\* Heartbeat: m answers, in its term, a request that n sent in the newest round. A sender may be at work for a moment
\* after raft's main loop has left the leadership.
Heartbeat(n, m) ==
    /\ n # m /\ serving[n] # 0 /\ term[m] <= serving[n] /\ heard[n][m] < round[n]
    /\ heard' = [heard EXCEPT ![n][m] = round[n]]
    /\ term' = [term EXCEPT ![m] = serving[n]]
    /\ role' = [role EXCEPT ![m] = "follower"]
    /\ UNCHANGED <<voted, stood, votes, logVars, machineVars, saidVars, serving, round, index, read, reads, countVars,
                   bad>>

Confirmed(n, r) ==
    Majority({m \in Server : m = n \/ IF CountRound THEN heard[n][m] >= r ELSE acked[serving[n]][m] + heard[n][m] > 0})

Answer(n) ==
    /\ read # Nil /\ read.node = n /\ serving[n] # 0
    /\ CheckRound => round[n] >= read.round /\ Confirmed(n, read.round)
    /\ CheckRound /\ LeadsAfter => role[n] = "leader" /\ term[n] = serving[n]
    /\ CheckRound /\ AwaitIndex => Len(state[n]) >= index[n]
    /\ bad' = IF Len(state[n]) < read.floor THEN bad \union {"a stale read"} ELSE bad
    /\ read' = Nil
    /\ UNCHANGED <<raftVars, logVars, machineVars, saidVars, serving, round, index, heard, reads, countVars>>

---------------------------------------------------------------------------

Election == \E n \in Server :
    \/ Stand(n) \/ Win(n)
    \/ \E t \in Terms : Follow(n, t) \/ \E r \in stood[t] : Vote(n, t, r)

Requests == \E n \in Server, t \in Terms :
    /\ led[t] # Nil
    /\ \E prev \in 0..Len(led[t].log) :
        \E count \in IF MaxNotify = 0 THEN {Len(led[t].log) - prev} \ {0} ELSE 0..(Len(led[t].log) - prev) :
            Receive(n, t, prev, count, led[t].commit)

Next ==
    \/ Election
    \/ Requests
    \/ \E n \in Server :
        \/ Propose(n) \/ Sync(n) \/ Apply(n)
        \/ \E i \in 1..MaxLen : Commit(n, i)
        \/ \E k \in 0..MaxLen : Crash(n, k)
        \/ \E b \in {base[n], Len(state[n])} : Snapshot(n, b)
        \/ \E t \in Terms : led[t] # Nil /\ \E s \in led[t].ends : Install(n, t, s)
        \/ \E t \in Terms, i \in 1..MaxLen : Delete(n, t, i) \/ \E count \in 1..MaxLen : Mixed(n, t, i, count)
        \/ Serve(n) \/ Lose(n) \/ Ask(n) \/ Begin(n) \/ Answer(n)
        \/ \E m \in Server : Heartbeat(n, m)

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
(* What holds *)

ElectionSafety == "two leaders" \notin bad

\* Every leader has all that clients know, but for one that was deposed and does not know it.
LeaderCompleteness ==
    \A n \in Server : role[n] = "leader" /\ (\A m \in Server : term[m] <= term[n]) =>
        /\ Len(log[n]) >= Len(done)
        /\ \A i \in 1..Len(done) : log[n][i] = done[i] \/ i = base[n]

\* An index and a term name an entry, and all before it.
LogMatching ==
    \A m, n \in Server : LET from == Max(base[m], base[n]) IN
        \A i \in from + 1..Min(Len(log[m]), Len(log[n])) :
            log[m][i] = log[n][i] => \A j \in from + 1..i : log[m][j] = log[n][j]

\* Machines apply the same entries in the same order.
StateMachineSafety == \A n \in Server : IsPrefix(state[n], done)
CommittedStays == "committed entries replaced" \notin bad

\* What a machine has applied is on the disks of a majority: no crash takes an acknowledged write.
Durable ==
    Majority({n \in Server :
        \/ Len(shot[n]) >= Len(done)
        \/ /\ synced[n] >= Len(done)
           /\ \A i \in 1..Len(done) : i > base[n] => log[n][i] = done[i]})
AcknowledgedIsOnDisk == \A n \in Server : term[n] > 0 => synced[n] >= acked[term[n]][n]
NeverBack == "the state went back" \notin bad
ReadsAreLinearizable == "a stale read" \notin bad

\* However often a follower refused, by a disk say, it takes something of what the leader comes to. A leader goes back
\* step by step: to the first entry if it has that, and else to where only its snapshot helps. If that is late for the
\* follower, the leader goes on from the snapshot's end, and back again.
CanFollow ==
    \A n \in Server, l \in Server :
        (role[l] = "leader" /\ n # l /\ settled[n] = Len(log[n]) /\ (\A m \in Server : term[m] <= term[l])) =>
            LET takes(p) == Accepts(n, term[l], p, Len(log[l]) - p)
                end == Len(shot[l])
            IN IF base[l] = 0 THEN takes(0)
               ELSE \/ ~(LateSnapshot /\ Late(n, end, shot[l]))
                    \/ \E p \in Min(base[l] + 1, end)..end : takes(p)

Symmetry == Permutations(Server)
=============================================================================
