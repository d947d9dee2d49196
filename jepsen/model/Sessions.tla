------------------------------ MODULE Sessions -------------------------------
(* Batches of one node's session over the committed log: fsm/session.go, server/replica/queue.go. Log.tla shows that
   there is one log; here it only grows.

   A node numbers its batches, and hands them to whoever leads until it has the replies. What was handed over may enter
   the log at any later time, any number of times, or never: leaders change, links break, the proposer's entry is lost.
   Each start of the node is another life, which counts from 1 again. *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Replica, Nil, MaxLife, MaxBatch, MaxLog, MaxSnapshot

(* The rules. Each is TRUE in the code; README.md names the place of each. *)
CONSTANTS Dedup, OldLife, NewLife, LifeStored, SessionInSnapshot, HandedIsUncertain, FirstHasLow

VARIABLES
    life, next, low, \* of the node: its life, the next number, and the least number that waits
    waiting,         \* batches that wait for a reply
    handed,          \* batches that a leader was handed, each with the low of that time
    log,             \* what is committed
    machine,         \* of each replica: how far it is, its session, and the batches that changed it
    snapshot,        \* a machine, or Nil
    answered, refused, \* what clients were told: done, and surely not done
    made, snapshots  \* how many batches and snapshots so far

vars == <<life, next, low, waiting, handed, log, machine, snapshot, answered, refused, made, snapshots>>

Fresh == [at |-> 0, life |-> 0, low |-> 0, applied |-> {}, effects |-> <<>>]

Init ==
    /\ life = 1 /\ next = 1 /\ low = 1 /\ waiting = {} /\ handed = {} /\ log = <<>>
    /\ machine = [r \in Replica |-> Fresh] /\ snapshot = Nil
    /\ answered = {} /\ refused = {} /\ made = 0 /\ snapshots = 0

nodeVars == <<life, next, low, waiting, made>>

Lowest(w, n) == IF w = {} THEN n ELSE CHOOSE s \in {b.seq : b \in w} : \A b \in w : s <= b.seq

\* A client's batch gets the next number. Its id is what a checker would know it by.
Arrive ==
    /\ made < MaxBatch /\ made' = made + 1
    /\ waiting' = waiting \union {[id |-> made', seq |-> next]}
    /\ next' = next + 1
    /\ UNCHANGED <<life, low, handed, log, machine, snapshot, answered, refused, snapshots>>

\* Hand: a consumer takes a batch that waits; again after a failover.
Hand(b) ==
    /\ b \in waiting
    /\ handed' = handed \union {[id |-> b.id, life |-> life, seq |-> b.seq, low |-> IF FirstHasLow THEN low ELSE next]}
    /\ UNCHANGED <<nodeVars, log, machine, snapshot, answered, refused, snapshots>>

\* Propose: a copy gets into the log.
Propose(h) ==
    /\ Len(log) < MaxLog /\ h \in handed
    /\ log' = Append(log, h)
    /\ UNCHANGED <<nodeVars, handed, machine, snapshot, answered, refused, snapshots>>

\* What a machine does with a batch: session.begin and add.
Session(m, b) ==
    IF NewLife /\ b.life > m.life THEN [m EXCEPT !.life = b.life, !.low = b.low, !.applied = {}]
    ELSE [m EXCEPT !.low = IF b.low > @ THEN b.low ELSE @]
Dropped(m, b) ==
    \/ OldLife /\ b.life < m.life
    \/ Dedup /\ LET s == Session(m, b) IN b.seq < s.low \/ b.seq \in s.applied
After(m, b) ==
    LET s == IF ~OldLife /\ b.life < m.life THEN [m EXCEPT !.life = b.life, !.low = b.low, !.applied = {}]
             ELSE Session(m, b)
    IN IF OldLife /\ b.life < m.life THEN [m EXCEPT !.at = @ + 1]
       ELSE IF Dedup /\ (b.seq < s.low \/ b.seq \in s.applied) THEN [s EXCEPT !.at = @ + 1]
       ELSE [s EXCEPT !.at = @ + 1, !.applied = @ \union {b.seq}, !.effects = Append(@, b.id)]

\* Apply: the reply of the first machine that applies a batch reaches the node, or gets lost.
Apply(r, replied) ==
    /\ machine[r].at < Len(log)
    /\ LET b == log[machine[r].at + 1]
           m == After(machine[r], b)
           mine == {w \in waiting : w.id = b.id /\ b.life = life}
           changed == Len(m.effects) > Len(machine[r].effects)
       IN /\ machine' = [machine EXCEPT ![r] = m]
          /\ IF replied /\ changed /\ mine # {}
             THEN /\ answered' = answered \union {b.id}
                  /\ waiting' = waiting \ mine
                  /\ low' = Lowest(waiting', next)
             ELSE UNCHANGED <<answered, waiting, low>>
    /\ UNCHANGED <<life, next, made, handed, log, snapshot, refused, snapshots>>

\* GiveUp: a batch's time is over. It is surely not done if nobody was handed it, and else its fate is unknown.
GiveUp(b) ==
    /\ b \in waiting
    /\ waiting' = waiting \ {b}
    /\ low' = Lowest(waiting', next)
    /\ refused' = IF HandedIsUncertain /\ \E h \in handed : h.id = b.id THEN refused ELSE refused \union {b.id}
    /\ UNCHANGED <<life, next, made, handed, log, machine, snapshot, answered, snapshots>>

\* Restart: the node's next life.
Restart ==
    /\ life < MaxLife
    /\ life' = IF LifeStored THEN life + 1 ELSE life
    /\ (~LifeStored) => next > 1
    /\ next' = 1 /\ low' = 1 /\ waiting' = {}
    /\ UNCHANGED <<made, handed, log, machine, snapshot, answered, refused, snapshots>>

Snapshot(r) ==
    /\ snapshots < MaxSnapshot /\ snapshots' = snapshots + 1 /\ machine[r].at > 0
    /\ snapshot' = IF SessionInSnapshot THEN machine[r] ELSE [machine[r] EXCEPT !.life = 0, !.low = 0, !.applied = {}]
    /\ UNCHANGED <<nodeVars, handed, log, machine, answered, refused>>

Install(r) ==
    /\ snapshot # Nil /\ snapshot.at > machine[r].at
    /\ machine' = [machine EXCEPT ![r] = snapshot]
    /\ UNCHANGED <<nodeVars, handed, log, snapshot, answered, refused, snapshots>>

Next ==
    \/ Arrive \/ Restart
    \/ \E b \in waiting : Hand(b) \/ GiveUp(b)
    \/ \E h \in handed : Propose(h)
    \/ \E r \in Replica : Snapshot(r) \/ Install(r) \/ \E replied \in BOOLEAN : Apply(r, replied)

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------

Effects(r) == {machine[r].effects[i] : i \in DOMAIN machine[r].effects}

AtMostOnce == \A r \in Replica : Cardinality(Effects(r)) = Len(machine[r].effects)

\* Machines that are equally far are equal.
Agree == \A r, s \in Replica : machine[r].at = machine[s].at => machine[r] = machine[s]

AnsweredIsDone == \A r \in Replica : machine[r].at = Len(log) => answered \subseteq Effects(r)
RefusedIsNotDone == \A r \in Replica : refused \intersect Effects(r) = {}

\* A batch that waits still has what it needs to be applied: what the log has of it is applied by who has the log.
NothingLost ==
    \A r \in Replica : machine[r].at = Len(log) =>
        \A w \in waiting : (\E i \in DOMAIN log : log[i].id = w.id) => w.id \in Effects(r)

Symmetry == {p \in [Replica -> Replica] : \A a, b \in Replica : a # b => p[a] # p[b]}
=============================================================================
