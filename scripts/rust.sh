# Finds Rust, for scripts in the folder of the sources: `. scripts/rust.sh`, after `who=` with the name to say.
#
# Ends the script if Rust is missing or too old. $target is the folder that cargo builds in.
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

rust_is_new_enough() {
    found=$(rustc --version 2>/dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
    [ -n "$found" ] && command -v cargo >/dev/null 2>&1 &&
        [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ]
}

if ! rust_is_new_enough; then
    # rustup's own place, which a shell that was started before does not have in its path.
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
    if ! rust_is_new_enough; then
        [ -n "$found" ] || found=none
        {
            echo "$who: Rust $needed or newer is needed, and there is ${found}. Install it by rustup (https://rustup.rs):"
            echo "$who:   curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
            echo "$who: An older rustup gets it by \"rustup update stable\"; Debian 12's own packages are too old."
        } >&2
        exit 1
    fi
fi
target=${CARGO_TARGET_DIR:-target}
