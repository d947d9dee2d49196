# shellcheck shell=bash disable=SC2154
# The recipe for native locks: a file to copy, and a program that checks it. Sourced by run.sh.

# native COMMAND…: the checks of a recipe, where there are native locks.
native() {
	if [ "$HOLDFAST_TARGET" = redis ]; then
		echo "  skip  all of it: Redis has no native locks"
		return
	fi
	"$@"
}

install_recipes_rust() {
	CARGO_HOME=$work/cargo CARGO_TARGET_DIR=$work/rust-recipes cargo build --quiet --manifest-path "$here/rust/recipes/Cargo.toml"
}
test_recipes_rust() { native "$work/rust-recipes/debug/recipes"; }
