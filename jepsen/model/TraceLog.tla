------------------------------- MODULE TraceLog -------------------------------
(* Whether Log.tla allows what nodes did. TraceData.tla has the steps, which trace_test.go makes of a run in virtual
   time: see server/raftnode/trace_on.go. TLC takes one step after the other; where none is allowed it reports a
   deadlock.

   Two actions of the model are not in a trace, and are taken when a step needs them: a leader's commit is known from
   the first request or entry that shows it, and a follower's from what it applies. *)
EXTENDS Log, TraceData

VARIABLES at,    \* the next step
          handed \* what followers' acknowledgements the leader's raft was handed, in each term

traceVars == <<vars, at, handed>>

E == Trace[at]
N == E.n
T == E.t
Stays == UNCHANGED <<readVars, countVars>>

\* Every node begins with the first configuration, which no leader sent.
TraceInit ==
    /\ Beginning
    /\ term = [n \in Server |-> 1] /\ role = [n \in Server |-> "follower"] /\ voted = [n \in Server |-> 0]
    /\ log = [n \in Server |-> <<1>>] /\ state = [n \in Server |-> <<>>] /\ done = <<>>
    /\ synced = [n \in Server |-> 1] /\ settled = [n \in Server |-> 1] /\ commit = [n \in Server |-> 0]
    /\ led = [t \in Terms |-> IF t = 1 THEN [node |-> Nil, log |-> <<1>>, commit |-> 0, ends |-> {}] ELSE Nil]
    /\ stood = [t \in Terms |-> {}] /\ votes = [t \in Terms |-> {}]
    /\ acked = [t \in Terms |-> [n \in Server |-> 0]]
    /\ at = 1 /\ handed = [t \in Terms |-> [n \in Server |-> 0]]

\* Start: the disk may have what a follower was about to store when its process ended.
Start ==
    /\ LET l == led[term[N]] IN
        IF E.i > Len(log[N]) /\ l # Nil /\ Len(log[N]) > 0
        THEN /\ E.i <= Len(l.log) /\ l.log[Len(log[N])] = LastTerm(log[N])
             /\ CrashWith(N, E.i, log[N] \o SubSeq(l.log, Len(log[N]) + 1, E.i))
        ELSE Crash(N, E.i)
    /\ Len(shot[N]) = E.z /\ base[N] <= E.f /\ term[N] = T
    /\ SubSeq(log[N], E.f + 1, E.i) = E.s
    /\ UNCHANGED handed

\* Term: a node goes to another term, of another's message or to stand.
Term ==
    /\ T >= term[N]
    /\ term' = [term EXCEPT ![N] = T]
    /\ role' = [role EXCEPT ![N] = "follower"]
    /\ UNCHANGED <<voted, stood, votes, logVars, machineVars, saidVars, bad, handed>> /\ Stays

Claims(n, t) == {r \in stood[t] : r.node = n}

\* Stood: as Stand, of a node that has gone to the term.
Stood ==
    /\ term[N] = T /\ voted[N] < T
    /\ voted' = [voted EXCEPT ![N] = T]
    /\ role' = [role EXCEPT ![N] = "candidate"]
    /\ votes' = [votes EXCEPT ![T] = @ \union {<<N, N>>}]
    /\ stood' = [stood EXCEPT ![T] = @ \union {[node |-> N, last |-> Len(log[N]), term |-> LastTerm(log[N])]}]
    /\ UNCHANGED <<term, logVars, machineVars, saidVars, bad, handed>> /\ Stays

Asked ==
    IF Claims(N, T) = {} THEN Stood /\ Len(log[N]) = E.i /\ LastTerm(log[N]) = E.p
    ELSE /\ [node |-> N, last |-> E.i, term |-> E.p] \in stood[T]
         /\ UNCHANGED <<vars, handed>>

Voted ==
    IF E.o = N THEN IF Claims(N, T) = {} THEN Stood ELSE UNCHANGED <<vars, handed>>
    ELSE /\ \E r \in Claims(E.o, T) : Vote(N, T, r)
         /\ UNCHANGED handed

Won == term[N] = T /\ Win(N) /\ UNCHANGED handed

\* Appended by a leader, in memory.
AppendedHere ==
    /\ role[N] = "leader" /\ E.f = Len(log[N]) /\ \A i \in DOMAIN E.s : E.s[i] = term[N]
    /\ log' = [log EXCEPT ![N] = @ \o E.s]
    /\ led' = [led EXCEPT ![term[N]].log = log'[N]]
    /\ UNCHANGED <<raftVars, synced, settled, base, shot, machineVars, acked, bad, handed>> /\ Stays

\* The disk of a leader has what it appended. A follower's append follows as a step of its own.
Synced ==
    /\ IF E.i <= Len(log[N]) /\ E.i > settled[N]
       THEN settled' = [settled EXCEPT ![N] = E.i] /\ synced' = settled'
       ELSE UNCHANGED <<settled, synced>>
    /\ UNCHANGED <<raftVars, log, base, shot, machineVars, saidVars, bad, handed>> /\ Stays

\* What a follower stores is its leader's.
Stored ==
    /\ led[term[N]] # Nil
    /\ SubSeq(led[term[N]].log, E.f + 1, E.f + Len(E.s)) = E.s
    /\ Receive(N, term[N], E.f, Len(E.s), 0)
    /\ UNCHANGED handed

\* A compaction, or a tail that its leader does not have.
Deleted ==
    IF E.f <= base[N] THEN
        /\ base' = [base EXCEPT ![N] = Max(@, Min(E.i, Len(shot[N])))]
        /\ UNCHANGED <<raftVars, log, synced, settled, shot, machineVars, saidVars, bad, handed>> /\ Stays
    ELSE
        /\ E.f >= commit[N] /\ led[term[N]] # Nil /\ E.f < Len(led[term[N]].log)
        /\ led[term[N]].log[E.f + 1] # log[N][E.f + 1]
        /\ log' = [log EXCEPT ![N] = Prefix(@, E.f)]
        /\ synced' = [synced EXCEPT ![N] = Min(@, E.f)] /\ settled' = [settled EXCEPT ![N] = Min(@, E.f)]
        /\ UNCHANGED <<raftVars, base, shot, machineVars, saidVars, bad, handed>> /\ Stays

\* A majority, as the leader of t counts it, has an entry of t from i on; or n knows i from a former leader.
Counted(n, t, i) ==
    /\ led[t] # Nil /\ led[t].node = n
    /\ \E j \in i..Min(Len(led[t].log), settled[n]) :
        led[t].log[j] = t /\ Majority({m \in Server : m = n \/ handed[t][m] >= j})
Told(n, i) ==
    \E t \in 1..term[n] : /\ led[t] # Nil /\ led[t].commit >= i
                          /\ i <= Len(log[n]) /\ Prefix(led[t].log, i) = Prefix(log[n], i)

\* A request says what its leader has, and no more than is committed.
Sent ==
    /\ led[T] # Nil /\ led[T].node = N
    /\ E.f + Len(E.s) <= Len(led[T].log) /\ SubSeq(led[T].log, E.f + 1, E.f + Len(E.s)) = E.s
    /\ E.f > 0 => led[T].log[E.f] = E.p
    /\ E.i > led[T].commit => (Counted(N, T, E.i) \/ Told(N, E.i))
    /\ led' = [led EXCEPT ![T].commit = Max(@, E.i)]
    /\ commit' = IF term[N] = T THEN [commit EXCEPT ![N] = Max(@, E.i)] ELSE commit
    /\ UNCHANGED <<raftVars, logVars, state, done, acked, bad, handed>> /\ Stays

\* Raft is handed an acknowledgement: the follower has it on the disk, and so has the leader.
Acknowledged ==
    /\ led[T] # Nil /\ led[T].node = N /\ E.i <= settled[N]
    /\ acked[T][E.o] < E.i => (E.i <= synced[E.o] /\ Prefix(log[E.o], E.i) = Prefix(led[T].log, E.i))
    /\ acked' = [acked EXCEPT ![T][E.o] = Max(@, E.i)]
    /\ handed' = [handed EXCEPT ![T][E.o] = Max(@, E.i)]
    /\ UNCHANGED <<raftVars, logVars, machineVars, led, bad>> /\ Stays

Applied ==
    /\ E.i > Len(state[N]) /\ E.i <= Len(log[N]) /\ log[N][E.i] = T
    /\ E.i > commit[N] => (Told(N, E.i) \/ \E t \in Terms : Counted(N, t, E.i))
    /\ commit' = [commit EXCEPT ![N] = Max(@, E.i)]
    /\ led' = IF role[N] = "leader" THEN [led EXCEPT ![term[N]].commit = Max(@, E.i)] ELSE led
    /\ state' = [state EXCEPT ![N] = Prefix(log[N], E.i)]
    /\ done' = IF E.i > Len(done) THEN state'[N] ELSE done
    /\ UNCHANGED <<raftVars, logVars, acked, bad, handed>> /\ Stays

\* A snapshot of the node's own, or its leader's.
Snapshots ==
    IF E.i <= Len(state[N]) THEN
        /\ state[N][E.i] = T
        /\ shot' = [shot EXCEPT ![N] = IF E.i > Len(@) THEN Prefix(state[N], E.i) ELSE @]
        /\ led' = IF role[N] = "leader" THEN [led EXCEPT ![term[N]].ends = @ \union {E.i}] ELSE led
        /\ UNCHANGED <<raftVars, log, synced, settled, base, machineVars, acked, bad, handed>> /\ Stays
    ELSE
        /\ led[term[N]] # Nil /\ led[term[N]].log[E.i] = T
        /\ Install(N, term[N], E.i) /\ UNCHANGED handed

Step ==
    /\ at <= Len(Trace) /\ at' = at + 1
    /\ CASE E.e = "start" -> Start
         [] E.e = "term" -> Term
         [] E.e = "ask" -> Asked
         [] E.e = "vote" -> Voted
         [] E.e = "lead" -> Won
         [] E.e = "append" -> AppendedHere
         [] E.e = "sync" -> Synced
         [] E.e = "store" -> Stored
         [] E.e = "delete" -> Deleted
         [] E.e = "send" -> Sent
         [] E.e = "acknowledged" -> Acknowledged
         [] E.e = "apply" -> Applied
         [] E.e = "snapshot" -> Snapshots

Over == at > Len(Trace) /\ UNCHANGED traceVars

TraceSpec == TraceInit /\ [][Step \/ Over]_traceVars
=============================================================================
