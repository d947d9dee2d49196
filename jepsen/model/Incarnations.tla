---------------------------- MODULE Incarnations -----------------------------
(* Processes with one node's identity, and the other members, which remember the newest incarnation:
   server/incarnation, server/bootstrap (prove.go), server/peer (incarnations.go).

   An operator may copy the node's folder, put an old copy back, and start processes on both. An incarnation is a count
   of starts and a number drawn at random, which is taken to be drawn once. *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Member,   \* the other voters
          Folder,   \* places for a copy of the node's folder
          Nil, MaxStart, MaxCopy, MaxLost

(* The rules. Each is TRUE in the code, but for InTime, which is an assumption; README.md names the place of each. *)
CONSTANTS Follows, Random, NumberFirst, KnownStored, ProveFirst, CutOff, InTime

VARIABLES
    folder,  \* of each place: the lineage on that disk, a sequence of incarnations
    process, \* of each place: the process that runs there, or Nil
    known,   \* of each member: the incarnation that it remembers, on its disk; Nil: none
    linked,  \* <<place, member>>: the process has connections with the member
    lost,    \* members that never come back
    starts, copies

vars == <<folder, process, known, linked, lost, starts, copies>>

\* An incarnation: the count, the draw, and from which it descends, which only the invariants know.
None == [count |-> 0, draw |-> 0, past |-> {}]

Init ==
    /\ folder \in {[f \in Folder |-> IF f = g THEN <<None>> ELSE <<>>] : g \in Folder}
    /\ process = [f \in Folder |-> Nil] /\ known = [m \in Member |-> Nil]
    /\ linked = {} /\ lost = {} /\ starts = 0 /\ copies = 0

Last(s) == s[Len(s)]
Same(a, b) == a.count = b.count /\ (Random => a.draw = b.draw)

\* Start: the lineage gets another incarnation, on the disk before anybody hears of it.
Start(f) ==
    /\ process[f] = Nil /\ folder[f] # <<>> /\ starts < MaxStart /\ starts' = starts + 1
    /\ LET before == Last(folder[f])
           a == [count |-> before.count + 1, draw |-> starts', past |-> before.past \union {before.draw}]
           l == Append(folder[f], a)
       IN /\ process' = [process EXCEPT ![f] = [lineage |-> l, by |-> {}, proved |-> FALSE]]
          /\ folder' = IF NumberFirst THEN [folder EXCEPT ![f] = l] ELSE folder
    /\ UNCHANGED <<known, linked, lost, copies>>

End(f) == /\ process' = [process EXCEPT ![f] = Nil]
          /\ linked' = {l \in linked : l[1] # f}

Kill(f) ==
    /\ process[f] # Nil /\ End(f)
    /\ UNCHANGED <<folder, known, lost, starts, copies>>

\* Copy: the operator puts the folder of another place here.
Copy(f, g) ==
    /\ f # g /\ folder[f] # <<>> /\ process[g] = Nil /\ copies < MaxCopy /\ copies' = copies + 1
    /\ folder' = [folder EXCEPT ![g] = folder[f]]
    /\ UNCHANGED <<process, known, linked, lost, starts>>

\* Lineage.Follows: the present incarnation is the known one, or descends from it, or the lineage begins later.
Admits(m, l) ==
    \/ ~Follows \/ known[m] = Nil
    \/ \E i \in DOMAIN l : Same(l[i], known[m])
    \/ known[m] # Nil /\ known[m].count < l[1].count

\* Meet: a handshake. The member admits the process and has that on its disk, or refuses, and the process ends.
Meet(f, m) ==
    /\ process[f] # Nil /\ m \notin lost
    /\ LET p == process[f]
           a == Last(p.lineage)
       IN IF Admits(m, p.lineage)
          THEN /\ known' = [known EXCEPT ![m] = a]
               /\ process' = [process EXCEPT ![f].by = @ \union {m}]
               /\ linked' = {l \in linked : CutOff => (l[2] # m \/ l[1] = f)} \union {<<f, m>>}
          ELSE /\ End(f) /\ UNCHANGED known
    /\ UNCHANGED <<folder, lost, starts, copies>>

\* Prove: enough members have admitted the process; the folder's lineage begins anew.
Prove(f) ==
    /\ process[f] # Nil /\ ~process[f].proved
    /\ 2 * (Cardinality(process[f].by) + 1) > Cardinality(Member) + 1
    /\ InTime => Member \ lost \subseteq process[f].by
    /\ process' = [process EXCEPT ![f].proved = TRUE, ![f].lineage = <<Last(@)>>]
    /\ folder' = [folder EXCEPT ![f] = <<Last(process[f].lineage)>>]
    /\ UNCHANGED <<known, linked, lost, starts, copies>>

\* Forget: a member starts again. Its connections are gone.
Forget(m) ==
    /\ linked' = {l \in linked : l[2] # m}
    /\ known' = IF KnownStored THEN known ELSE [known EXCEPT ![m] = Nil]
    /\ linked' # linked
    /\ UNCHANGED <<folder, process, lost, starts, copies>>

Lose(m) ==
    /\ m \notin lost /\ Cardinality(lost) < MaxLost
    /\ lost' = lost \union {m} /\ linked' = {l \in linked : l[2] # m}
    /\ UNCHANGED <<folder, process, known, starts, copies>>

Next ==
    \/ \E f \in Folder :
        Start(f) \/ Kill(f) \/ Prove(f) \/ (\E g \in Folder : Copy(f, g)) \/ (\E m \in Member : Meet(f, m))
    \/ \E m \in Member : Forget(m) \/ Lose(m)

Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------

\* A process that may vote, lead and acknowledge, with the members that it makes a majority with.
Acts(f) ==
    /\ process[f] # Nil /\ (ProveFirst => process[f].proved)
    /\ 2 * (Cardinality({m \in Member : <<f, m>> \in linked}) + 1) > Cardinality(Member) + 1

OneAtATime == \A f, g \in Folder : f # g => ~(Acts(f) /\ Acts(g))

\* A process that acts descends from every incarnation that a member which it acts with has admitted.
NoBranch ==
    \A f \in Folder : process[f] # Nil => \A m \in Member :
        (<<f, m>> \in linked /\ known[m] # Nil) =>
            LET a == Last(process[f].lineage) IN known[m].draw = a.draw \/ known[m].draw \in a.past

\* A node whose folder nobody copied is never refused.
NeverAlone ==
    copies = 0 => \A f \in Folder : process[f] # Nil => \A m \in Member : Admits(m, process[f].lineage)
=============================================================================
