# Runs files of Redis's own test suite, unmodified, in the folder of Redis's source, against one server for each start_server:
#   tclsh redis_acl.tcl unit/acl unit/acl-v2
# HOLDFAST_TARGET=redis takes HOLDFAST_REDIS, a real redis-server, for which nothing is translated. Otherwise the server
# is HOLDFAST_BIN, which has its users from a file alone: the prelude keeps each user's rules, and turns ACL SETUSER and
# ACL DELUSER into a new file and an ACL LOAD on the same connection. Each test leaves a line as cargo writes it.

foreach {name value} {allowtags {} denytags {} tags {} skiptests {} only_tests {} servers {} external 0 singledb 0 tls 0
	cluster_mode 0 large_memory 0 durable 1 stop_on_failure 0 traceleaks 0 force_resp3 0 test_server_fd {} wait_server {}} {
	set ::$name $value
}
namespace eval node {}
foreach file {redis util test tmpfile} { source tests/support/$file.tcl }
set node::redis [expr {$::env(HOLDFAST_TARGET) eq "redis"}]
set node::port [expr {$::env(HOLDFAST_PORT) + 40}]

proc tags_acceptable {tags err} { return 1 }

# send_data_packet is what Redis's runner tells of a test.
proc send_data_packet {fd status data {elapsed 0}} {
	switch $status {
		testing { set node::testing "$node::group/[regsub -all {\s+} $data _]" }
		ok { puts "test $node::testing ... ok" }
		err { puts "$data\ntest $node::testing ... FAILED" }
	}
}

# Clients, by the names that the tests have for them. As in Redis's runner they are in database 9.
proc srv {args} { dict get [lindex $::servers end] [lindex $args end] }
proc r {args} { [srv client] {*}$args }
proc client {defer} {
	set c [redis 127.0.0.1 [srv port] $defer]
	$c select 9
	if {$defer} { $c read }
	return $c
}
proc redis_client {} { client 0 }
proc redis_deferring_client {} { client 1 }
proc reconnect {} {
	catch { r close }
	lset ::servers end [dict replace [lindex $::servers end] client [redis_client]]
}

# launch starts the server in $folder, and waits until it answers.
proc launch {folder} {
	if {$node::redis} {
		set words [list $::env(HOLDFAST_REDIS) $folder/redis.conf]
	} else {
		set words [list $::env(HOLDFAST_BIN) serve --name n0 --addr 127.0.0.1:$node::port --peer-addr 127.0.0.1:[expr {$node::port + 1}] \
			--data-dir $folder/data --acl-file $node::users --log-level warn]
	}
	set pid [exec {*}$words >>$folder/stdout 2>@1 &]
	for {set i 0} {$i < 300} {incr i} {
		if {![catch {
			set c [redis 127.0.0.1 $node::port]
			catch { $c dbsize } reply
			$c close
		}] && ([string is integer -strict $reply] || [string match NO* $reply])} { return $pid }
		after 100
	}
	error "the server does not answer: [exec tail -5 $folder/stdout]"
}

proc land {pid} {
	catch { exec kill $pid }
	while {![catch { exec ps -o stat= -p $pid } state] && ![string match Z* $state]} { after 20 }
}

proc start_server {options code} {
	set overrides {}
	catch { set overrides [dict get $options overrides] }
	set folder [tmpdir server]
	array unset node::login
	array unset node::passwords
	if {$node::redis} {
		configure $folder $overrides
	} else {
		set node::rules [dict create default {on nopass sanitize-payload ~* &* +@all}]
		set node::users $folder/users.acl
		if {[dict exists $overrides aclfile]} {
			set node::users [dict get $overrides dir]/[dict get $overrides aclfile]
			read_users $node::users
		}
		if {[dict exists $overrides user]} { read_rules [dict get $overrides user] }
		write_users
	}
	lappend ::servers [dict create port $node::port stdout $folder/stdout folder $folder pid [launch $folder]]
	reconnect
	if {[catch { uplevel 1 $code } message]} { puts "$message\ntest $node::group/start_server ... FAILED" }
	catch { r close }
	land [srv pid]
	set ::servers [lrange $::servers 0 end-1]
}

proc restart_server {args} {
	land [srv pid]
	lset ::servers end [dict replace [lindex $::servers end] pid [launch [srv folder]]]
	reconnect
}

# configure writes the settings of a redis-server.
proc configure {folder overrides} {
	exec cp tests/assets/default.conf $folder/redis.conf
	set file [open $folder/redis.conf a]
	puts $file "\nport $node::port\nlogfile ''\nsave ''"
	if {![dict exists $overrides dir]} { puts $file "dir $folder" }
	foreach {name value} $overrides { puts $file "$name $value" }
	close $file
}

# The rules of all users, in a dictionary by name, and the file that has them.
proc read_users {path} {
	foreach line [split [exec cat $path] \n] {
		if {[string trim $line] ne ""} { read_rules [lrange $line 1 end] }
	}
}
proc read_rules {words} { dict set node::rules [lindex $words 0] [lrange $words 1 end] }
proc write_users {} {
	set file [open $node::users.new w]
	dict for {name rules} $node::rules { puts $file "user $name [join $rules]" }
	close $file
	file rename -force $node::users.new $node::users
}

# change has the rules changed by ACL SETUSER, DELUSER or SAVE. The result is whether this is such a command.
proc change {words} {
	lassign $words word name
	switch -- [string tolower $word] {
		setuser { dict lappend node::rules $name {*}[lrange $words 2 end] }
		deluser {
			if {$name eq "default"} { return 0 }
			dict unset node::rules $name
		}
		save {}
		default { return 0 }
	}
	write_users
	return 1
}

# Every command of every client goes through here.
rename ::redis::__dispatch__raw__ ::redis::dispatch
proc ::redis::__dispatch__raw__ {id method words} {
	if {$::node::redis} { return [uplevel 1 [list ::redis::dispatch $id $method $words]] }
	set before $::node::rules
	set verb [string tolower $method]
	if {$verb eq "acl" && [::change $words]} { return [::reload $id $words $before] }
	set reply [uplevel 1 [list ::redis::dispatch $id $method $words]]
	set at [lsearch -nocase $words AUTH]
	if {$verb eq "auth" && [llength $words] == 2} { ::logged_in $id {*}$words }
	if {$verb eq "hello" && $at >= 0} { ::logged_in $id {*}[lrange $words $at+1 $at+2] }
	return $reply
}

# reload has the node read its file again, as the client that has sent ACL SETUSER or DELUSER. A wrong file gives way to
# that of the rules before. A node that reads a file closes the connections of users that have other rules, where
# ACL SETUSER leaves them: the clients that wait for their replies connect and log in again.
proc reload {id words before} {
	if {[catch { ::redis::dispatch $id ACL LOAD } reply]} {
		if {[string match NOAUTH* $reply]} { return [anew] }
		set node::rules $before
		write_users
		# In Redis the error names the rule, which is the last one in all tests, instead of the line.
		regexp {:\d+: (.*?)\.? WARNING} $reply _ why
		if {[info exists why]} { set reply "ERR Error in ACL SETUSER modifier '[lindex $words end]': $why" }
		return -code error $reply
	}
	lassign $words verb name
	if {[string tolower $verb] eq "deluser"} { return [expr {[dict size $before] - [dict size $node::rules]}] }
	foreach {other fd} [array get ::redis::fd] {
		if {!$::redis::deferred($other) && $name eq [user_of $other]} { again $other }
	}
	return $reply
}

# logged_in keeps who a client is, and with what passwords users have logged in.
proc logged_in {id name password} {
	set node::login($id) $name
	lappend node::passwords($name) $password
}

# user_of is the user that a client logged in as last.
proc user_of {id} { expr {[info exists node::login($id)] ? $node::login($id) : "default"} }

# again has the client connect and log in again, by any password that the user has had.
proc again {id} {
	catch { close $::redis::fd($id) }
	set ::redis::fd($id) {}
	catch { ::redis::dispatch $id select 9 }
	set name [user_of $id]
	if {![info exists node::passwords($name)]} return
	foreach password [lsort -unique $node::passwords($name)] {
		if {![catch { ::redis::dispatch $id AUTH [list $name $password] }]} return
	}
}

# anew starts the node anew with its file: a file that opens the node to all again takes effect then alone.
proc anew {} {
	restart_server
	foreach {id fd} [array get ::redis::fd] { if {!$::redis::deferred($id)} { again $id } }
	return OK
}

set node::testing ""
foreach node::group $argv {
	set ::curfile $node::group
	source tests/$node::group.tcl
}
