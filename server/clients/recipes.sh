# shellcheck shell=bash disable=SC2154
# The recipe for native locks, a file to copy, and a program that checks it; and what brings frameworks to the Java
# library. Sourced by run.sh.

# native COMMAND…: the checks, where there are native locks.
native() {
	if [ "$HOLDFAST_TARGET" = redis ]; then
		echo "  skip  all of it: Redis has no native locks"
		return
	fi
	"$@"
}

# library NAME MAIN: installs the Java library, and what brings a framework to it.
library() {
	local module
	for module in client "$1"; do
		mvn -q -B -f "$here/java/holdfast-$module/pom.xml" -Dmaven.repo.local="$work/m2" -DbuildDirectory="$work/holdfast-$module" install || return
	done
	mvn -q -B -f "$here/java/holdfast-$1/pom.xml" -Dmaven.repo.local="$work/m2" dependency:copy-dependencies -DoutputDirectory="$work/$1-jars" &&
		javac -nowarn -cp "$work/holdfast-$1/classes:$work/$1-jars/*" -d "$work/$1-suite" "$here/java/Checks.java" "$here/java/holdfast-$1/$2.java"
}
framework() { native java -Xmx256m -XX:+UseSerialGC -cp "$work/$1-suite:$work/holdfast-$1/classes:$work/$1-jars/*" "$2"; }

install_java_spring() { library spring SpringSuite; }
test_java_spring() { framework spring SpringSuite; }

install_java_shedlock() { library shedlock ShedLockSuite; }
test_java_shedlock() { framework shedlock ShedLockSuite; }

install_recipes_rust() {
	CARGO_HOME=$work/cargo CARGO_TARGET_DIR=$work/rust-recipes cargo build --quiet --manifest-path "$here/rust/recipes/Cargo.toml"
}
test_recipes_rust() { native "$work/rust-recipes/debug/recipes"; }
